"""The data directory: what is durable when, what survives a reopen, who may hold it, and every way it can be bad."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError, SfnodeError, StorageDamagedError
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import sign_manifest
from protocol.state.replica import Replica
from sfnode.storage.data_directory import LEDGER_FILE, MANIFEST_FILE, DataDirectory
from sfnode.storage.record_store import Store
from sfnode.storage.stored_records import replay
from tests.support.manifests import OWNER, small_manifest
from tests.support.small_disk import fill, remount, small_disk

MANIFEST = small_manifest()
SIGNED = sign_manifest(MANIFEST, OWNER)
OTHER = sign_manifest(small_manifest(steps=80), OWNER)
ALICE = Signer(b"alice".ljust(32, b"."))
RECORDS = [EnvelopeCodec(MANIFEST).seal(ALICE, step, (step + 1,)).record for step in range(40)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An open store in a new directory."""
    opened = Store(DataDirectory(tmp_path / "node"), SIGNED)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed directory with 40 records and a reservation; tests copy it before they harm it."""
    directory = tmp_path_factory.mktemp("filled") / "node"
    opened = Store(DataDirectory(directory), SIGNED)
    opened.add(RECORDS, is_durable=True)
    opened.reserve_step(39)
    opened.close()
    return directory


def records_in(directory: Path) -> list[bytes]:
    with DataDirectory(directory).reading() as stored:
        return [record for _, record in stored.records()]


def replayed(directory: Path) -> Replica:
    return replay(Replica(MANIFEST), enumerate(records_in(directory), start=1), directory / LEDGER_FILE)


# --- content ----------------------------------------------------------------------------------------------------


def test_folder_whose_name_is_not_utf8__is_read(filled: Path, tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"K\xf6ln")
    shutil.copytree(filled, place)
    assert records_in(place) == RECORDS


def test_store__records_of_several_transactions__come_back_in_their_order(store: Store, tmp_path: Path) -> None:
    shuffled = random.Random(1).sample(RECORDS, len(RECORDS))
    for first in range(0, len(shuffled), 7):
        store.add(shuffled[first : first + 7], is_durable=first % 2 == 0)
    assert [record for _, record in store.records()] == shuffled
    assert records_in(tmp_path / "node") == shuffled  # also while it is open


def test_store__more_records_than_a_page__come_back_all(store: Store) -> None:
    many = [number.to_bytes(4, "big") for number in range(3_000)]
    store.add(many, is_durable=False)
    assert [record for _, record in store.records()] == many


def test_store__facts__survive_a_reopen(tmp_path: Path) -> None:
    first = Store(DataDirectory(tmp_path), SIGNED)
    assert (first.reserved_step, first.saved("known_peers")) == (-1, "[]")
    first.reserve_step(0)
    first.reserve_step(17)
    first.save("known_peers", '[{"peer": "x"}]')
    first.close()
    second = Store(DataDirectory(tmp_path), SIGNED)
    assert (second.reserved_step, second.saved("known_peers")) == (17, '[{"peer": "x"}]')
    second.close()


def test_store__process_that_never_closes__leaves_everything_it_was_told(tmp_path: Path) -> None:
    abandoned = Store(DataDirectory(tmp_path / "node"), SIGNED)
    abandoned.add(RECORDS[:3], is_durable=True)
    abandoned.reserve_step(5)
    shutil.copytree(tmp_path / "node", tmp_path / "copy")  # what another process finds after a SIGKILL
    survivor = Store(DataDirectory(tmp_path / "copy"), SIGNED)
    assert [record for _, record in survivor.records()] == RECORDS[:3]
    assert survivor.reserved_step == 5
    survivor.close()
    abandoned.close()


@pytest.mark.parametrize(("is_durable", "mode"), [(True, "FULL"), (False, "NORMAL")])
def test_store__own_records__are_committed_with_fsync_and_others_without(
    is_durable: bool, mode: str, store: Store
) -> None:
    statements: list[str] = []
    store._database.set_trace_callback(statements.append)
    store.add(RECORDS[:1], is_durable=is_durable)
    assert statements[0] == f"PRAGMA synchronous = {mode}"
    assert statements[1:2] + statements[-1:] == ["BEGIN IMMEDIATE", "COMMIT"]


def test_store__reservation__is_committed_with_fsync(store: Store) -> None:
    statements: list[str] = []
    store._database.set_trace_callback(statements.append)
    store.reserve_step(3)
    assert statements[0] == "PRAGMA synchronous = FULL"
    assert store._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_store__failed_transaction__leaves_nothing_of_it(store: Store) -> None:
    store.add(RECORDS[:1], is_durable=True)
    with pytest.raises(StorageDamagedError):
        store.add([RECORDS[1], None], is_durable=True)  # type: ignore[list-item]
    assert [record for _, record in store.records()] == RECORDS[:1]
    store.add(RECORDS[1:2], is_durable=True)
    assert [record for _, record in store.records()] == RECORDS[:2]


# --- what a ledger need not keep in memory ----------------------------------------------------------------------


def neighbour_of_alice() -> bytes:
    """A record that begins with the same 8 bytes as hers and is another author's."""
    return RECORDS[3][:8] + bytes(24) + RECORDS[3][32:]


