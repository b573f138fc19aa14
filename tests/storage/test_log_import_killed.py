"""An import that is killed: the place stays free, and the next one clears away what was left."""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

import pytest

from sfnode.storage.data_directory import LEDGER_FILE, MANIFEST_FILE, DataDirectory
from sfnode.storage.exclusive_folder import LOCK_FILE
from tests.storage.test_log_export_import import PROOF, RECORDS, digests, make_directory
from tests.support.cli_calls import call


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Data directory of a node of the run, with a void slot."""
    return make_directory(tmp_path / "node", [*RECORDS, PROOF])


def test_log_import__killed_while_it_writes__leaves_the_place_free(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new directory is complete before it gets its name."""
    assert call("log", "export", tmp_path / "x.log", "--data-dir", node).code == 0

    def die(*_arguments: object) -> None:
        staged = next(path for path in tmp_path.iterdir() if ".import-" in path.name)
        assert {MANIFEST_FILE, LEDGER_FILE} <= {path.name for path in staged.iterdir()}
        with DataDirectory(staged).reading() as stored:
            assert stored.count() == 61
        raise KeyboardInterrupt

    monkeypatch.setattr("sfnode.storage.log_export_import.sync_folder", die)
    assert call("log", "import", tmp_path / "x.log", "--data-dir", tmp_path / "copy").code != 0
    assert not (tmp_path / "copy").exists()


def test_log_import__killed_before__clears_away_what_was_left_of_that_directory_alone(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("log", "export", tmp_path / "x.log", "--data-dir", node).code == 0
    with monkeypatch.context() as patched:  # SIGKILL: nothing is cleared away
        patched.setattr("sfnode.storage.log_export_import.shutil.rmtree", lambda path: None)
        patched.setattr("sfnode.storage.log_export_import.os.replace", lambda source, target: sys.exit(9))
        assert call("log", "import", tmp_path / "x.log", "--data-dir", tmp_path / "copy").code == 9
    (left,) = (path for path in tmp_path.iterdir() if path.name.startswith("copy.import-"))
    others = [tmp_path / "copy.import-my_notes" / "notes.txt", tmp_path / "copy2.import-abcdefgh" / LEDGER_FILE]
    at_work = tmp_path / "copy.import-01234567"
    for path in (*others, at_work / MANIFEST_FILE):
        path.parent.mkdir()
        path.touch()
    with (at_work / LOCK_FILE).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert call("log", "import", tmp_path / "x.log", "--data-dir", tmp_path / "copy").code == 0
    assert not left.exists() and at_work.exists() and all(path.exists() for path in others)
    assert digests(tmp_path / "copy") == digests(node)
