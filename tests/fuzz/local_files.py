"""Targets ``known-peers``, ``status``, ``worker``, ``store``, ``replay``: what a node reads from disk and worker.

These bytes are our own, but disks fail and releases differ: the documented error, or something usable.
"""

from __future__ import annotations

import json
import random
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgpack

from protocol.errors import OperatorError, Reject, StorageDamagedError, WorkerError
from protocol.framing import frame
from protocol.schema import to_plain
from protocol.state.replica import Replica
from sfnode.network import bounds
from sfnode.network.memory_guard import MemoryState
from sfnode.network.policy.address_book import AddressBook, PeerRow
from sfnode.network.policy.addresses import peer_of_author
from sfnode.network.saved_peers import decode_rows, encode_rows
from sfnode.status import ModelProgress, Status, StatusWords, learning, read_status
from sfnode.storage import disk
from sfnode.storage.data_directory import LEDGER_FILE, DataDirectory
from sfnode.storage.stored_records import replay
from sfnode.worker_protocol import messages as worker_messages
from sfnode.worker_protocol.training_config import DeviceOptions, TrainingConfig
from tests.fuzz.catalogue import Target
from tests.fuzz.choices import Choices
from tests.fuzz.verdicts import check_text
from tests.support.ledgers import seal
from tests.support.manifests import small_manifest
from tests.support.statuses import DETAIL, blank, changed

MANIFEST = small_manifest()
OWN = peer_of_author(bytes(32))
FOLDER = Path("folder")


# --- known peers


def check_known_peers(data: bytes) -> None:
    """Rows or none; the book takes them within its bounds and writes them back in a form that can be read again."""
    rows = decode_rows(PeerRow, data.decode("utf-8", "surrogateescape"))
    book = AddressBook(own_peer=OWN, bootstrap=(), chance=random.Random(1))
    book.restore(rows)
    kept = book.rows()
    assert len(kept) <= bounds.KNOWN_PEERS_MAX
    assert all(len(row.addresses) <= bounds.ADDRESSES_PER_PEER_MAX for row in kept)
    assert decode_rows(PeerRow, encode_rows(kept)) == kept
    for peer in book.due(0.0, exclude=frozenset()):
        assert all(address.port and address.peer is None for address in book.addresses(peer))
    book.share(exclude=OWN, connected=frozenset())


def known_peer_seeds() -> Iterator[bytes]:
    """An empty book, one, many, and rows with a fault."""
    row = PeerRow(
        peer=peer_of_author(bytes(31) + b"\1"),
        addresses=("/ip4/192.0.2.1/tcp/1",),
        last_success_unix_ms=5,
        failures=0,
        is_bootstrap=True,
    )
    plain = to_plain(row, as_rows=False)
    yield b"[]"
    yield json.dumps([plain]).encode()
    yield json.dumps([{**plain, "peer": str(number), "failures": number} for number in range(3)]).encode()
    yield json.dumps([{**plain, "peer": OWN}, {**plain, "addresses": ["/a"] * 9, "last_success_unix_ms": -5}]).encode()
    yield b'[{"peer":1}]'
    yield b"{}"
    yield b"[[1,[],1,1,true]]"


# --- status


def check_status(data: bytes) -> None:
    """OperatorError, or a status whose line can be written."""
    with _disk_says(data):
        try:
            status = read_status(DataDirectory(FOLDER))
        except OperatorError:
            return
    StatusWords(status).progress_line.encode()
    learning.describe_learning(status).encode()


@contextmanager
def _disk_says(data: bytes) -> Iterator[None]:
    """A node runs and its status file holds ``data``. Not ``mock.patch``: that takes longer than the check."""
    replaced: tuple[tuple[object, str, object], ...] = (
        (DataDirectory, "check_is_node", None),
        (DataDirectory, "is_locked", True),
        (disk, "read_bytes", data),
    )
    originals = [getattr(owner, name) for owner, name, _ in replaced]
    for owner, name, value in replaced:
        setattr(owner, name, lambda *_, value=value: value)
    try:
        yield
    finally:
        for (owner, name, _), original in zip(replaced, originals, strict=True):
            setattr(owner, name, original)


def status_seeds() -> Iterator[bytes]:
    """A snapshot in the far future (else it is too old by the time of the test), and some that are wrong."""
    model = ModelProgress(stage="fetching", text="fetching", done_bytes=1, total_bytes=2)
    status = changed(
        blank(Status), run="r", run_id="00", author="00", admission="open", loss=0.5, is_admitted=True,
        is_training=True, expects_peers=True, memory=MemoryState(bytes_max=1 << 29), model=model,
        time=1e12, step=3, steps=40, pid=1, peers=1, own_updates=1, updates=1, catching_up=1,
    )  # fmt: skip
    plain = status.to_json()
    detail = changed(status, detail=DETAIL).to_json()["detail"]
    assert isinstance(detail, dict)
    yield json.dumps(plain).encode()
    yield json.dumps({**plain, "catching_up": 5, "loss": None}).encode()
    yield json.dumps({**plain, "time": 5}).encode()
    yield json.dumps({**plain, "time": "5"}).encode()
    yield json.dumps({**plain, "loss": "0.5"}).encode()
    yield json.dumps({**plain, "x": 5}).encode()
    yield json.dumps({**plain, "model": None}).encode()
    yield json.dumps({**plain, "detail": detail}).encode()
    yield json.dumps({**plain, "detail": {**detail, "left_s": 1e300, "steps_per_s": float("nan")}}).encode()
    yield b"{}"
    yield b"[]"