@pytest.mark.parametrize("steps", [range(40), [3], [0, 1, 2, 39], [7, 20, 21], [], [50]])
def test_store__read__gives_the_records_of_those_steps_and_no_others(steps: Sequence[int], store: Store) -> None:
    others = [EnvelopeCodec(MANIFEST).seal(Signer(b"bob".ljust(32, b".")), step, (1,)).record for step in range(40)]
    stored = [*RECORDS, *others, neighbour_of_alice()]
    store.add(random.Random(2).sample(stored, len(stored)), is_durable=False)
    assert store.read(ALICE.author, steps) == [RECORDS[step] for step in steps if step < 40]


def test_store__copies_and_versions_of_a_step__come_in_the_order_of_arrival(store: Store) -> None:
    second = EnvelopeCodec(MANIFEST).seal(ALICE, 3, (9,)).record
    for record in (RECORDS[5], second, RECORDS[3], second):
        store.add([record], is_durable=False)
    assert store.read(ALICE.author, [3]) == [second, RECORDS[3], second]
    assert list(store.read_all(ALICE.author)) == [second, RECORDS[3], second, RECORDS[5]]
    assert list(store.read_all(Signer(bytes(32)).author)) == []


def test_store__directory_of_an_earlier_release__can_be_read_by_author(filled: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(filled, tmp_path / "node")
    database = sqlite3.connect(directory / LEDGER_FILE)
    database.execute("DROP INDEX records_by_slot")
    database.close()
    opened = Store(DataDirectory(directory), SIGNED)
    queries: list[str] = []
    opened._database.set_trace_callback(queries.append)
    assert opened.read(ALICE.author, range(40)) == RECORDS
    assert opened.read(ALICE.author, [1, 30]) == [RECORDS[1], RECORDS[30]]
    assert len(list(opened.read_all(ALICE.author))) == 40
    opened._database.set_trace_callback(None)
    plans = [row[3] for query in queries for row in opened._database.execute(f"EXPLAIN QUERY PLAN {query}")]
    assert len(plans) == len(queries) == 4
    assert all("USING INDEX records_by_slot" in plan or "USING COVERING INDEX" in plan for plan in plans)
    opened.close()


def archiving(store: Store) -> Replica:
    """A replica with all records, most of them on the disk only."""
    replica = Replica(MANIFEST, store, in_memory_max=2)
    for record in RECORDS:
        replica.add(record)
        store.add([record], is_durable=False)
    return replica


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM records WHERE arrival = 4",
        "UPDATE records SET record = substr(record, 1, length(record) - 1) || x'00' WHERE arrival = 4",
        "UPDATE records SET record = x'00' WHERE arrival = 4",
        "DROP INDEX records_by_slot; DELETE FROM records",
    ],
)
def test_store__changed_under_a_running_node__is_damage_with_what_where_and_what_to_do(
    statement: str, store: Store, tmp_path: Path
) -> None:
    replica = archiving(store)
    database = sqlite3.connect(path := tmp_path / "node" / LEDGER_FILE)
    database.executescript(statement)
    database.close()
    with pytest.raises(StorageDamagedError) as caught:
        list(replica.ledger.slots.envelopes())
    text = f"updates of author {ALICE.author.hex()[:16]}, steps 0 to 15, are not what was stored"
    assert str(caught.value).startswith(f"{path} is damaged ({text}). Move it away and start")


