"""A copy of a key on the same machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from protocol.errors import OperatorError
from sfnode.storage.key_file import KeyFile


def test_key__copy_is_in_use__is_refused_unless_another_user_has_locked_the_file_of_all_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That file's name has the node's public key, so anybody on the machine could keep the node from starting."""
    key, copy = KeyFile(tmp_path / "me.key"), KeyFile(tmp_path / "copy.key")
    key.made_seed()
    shutil.copy2(key.path, copy.path)
    with key.in_use():
        with pytest.raises(OperatorError, match="or with a copy of it"), copy.in_use():
            pass
        signer = copy.signer()
        with monkeypatch.context() as patched:
            patched.setattr(KeyFile, "signer", lambda _self: signer)
            patched.setattr(os, "fstat", lambda _held: SimpleNamespace(st_uid=os.geteuid() + 1))
            with copy.in_use():
                pass
