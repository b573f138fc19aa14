"""Logs of one run that are merged: the result is the same in every order, and nothing that may count yet is lost."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from protocol.run.manifest import sign_manifest
from sfnode.storage.data_directory import DataDirectory
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