# --- worker


def check_worker(data: bytes) -> None:
    """WorkerError, or a message that is the same after another pass through the frames."""
    _cut_frames(data)
    body = data[4:]
    try:
        message = worker_messages.decode_body(body)
    except WorkerError as error:
        check_text(error)
        return
    frame = worker_messages.encode_frame(message)
    assert _cut_frames(frame) == [frame[4:]]
    again = worker_messages.decode_body(frame[4:])
    assert repr(again) == repr(message)  # repr: a loss that is NaN does not equal itself


def _cut_frames(data: bytes) -> list[bytes]:
    """The bodies that the worker's socket would give, up to the first length out of bounds."""
    parser = worker_messages.MessageParser()
    parser.feed_untrusted(data)
    bodies: list[bytes] = []
    try:
        while (body := parser.next_payload()) is not None:
            assert len(body) <= worker_messages.FRAME_BYTES_MAX
            bodies.append(body)
    except Reject as reject:
        check_text(reject)
    return bodies


def worker_seeds() -> Iterator[bytes]:
    """A message of each kind; and what another release may send: a kind with other fields, and one of another type."""
    messages: tuple[worker_messages.Message, ...] = (
        worker_messages.OpenSession(
            manifest=b"m",
            training=TrainingConfig(
                model="a", data=None, eval_data=Path("b"), devices=DeviceOptions(device="cpu", device_memory=300)
            ),
        ),
        worker_messages.SetCoefficients(epochs=(worker_messages.EpochCoefficients(epoch=1, values=bytes(16)),)),
        worker_messages.EstimateRequest(step=3, seed=2**63, directions=8),
        worker_messages.EvaluateRequest(),
        worker_messages.SessionOpened(device="cpu", dtype="fp32", is_widened=False, data_rows=1, model_parameters=5),
        worker_messages.CoefficientsSet(),
        worker_messages.Estimated(scalars=(5, -5), loss=0.5, rows=2),
        worker_messages.Evaluated(accuracy=0.5, f1=None, loss=0.7, rows=2, predictions=(1,)),
        worker_messages.WorkerFailure(error="WorkerMemoryError", message="text"),
    )
    for message in messages:
        yield worker_messages.encode_frame(message)
    for kind, row in (("EvaluateRequest", [1]), ("EstimateRequest", [3, "seed", 8])):
        yield frame(msgpack.packb([kind, row]))


# --- store


def check_store(data: bytes) -> None:
    """Any bytes as the database: records, or an error that says what to do; what was read is replayed or refused."""
    path = _FOLDER_PATH / LEDGER_FILE
    path.write_bytes(data)
    for suffix in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    try:
        with DataDirectory(_FOLDER_PATH).replayed(MANIFEST):
            pass
    except (OperatorError, StorageDamagedError) as error:
        check_text(error, str(path))


_FOLDER = tempfile.TemporaryDirectory(prefix="sfnode-fuzz-store-", ignore_cleanup_errors=True)
_FOLDER_PATH = Path(_FOLDER.name)


def store_seeds() -> Iterator[bytes]:
    """A small database with two records, and an empty one."""
    yield _database([seal(MANIFEST, 0, 0), seal(MANIFEST, 1, 0)])
    yield _database([])
    yield b""


def _database(records: list[bytes]) -> bytes:
    path = _FOLDER_PATH / "seed.sqlite3"
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path)
    try:
        database.execute("PRAGMA page_size = 512")
        database.execute("CREATE TABLE records (arrival INTEGER PRIMARY KEY AUTOINCREMENT, record BLOB NOT NULL)")
        database.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        database.executemany("INSERT INTO records (record) VALUES (?)", [(record,) for record in records])
        database.commit()
    finally:
        database.close()
    return path.read_bytes()


def check_replay(data: bytes) -> None:
    """Stored bytes go through the one door: StorageDamagedError names the first bad record, copies are passed over."""
    choices = Choices(data)
    pool = [*_POOL, choices.changed(choices.pick(_POOL))]
    records = [choices.pick(pool) for _ in range(choices.below(5))]
    replica = Replica(MANIFEST)
    is_good, is_refused = all(record in _POOL for record in records), False
    try:
        replay(replica, list(enumerate(records)), FOLDER)
    except StorageDamagedError as error:
        check_text(error, str(FOLDER))
        is_refused = True
    assert not (is_good and is_refused)
    if is_refused:
        return
    good = {record for record in records if record in _POOL}
    assert {envelope.record for envelope in replica.ledger.slots.envelopes()} <= set(_POOL)
    assert not is_good or replica.ledger.updates == len(good)


_POOL = tuple(seal(MANIFEST, author, 3) for author in range(3))


def replay_seeds() -> Iterator[bytes]:
    """Good records, copies, and each kind of fault."""
    for how in range(4):
        yield bytes([0, how, 100, 7, 3, 0, 1, 2, 3])
    yield bytes([0, 0, 0, _POOL[0][0], 4, 3, 3, 1, 1])


TARGETS = {
    "known-peers": Target(check=check_known_peers, seeds=known_peer_seeds),
    "status": Target(check=check_status, seeds=status_seeds),
    "worker": Target(check=check_worker, seeds=worker_seeds),
    "store": Target(check=check_store, seeds=store_seeds),
    "replay": Target(check=check_replay, seeds=replay_seeds),
}
