"""One life of a node: while it starts, others see that it does, and no second one begins there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from protocol.run.manifest import sign_manifest
from sfnode.api.joining import join
from sfnode.node import Life
from sfnode.storage import DataDirectory
from tests.support.manifests import OWNER, small_manifest


def claimed(folder: Path) -> DataDirectory:
    data_dir = DataDirectory(folder)
    data_dir.claim()
    return data_dir


async def test_join__another_node_starts_in_the_directory__is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """A node of this interface once took the directory of one that looked for its key, and its request to stop."""
    life, data_dir = Life(), claimed(tmp_path / "node")
    (tmp_path / "my.run").write_bytes(sign_manifest(small_manifest(), OWNER).encode())
    with life:
        life.announce(data_dir)
        data_dir.control.ask_to_stop()
        with pytest.raises(OperatorError, match="in use by another sfnode"):
            async with join(tmp_path / "my.run", folder=data_dir.path, is_relay=True):
                raise AssertionError("the block began")
        assert data_dir.control.is_asked_to_stop() and data_dir.end.describe() == ""
    assert data_dir.starting_s() is None


def test_announce__node_begins_between_two_looks__is_left_alone_and_the_start_may_be_shown_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start of one that is refused was shown as that of the one that runs, until it had ended."""
    life, data_dir, held = Life(), claimed(tmp_path), list[int]()
    lock_start = DataDirectory.lock_start

    def after_another(folder: DataDirectory) -> int:
        held.extend([] if held else [folder.lock()])
        return lock_start(folder)

    monkeypatch.setattr(DataDirectory, "lock_start", after_another)
    with life:
        data_dir.control.ask_to_stop()
        life.announce(data_dir)
        assert data_dir.starting_s() is None and data_dir.control.is_asked_to_stop()
        os.close(held[0])
        life.announce(data_dir)
        assert data_dir.starting_s() is not None and not data_dir.control.is_asked_to_stop()
