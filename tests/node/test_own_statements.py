"""The files of statements that commands leave for a node: taken in, refused, or tried again."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from protocol.ledger.roster import Roster
from sfnode.node.own_statements import StatementFolder
from sfnode.reporter import Reporter
from sfnode.storage.data_directory import DataDirectory
from tests.support.ledgers import admit
from tests.support.manifests import small_manifest

LISTED = small_manifest(admission="allow-list")
STATEMENT = admit(LISTED, 1)


def watched_folder(path: Path) -> tuple[DataDirectory, Roster, StatementFolder, Path, io.StringIO]:
    """A data directory, the roster of its node, its folder with one file of statements, and what is reported."""
    said, data_dir, roster = io.StringIO(), DataDirectory(path), Roster(LISTED)
    node: Any = SimpleNamespace(replica=SimpleNamespace(ledger=SimpleNamespace(roster=roster)))
    folder = StatementFolder(LISTED, data_dir, node, Reporter(is_json=True, stream=said))
    return data_dir, roster, folder, data_dir.statements.submit([STATEMENT]), said


def test_statements__file_that_cannot_be_read_for_a_moment__waits_and_is_said_once(tmp_path: Path) -> None:
    """Too many open files at that moment, and the owner's admission was refused for good."""
    data_dir, roster, folder, path, said = watched_folder(tmp_path)
    other = path.with_name("other.statements")
    other.write_bytes(path.read_bytes())
    with mock.patch("os.open", side_effect=OSError(errno.EMFILE, os.strerror(errno.EMFILE))):
        assert [*folder.due(), *folder.due()] == [] and data_dir.statements.waiting() == [path, other]
    other.unlink()
    assert [*folder.due()] == [STATEMENT]
    roster.add(STATEMENT)
    assert [*folder.due()] == [] and not data_dir.statements.waiting()
    path.write_bytes(b"no statement")
    assert [*folder.due()] == [] and [each.suffix for each in path.parent.iterdir()] == [".refused"]
    events = [json.loads(line)["event"] for line in said.getvalue().splitlines()]
    assert events == ["statements_unread", "statements_unread", "statements_taken", "statements_refused"]


def test_statements__file_cannot_be_put_away__node_goes_on_and_says_so_once(tmp_path: Path) -> None:
    """A folder of statements that is mounted to be read ended the node, once it had taken them in."""
    data_dir, roster, folder, path, said = watched_folder(tmp_path)
    bad = path.with_name("bad.statements")
    bad.write_bytes(b"no statement")
    roster.add(STATEMENT)
    denied = OSError(errno.EROFS, os.strerror(errno.EROFS))
    with mock.patch.object(Path, "unlink", side_effect=denied), mock.patch.object(Path, "replace", side_effect=denied):
        assert [*folder.due(), *folder.due()] == []
    assert [*folder.due()] == [] and not data_dir.statements.waiting()
    events = [json.loads(line)["event"] for line in said.getvalue().splitlines()]
    assert sorted(events) == ["statements_left", "statements_left", "statements_refused", "statements_taken"]
