"""Where logs of one run are merged: the result is the same in every order, nothing that may count yet is lost."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from protocol.run.manifest import sign_manifest
from sfnode.node import Life
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.log_export_import import import_log
from sfnode.storage.record_store import Store
from tests.storage.test_log_export_import import digests, make_directory
from tests.support.cli_calls import call
from tests.support.ledgers import admit, claim, seal
from tests.support.manifests import OWNER, small_manifest

INVITED = small_manifest(admission="invite")
SIGNED = sign_manifest(INVITED, OWNER)


def log_of(directory: Path, author: int) -> Path:
    """The log of a node that has heard one of several who claim the same token."""
    with closing(Store(DataDirectory(directory), SIGNED)) as store:
        store.add_statements([claim(INVITED, 3, author)])
    records = [seal(INVITED, author, step) for step in (1, 2)]
    records.append(seal(INVITED, author, 2, *[author] * INVITED.numbers))  # voids the slot
    file = directory.with_suffix(".log")
    assert call("log", "export", file, "--data-dir", make_directory(directory, records, SIGNED)).code == 0
    return file


def test_log_import__invitation_that_too_many_used__keeps_all_updates_in_every_order(tmp_path: Path) -> None:
    files = [log_of(tmp_path / f"node{author}", author) for author in (1, 2, 3)]
    found = set()
    for number, order in enumerate((files, files[::-1])):
        merged = tmp_path / f"merged{number}"
        told = [
            json.loads(call("log", "import", file, "--data-dir", merged, "--json").stdout)
            for file in (*order, files[1])
        ]
        assert [(each["added"], each["suspended"]) for each in told] == [(3, 0), (3, 3), (3, 3), (0, 0)]
        assert (told[-1]["updates"], told[-1]["void_slots"]) == (0, 0)
        with closing(Store(DataDirectory(merged), SIGNED)) as store:
            store.add_statements([admit(INVITED, 2), admit(INVITED, 3)])
            assert store.count() == 9
        found.add(digests(merged))
    assert len(found) == 1 and found.pop()[2] == 2


def test_log_import__invitation_that_too_many_used__says_how_many_wait_for_the_owner(tmp_path: Path) -> None:
    first, second = (log_of(tmp_path / f"node{author}", author) for author in (1, 2))
    outcome = call("log", "import", second, "--data-dir", first.with_suffix(""))
    assert "3 of 3 records were new; 3 of these count once the owner admits their authors" in outcome.stdout


def test_log_export__author_not_admitted_any_more__says_how_many_records_it_leaves_out(tmp_path: Path) -> None:
    """It once said nothing: a replica that reads from the disk counted none of them."""
    log_of(tmp_path / "node", 1)
    with closing(Store(DataDirectory(tmp_path / "node"), SIGNED)) as store:
        store.add_statements([claim(INVITED, 3, 2)])
    outcome = call("log", "export", tmp_path / "again.log", "--data-dir", tmp_path / "node")
    assert "0 records; without 3 of authors who are not admitted" in outcome.stdout


def test_log_import__place_that_cannot_be_looked_at__is_not_said_of_the_log_file(tmp_path: Path) -> None:
    """A fault once: "cannot read the log file", which was fine; the data directory could not be looked at."""
    file, place = log_of(tmp_path / "node", 1), DataDirectory(tmp_path / ("x" * 300))
    with pytest.raises(OperatorError, match=r"^cannot use the data directory .*: File name too long$"):
        import_log(file, lambda _manifest: place, lambda _bytes, _updates: None)


def test_log_verify__ledger_without_records__says_that_it_checked_none(tmp_path: Path) -> None:
    """A fault once: "ok yes", as after a thousand signatures, of a ledger whose records were gone."""
    directory = make_directory(tmp_path / "node", [], SIGNED)
    assert "ok            yes, but there is no record to check" in call("log", "verify", directory).stdout
    assert json.loads(call("log", "verify", directory, "--json").stdout)["records"] == 0


def test_log_import__into_the_directory_of_a_start_that_was_stopped__works(tmp_path: Path) -> None:
    """What a stopped start has left there, how it ended, was called a stranger's file."""
    file, place, life = log_of(tmp_path / "node", 1), DataDirectory(tmp_path / "stopped"), Life()
    place.claim()
    with life:
        life.announce(place)
    assert "3 of 3 records were new" in call("log", "import", file, "--data-dir", place).stdout