def test_store__changed_to_what_is_not_a_record__is_damage(store: Store, tmp_path: Path) -> None:
    replica = archiving(store)
    with closing(sqlite3.connect(tmp_path / "node" / LEDGER_FILE)) as database, database:
        database.execute("UPDATE records SET record = CAST(substr(record, 1, 36) || 'x' AS TEXT) WHERE arrival = 4")
    with pytest.raises(StorageDamagedError, match=r"ledger.sqlite3 is damaged \("):
        list(replica.ledger.slots.envelopes())


def test_store__disk_full__loses_nothing_that_the_ledger_holds(tmp_path: Path) -> None:
    manifest = small_manifest(steps=4_000)
    codec = EnvelopeCodec(manifest)
    with small_disk(tmp_path / "disk", kilobytes=2_048) as disk:
        opened = Store(DataDirectory(disk / "node"), sign_manifest(manifest, OWNER))
        replica = Replica(manifest, opened, in_memory_max=2)

        def go_on() -> None:
            for step in range(replica.ledger.updates, 4_000):
                record = codec.seal(ALICE, step, (1,)).record
                replica.add(record)
                opened.add([record], is_durable=False)

        with pytest.raises(OperatorError, match="the disk is full"):
            go_on()
        held = replica.ledger.updates
        assert [envelope.step for envelope in replica.ledger.slots.envelopes()] == list(range(held))
        assert 20 < held < 4_000
        opened.close()


# --- who may hold it --------------------------------------------------------------------------------------------


def test_store__directory_in_use__is_refused_until_it_is_closed(tmp_path: Path) -> None:
    first = Store(DataDirectory(tmp_path), SIGNED)
    assert DataDirectory(tmp_path).is_locked()
    with pytest.raises(OperatorError, match=r"in use by another sfnode. Stop that one, or use another --data-dir"):
        Store(DataDirectory(tmp_path), SIGNED)
    assert DataDirectory(tmp_path).is_locked()  # the failed attempt did not give back what is not its own
    first.close()
    assert not DataDirectory(tmp_path).is_locked()
    Store(DataDirectory(tmp_path), SIGNED).close()


