"""A copy of a key on the same machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from protocol.errors import OperatorError
from sfnode.storage.key_file import KeyFile

_START = """
import sys
from pathlib import Path
from sfnode.storage.key_file import KeyFile
with KeyFile(Path(sys.argv[1])).in_use():
    pass
"""


@pytest.fixture
def copies(tmp_path: Path) -> tuple[KeyFile, KeyFile]:
    """A key and a copy of it."""
    key, copy = KeyFile(tmp_path / "me.key"), KeyFile(tmp_path / "copy.key")
    key.made_seed()
    shutil.copy2(key.path, copy.path)
    return key, copy


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has abstract sockets")
def test_key__copy_is_in_use_with_another_folder_of_temporary_files__is_refused_until_that_node_ends(
    copies: tuple[KeyFile, KeyFile], tmp_path: Path
) -> None:
    """As a service with PrivateTmp has, or another user."""

    def started() -> str:
        command, elsewhere = [sys.executable, "-c", _START, str(copies[1].path)], os.environ | {"TMPDIR": str(tmp_path)}
        return subprocess.run(command, env=elsewhere, capture_output=True, text=True, check=False).stderr

    with copies[0].in_use():
        assert "or with a copy of it" in started()
    assert started() == ""


def test_key__copy_is_in_use_without_abstract_sockets__is_refused_unless_another_user_has_locked_the_file_of_all_copies(
    copies: tuple[KeyFile, KeyFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That file's name has the node's public key, so anybody on the machine could keep the node from starting."""
    key, copy = copies
    monkeypatch.setattr(sys, "platform", "darwin")
    with key.in_use():
        with pytest.raises(OperatorError, match="or with a copy of it"), copy.in_use():
            pass
        signer = copy.signer()
        with monkeypatch.context() as patched:
            patched.setattr(KeyFile, "signer", lambda _self: signer)
            patched.setattr(os, "fstat", lambda _held: SimpleNamespace(st_uid=os.geteuid() + 1))
            with copy.in_use():
                pass
