"""``sfnode run show``: who has contributed what, and what a run file says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from protocol.run.manifest import Manifest, sign_manifest
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests.cli.test_admission import ALICE, BOB
from tests.protocol.test_leaving_out import measured, one_coordinate
from tests.support.cli_calls import assert_teaches, call
from tests.support.ledgers import exclude, seal
from tests.support.manifests import OWNER, small_manifest

MANIFEST = one_coordinate()
SLOPES = ((1, 3, 12), (2, 4, 20), (2, 9, 20))  # author, step, slope in quanta of 2^-2


def held_in(directory: Path, manifest: Manifest, records: Sequence[bytes], *statements: bytes) -> Path:
    store = Store(DataDirectory(directory), sign_manifest(manifest, OWNER))
    store.add(records, is_durable=True)
    store.add_statements(statements)
    store.close()
    return directory


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a node that has stopped; coordinates move by 2^-3 times a slope and the weight of its step."""
    return held_in(tmp_path / "node", MANIFEST, [measured(MANIFEST, *slope) for slope in SLOPES])


def test_run_show__authors_of_a_ledger__have_their_part_and_what_leaving_them_out_does(directory: Path) -> None:
    moved = {ALICE: 12 * MANIFEST.weight(3), BOB: 20 * (MANIFEST.weight(4) + MANIFEST.weight(9))}
    told = json.loads(call("run", "show", directory, "--json").stdout)
    assert (told["kind"], told["statements"], told["gain"]) == ("node", [], None)
    bob, alice = told["authors"]
    assert (bob["kind"], bob["author"], bob["updates"], bob["last_step"]) == ("author", BOB.hex(), 2, 9)
    assert (alice["author"], alice["share"]) == (ALICE.hex(), pytest.approx(1 / 3, abs=1e-6))
    assert alice["left_out"]["change"] == pytest.approx(2**-5 * 20 * moved[ALICE])
    assert bob["left_out"]["change"] == pytest.approx(2**-5 * 12 * moved[BOB])
    assert (bob["left_out"]["unit"], bob["left_out"]["updates"]) == ("loss", 2)
    text = call("run", "show", "--data-dir", directory).stdout.splitlines()
    assert text[1].split() == ["author", "updates", "share", "last", "step", "left", "out", "(loss)"]
    assert text[2].split()[:4] == [BOB.hex()[:16], "2", "66.7%", "9"]
    assert text[2].split()[4:6] == [f"{2**-5 * 12 * moved[BOB]:+.3g}", "±"]


def test_run_show__author_who_was_excluded__has_no_updates_and_the_other_is_alone(tmp_path: Path) -> None:
    records = [measured(MANIFEST, *slope) for slope in SLOPES]
    directory = held_in(tmp_path / "node", MANIFEST, records, exclude(MANIFEST, 2, 0))
    (told,) = json.loads(call("run", "show", directory, "--json").stdout)["statements"]
    assert told == {"kind": "exclude", "author": BOB.hex(), "from_step": 0}
    outcome = call("run", "show", directory)
    assert outcome.stdout.startswith(f"exclude  {BOB.hex()}  from step 0\n\nauthor ")
    assert outcome.stdout.splitlines()[3:-3] == [
        f"{ALICE.hex()[:16]}         1 100.0%         3  nobody else has measured"
    ]


def test_run_show__two_payloads_for_one_step__the_author_counts_for_nothing(tmp_path: Path) -> None:
    records = [seal(MANIFEST, 1, 3, 5), seal(MANIFEST, 1, 3, 6)]
    (found,) = json.loads(call("run", "show", held_in(tmp_path / "node", MANIFEST, records), "--json").stdout)[
        "authors"
    ]
    assert (found["updates"], found["void_slots"], found["last_step"], found["left_out"]) == (0, 1, -1, None)


def test_run_show__epochs_without_others__says_of_how_many_updates_it_tells(tmp_path: Path) -> None:
    records = [measured(MANIFEST, *slope) for slope in (*SLOPES, (1, 20, 12))]
    lines = call("run", "show", held_in(tmp_path / "node", MANIFEST, records)).stdout.splitlines()
    assert [line.endswith(", of 1 update") for line in lines[2:]] == [
        line.startswith(ALICE.hex()[:16]) for line in lines[2:]
    ]


def test_run_show__run_file__what_it_says(tmp_path: Path) -> None:
    file = tmp_path / "my.run"
    manifest = small_manifest()
    file.write_bytes(sign_manifest(manifest, OWNER).encode())
    shown = call("run", "show", file).stdout.splitlines()
    assert shown[:2] == ["Run              test", f"Run id           {manifest.run_id.hex()}"]
    told = json.loads(call("run", "show", file, "--json").stdout)
    assert (told["kind"], told["run_id"], told["template"]) == ("run", manifest.run_id.hex(), "{sentence} It was")


def test_run_show__neither_or_both_ways_to_name_it__says_what_to_give(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert_teaches(call("run", "show"), "there is no node in ~/.sfnode", "--data-dir")
    assert_teaches(call("run", "show", directory, "--data-dir", directory), "say what to show, once")
    assert_teaches(call("run", "show", directory / "nothing"), str(directory / "nothing"))
