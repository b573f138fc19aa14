"""Commands for the node of another user: an administrator's, who runs them as root, mostly."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from protocol.run.manifest import Manifest, sign_manifest
from sfnode.storage import exclusive_folder
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.key_file import KeyFile
from sfnode.storage.record_store import Store
from tests.support.cli_calls import assert_teaches, call
from tests.support.ledgers import signer
from tests.support.manifests import OWNER, OWNER_SEED, small_manifest

LISTED = small_manifest(admission="allow-list")
INVITED = small_manifest(admission="invite")
AUTHOR = signer(1).author.hex()


def written(node: DataDirectory) -> list[str]:
    """What lies there, but for files of SQLite, which gives those that root makes to the ledger's owner."""
    return sorted(path.name for path in node.path.iterdir() if not path.name.startswith("ledger.sqlite3-"))


@pytest.mark.parametrize(
    ("manifest", "command"),
    [
        (LISTED, ("run", "admit", AUTHOR, "--owner-key")),
        (LISTED, ("run", "exclude", AUTHOR, "--from-step", "2", "--yes", "--owner-key")),
        (INVITED, ("run", "invite", "--for", "Ann", "--owner-key")),
        (INVITED, ("pause", "--for", "1min")),
        (INVITED, ("stop",)),
        (INVITED, ("config", "set", "threads", "2")),
    ],
)
def test_command__node_of_another_user__is_refused_with_how_to_run_it(
    manifest: Manifest, command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What root left there the node could neither read nor remove: it ended, or was paused for ever."""
    node, key = DataDirectory(tmp_path / "node"), tmp_path / "owner.key"
    Store(node, sign_manifest(manifest, OWNER)).close()
    KeyFile(key).store(OWNER_SEED)
    lock = node.lock()
    before = written(node)
    monkeypatch.setattr(exclusive_folder, "os", SimpleNamespace(**vars(os) | {"geteuid": lambda: os.getuid() + 1}))
    try:
        words = (*command, key) if command[-1] == "--owner-key" else command
        outcome = call(*words, "--data-dir", node)
    finally:
        os.close(lock)
    assert_teaches(outcome, f"{node} belongs to another user", "`sudo -u ", " sfnode ...`")
    assert written(node) == before