def test_store__directory_of_another_run__is_refused_and_stays_as_it_was(filled: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(filled, tmp_path / "node")
    with pytest.raises(OperatorError, match=r"belongs to run 'test' .* not to 'test' .*another --data-dir"):
        Store(DataDirectory(directory), OTHER)
    assert not DataDirectory(directory).is_locked()
    assert DataDirectory(directory).signed_manifest() == SIGNED
    assert replayed(directory).ledger.updates == len(RECORDS)


def test_store__directory_mixed_from_two_runs__is_refused(filled: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(filled, tmp_path / "node")
    (directory / MANIFEST_FILE).write_bytes(OTHER.encode())
    with pytest.raises(StorageDamagedError, match=r"the directory was mixed from two.*another --data-dir"):
        Store(DataDirectory(directory), OTHER)


def test_store__path_with_odd_characters__works(tmp_path: Path) -> None:
    odd = tmp_path / "a?b#c%20 d"
    opened = Store(DataDirectory(odd), SIGNED)
    opened.add(RECORDS[:1], is_durable=True)
    opened.close()
    assert records_in(odd) == RECORDS[:1]


# --- damage -----------------------------------------------------------------------------------------------------


def test_store__flipped_byte_in_a_record__is_named_with_what_to_do(filled: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(filled, tmp_path / "node")
    harmed = bytearray((directory / LEDGER_FILE).read_bytes())
    harmed[harmed.index(RECORDS[6]) + len(RECORDS[6]) - 1] ^= 1  # in the signature
    (directory / LEDGER_FILE).write_bytes(harmed)
    with pytest.raises(StorageDamagedError, match=r"ledger.sqlite3 is damaged \(record 7: signature.* start again"):
        replayed(directory)


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("UPDATE facts SET value = 'x1' WHERE name = 'reserved_step'", "reserved_step is 'x1'"),
        ("UPDATE facts SET value = 'ab' WHERE name = 'run_id'", "mixed from two"),
        ("UPDATE records SET record = 'text' WHERE arrival = 3", "after record 2"),
        ("UPDATE records SET record = x'00' WHERE arrival = 3", "record 3: size"),
    ],
)
def test_store__database_changed_by_hand__is_damaged(
    statement: str, complaint: str, filled: Path, tmp_path: Path
) -> None:
    directory = shutil.copytree(filled, tmp_path / "node")
    database = sqlite3.connect(directory / LEDGER_FILE)
    with database:
        database.execute(statement)
    database.close()
    with pytest.raises(StorageDamagedError, match=complaint):
        use_all(directory)


def use_all(directory: Path) -> Replica:
    """Open a directory and read everything that a node reads at its start."""
    opened = Store(DataDirectory(directory), SIGNED)
    try:
        assert opened.reserved_step < 100 and opened.saved("known_peers")
        return replay(Replica(MANIFEST), opened.records(), directory / LEDGER_FILE)
    finally:
        opened.close()


@pytest.mark.parametrize(
    "content", [b"garbage " * 100, bytes(8_192), b"SQLite format 3\0" + bytes(4_080)], ids=["text", "zeros", "header"]
)
def test_store__file_that_is_not_a_database__is_damaged_and_can_be_moved_away(content: bytes, tmp_path: Path) -> None:
    opened = Store(DataDirectory(tmp_path), SIGNED)
    opened.close()
    (tmp_path / LEDGER_FILE).write_bytes(content)
    with pytest.raises(StorageDamagedError, match=r"ledger.sqlite3 is damaged .*Move it away and start again"):
        Store(DataDirectory(tmp_path), SIGNED)
    assert not DataDirectory(tmp_path).is_locked()
    (tmp_path / LEDGER_FILE).rename(tmp_path / "moved")
    reopened = Store(DataDirectory(tmp_path), SIGNED)
    assert list(reopened.records()) == []
    reopened.close()


def test_store__any_truncation_or_flipped_byte__is_harmless_or_reported(filled: Path, tmp_path: Path) -> None:
    """Records as they were, or an error of ours: never another exception, never a wrong record."""
    directory = shutil.copytree(filled, tmp_path / "node")
    good = (directory / LEDGER_FILE).read_bytes()
    chance = random.Random(7)
    reported = 0
    for index in range(300):
        harmed = bytearray(good)
        if index % 3 == 0:
            del harmed[chance.randrange(1, len(good)) :]
        else:
            place = chance.randrange(len(good) if index % 3 == 1 else 600)
            harmed[place] ^= chance.randrange(1, 256)
        for old in directory.glob(f"{LEDGER_FILE}*"):
            old.unlink()
        (directory / LEDGER_FILE).write_bytes(harmed)
        reported += not reads_all_or_fails_well(directory)
    assert 50 < reported < 250


def reads_all_or_fails_well(directory: Path) -> bool:
    try:
        replica = use_all(directory)
    except SfnodeError:
        return False
    assert {envelope.record for envelope in replica.ledger.slots.envelopes()} <= set(RECORDS)
    return True


def store_until_full(opened: Store, stored: list[bytes]) -> None:
    for number in range(10_000):
        record = number.to_bytes(4, "big") * 250
        opened.add([record], is_durable=True)
        stored.append(record)


# --- disks ------------------------------------------------------------------------------------------------------


def test_store__full_disk__loses_nothing_that_was_stored_and_works_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", kilobytes=512) as disk:
        directory = disk / "node"
        opened = Store(DataDirectory(directory), SIGNED)
        stored: list[bytes] = []
        with pytest.raises(OperatorError, match=r"disk is full. Free some space and start again; nothing .* is lost"):
            store_until_full(opened, stored)
        opened.close()
        remount(disk, "size=4m")
        reopened = Store(DataDirectory(directory), SIGNED)
        assert [record for _, record in reopened.records()] == stored
        reopened.add([b"more"], is_durable=True)
        reopened.close()


def test_store__disk_that_was_full_before__says_so_at_the_start(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", kilobytes=256) as disk:
        filler = fill(disk)
        with pytest.raises(OperatorError, match="disk is full"):
            Store(DataDirectory(disk / "node"), SIGNED)
        filler.unlink()
        Store(DataDirectory(disk / "node"), SIGNED).close()


def test_store__read_only_disk__says_so_and_can_still_be_read(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", kilobytes=512) as disk:
        opened = Store(DataDirectory(disk / "node"), SIGNED)
        opened.add(RECORDS, is_durable=True)
        opened.close()
        remount(disk, "ro")
        with pytest.raises(OperatorError, match=r"Read-only file system. Choose another place"):
            Store(DataDirectory(disk / "node"), SIGNED)
        assert replayed(disk / "node").ledger.updates == len(RECORDS)
