"""A run as one file: what goes in comes out, whatever is wrong is named by its byte, and nothing is done by halves."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from protocol import limits
from protocol.crypto.hashing import hash_fields
from protocol.documents.log_file import MAGIC, LoadedLog, LogReader, encode_log
from protocol.errors import Reject, RejectReason
from protocol.run.manifest import SignedManifest, sign_manifest
from protocol.state.replica import Replica
from sfnode.storage.data_directory import LEDGER_FILE, DataDirectory
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.storage.record_store import Store
from sfnode.storage.stored_basis import BASIS_FILE
from sfnode.storage.stored_records import replay
from tests.support.cli_calls import assert_teaches, call
from tests.support.daemons import MODEL
from tests.support.dense_runs import with_basis
from tests.support.ledgers import seal, signer
from tests.support.manifests import OWNER, small_manifest
from tests.support.small_disk import fill, small_disk

MANIFEST = small_manifest()
SIGNED = sign_manifest(MANIFEST, OWNER)
RECORDS = [seal(MANIFEST, author, step) for step in range(20) for author in range(3)]
PROOF = seal(MANIFEST, 1, 7, 99)  # a second payload: the slot is void
HEAD_BYTES, CHECK_BYTES = 5, 32


def make_directory(directory: Path, records: list[bytes], signed: SignedManifest = SIGNED) -> Path:
    """The data directory of a node that has stopped."""
    with closing(Store(DataDirectory(directory), signed)) as store:
        store.add(records, is_durable=True)
    KeyFile(directory / IDENTITY_FILE).made_seed()
    return directory


def digests(directory: Path) -> tuple[str, str, int]:
    """Ledger root, state digest and void slots, replayed from the disk."""
    told = json.loads(call("log", "verify", directory, "--json").stdout)
    return told["ledger_root"], told["state_digest"], told["void_slots"]


def log_of(records: list[bytes], signed: SignedManifest = SIGNED, basis: bytes | None = None) -> bytes:
    replica = replay(Replica(signed.manifest), enumerate(records), Path("memory"))
    return b"".join(encode_log(signed, basis, replica, signer(9)))


def load(data: bytes) -> LoadedLog:
    reader = LogReader(io.BytesIO(data).read, lambda done, updates: None)
    return reader.rest_untrusted(reader.manifest_untrusted())


def blocks_of(data: bytes) -> list[tuple[int, bytes]]:
    """(kind, body) of every block."""
    found, at = [], len(MAGIC)
    while at < len(data):
        kind, length = data[at], int.from_bytes(data[at + 1 : at + HEAD_BYTES], "big")
        found.append((kind, data[at + HEAD_BYTES : at + HEAD_BYTES + length]))
        at += HEAD_BYTES + length + CHECK_BYTES
    return found


def joined(blocks: list[tuple[int, bytes]]) -> bytes:
    """A log file of these blocks with the right checks, by hand from SPEC 9.4."""
    data, check = MAGIC, bytes(32)
    for kind, body in blocks:
        check = bytes(hash_fields("sfnode/log/1", check, bytes([kind]), body))
        data += bytes([kind]) + len(body).to_bytes(4, "big") + body + check
    return data


Change = Callable[[list[tuple[int, bytes]]], list[tuple[int, bytes]]]
GOOD = log_of([*RECORDS, PROOF])


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return make_directory(tmp_path / "node", [*RECORDS, PROOF])


# --- the format -------------------------------------------------------------------------------------------------


def test_log__encoded_and_loaded__holds_the_same_set_proofs_included() -> None:
    loaded = load(GOOD)
    assert loaded.signed.encode() == SIGNED.encode() and loaded.basis is None
    assert (loaded.records, loaded.replica.ledger.updates, loaded.replica.ledger.void_slots) == (61, 59, 1)
    assert set(loaded.replica.ledger.slots.ordered_records()) == {*RECORDS, PROOF}
    assert loaded.writer == signer(9).author
    assert joined(blocks_of(GOOD)) == GOOD


def test_log__other_order_of_arrival__gives_the_same_file() -> None:
    assert log_of([PROOF, *reversed(RECORDS)]) == GOOD
    assert log_of(RECORDS) != GOOD
    assert load(log_of([])).records == 0


def test_log__long_ledger__comes_in_blocks_of_bounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOG_BLOCK_BYTES_MAX", 1_000)
    data = log_of(RECORDS)
    kinds = [kind for kind, _ in blocks_of(data)]
    assert kinds == [1, *[3] * 7, 4]
    assert load(data).replica.ledger.updates == 60


@pytest.mark.parametrize("length", [0, 1, 15, 16, 18, 400, len(GOOD) - 300, len(GOOD) - 1])
def test_log__cut_off__says_where(length: int) -> None:
    with pytest.raises(Reject) as caught:
        load(GOOD[:length])
    assert caught.value.reason is RejectReason.LOG_FORMAT
    assert caught.value.detail.startswith(f"byte {length if length >= 16 else 0:,}: ")


def test_log__any_byte_flipped__is_refused_at_or_before_it() -> None:
    for at in range(0, len(GOOD), 37):
        bad = GOOD[:at] + bytes([GOOD[at] ^ 0x10]) + GOOD[at + 1 :]
        with pytest.raises(Reject) as caught:
            load(bad)
        where = int(caught.value.detail.partition(":")[0].removeprefix("byte ").replace(",", ""))
        is_length = where == len(bad)  # a length that grew: the file seems to end too early
        assert where <= at or is_length, (at, caught.value)


def swapped(blocks: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    width = len(RECORDS[0])
    body = blocks[1][1]
    return [blocks[0], (3, body[width : 2 * width] + body[:width] + body[2 * width :]), blocks[2]]


def shortened(blocks: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return [blocks[0], (3, blocks[1][1][: -len(RECORDS[0])]), blocks[2]]


@pytest.mark.parametrize(
    ("change", "reason", "part"),
    [
        (swapped, RejectReason.LOG_FORMAT, "not in its place"),
        (shortened, RejectReason.LOG_FORMAT, "signature does not fit"),
        (lambda b: [*b, b[2]], RejectReason.LOG_FORMAT, "follows the end"),
        (lambda b: b[1:], RejectReason.LOG_FORMAT, "kind 3 has no place"),
        (lambda b: [b[0], *b], RejectReason.LOG_FORMAT, "kind 1 has no place"),
        (lambda b: [b[0], (2, b"basis"), *b[1:]], RejectReason.LOG_FORMAT, "kind 2 has no place"),
        (lambda b: [b[0], (3, b[1][1][:-1]), b[2]], RejectReason.SIZE, "whole number"),
        (lambda b: [b[0], (3, b""), *b[1:]], RejectReason.LOG_FORMAT, "0 bytes"),
        (lambda b: [b[0], (3, bytes((1 << 20) + 1)), b[2]], RejectReason.LOG_FORMAT, "1048577 bytes"),
        (lambda b: [b[0], b[1], (4, b[2][1][:-1])], RejectReason.LOG_FORMAT, "instead of 176"),
        (lambda b: [b[0], b[1], (4, bytes(176))], RejectReason.LOG_FORMAT, "signature does not fit"),
        (lambda b: [(1, b[0][1][:-5]), *b[1:]], RejectReason.MANIFEST_FORMAT, "not a run file"),
    ],
)  # fmt: skip
def test_log__blocks_that_do_not_fit__are_refused_with_the_byte(
    change: Change, reason: RejectReason, part: str
) -> None:
    with pytest.raises(Reject) as caught:
        load(joined(change(blocks_of(GOOD))))
    assert caught.value.reason is reason and part in caught.value.detail
    assert caught.value.detail.startswith("byte ")


def test_log__forged_record__is_named_by_its_own_byte() -> None:
    first, records, end = blocks_of(GOOD)
    width = len(RECORDS[0])
    forged = records[1][: 4 * width - 1] + bytes([records[1][4 * width - 1] ^ 1]) + records[1][4 * width :]
    with pytest.raises(Reject) as caught:
        load(joined([first, (3, forged), end]))
    at = len(MAGIC) + 2 * HEAD_BYTES + len(first[1]) + CHECK_BYTES + 3 * width
    assert caught.value.reason is RejectReason.SIGNATURE
    assert caught.value.detail.startswith(f"byte {at:,}: step 1 of ")


def test_log__several_faults__the_first_block_is_judged_whole_before_the_second_is_looked_at() -> None:
    first, (_, body), end = blocks_of(GOOD)
    width = len(RECORDS[0])
    forged = body[: width - 1] + bytes([body[width - 1] ^ 1])
    in_two = bytearray(joined([first, (3, forged), (3, body[width:]), end]))
    in_two[len(joined([first, (3, forged), (3, body[width:])])) - 1] ^= 1  # in the check of the second
    for data, reason in (
        (bytes(in_two), RejectReason.SIGNATURE),
        (joined([first, (3, body[:width] + forged), end]), RejectReason.LOG_FORMAT),  # and it does not ascend
        (joined([first, (3, forged + body[width : width + 9]), end]), RejectReason.SIZE),  # and the second is cut
    ):
        with pytest.raises(Reject) as caught:
            load(data)
        assert caught.value.reason is reason


def test_log__third_version_of_a_slot__is_refused() -> None:
    """A ledger keeps two: a file with more was not written by one."""
    replica = replay(Replica(MANIFEST), enumerate([RECORDS[0], seal(MANIFEST, 0, 0, 5)]), Path("memory"))
    blocks = blocks_of(b"".join(encode_log(SIGNED, None, replica, signer(9))))
    versions = sorted([RECORDS[0], seal(MANIFEST, 0, 0, 5), seal(MANIFEST, 0, 0, 6)])
    with pytest.raises(Reject, match="no ledger keeps this record"):
        load(joined([blocks[0], (3, b"".join(versions)), blocks[2]]))


def test_log__totals_that_the_writer_made_up__are_refused() -> None:
    replica = replay(Replica(MANIFEST), enumerate(RECORDS), Path("memory"))
    replica.ledger.updates += 1
    with pytest.raises(Reject, match="do not add up"):
        load(b"".join(encode_log(SIGNED, None, replica, signer(9))))


# --- a dense core ------------------------------------------------------------------------------------------------


def dense_run() -> tuple[SignedManifest, bytes]:
    manifest, basis = with_basis(MANIFEST)
    return sign_manifest(manifest, OWNER), basis


def test_log__basis_of_a_dense_core__travels_in_parts_and_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    signed, basis = dense_run()
    monkeypatch.setattr(limits, "LOG_BLOCK_BYTES_MAX", 150)
    data = log_of([seal(signed.manifest, 1, 2)], signed, basis)
    assert [kind for kind, _ in blocks_of(data)] == [1, *[2] * -(-len(basis) // 150), 3, 4] and len(basis) > 150
    assert load(data).basis == basis
    first, part, *rest = blocks_of(data)
    with pytest.raises(Reject) as caught:
        load(joined([first, (2, part[1][:-1] + bytes([part[1][-1] ^ 1])), *rest]))
    assert caught.value.reason is RejectReason.BASIS
    with pytest.raises(Reject, match="kind 3 has no place"):
        load(joined([first, *rest[-2:]]))
    with pytest.raises(Reject, match="kind 3 has no place"):
        load(joined([first, part, *rest[:-3], (2, rest[-3][1] + b"x"), *rest[-2:]]))
    with pytest.raises(Reject, match="kind 6 has no place"):
        load(joined([first, part, *rest[:-1], (6, basis), rest[-1]]))


def test_log_import__run_with_a_dense_core__brings_the_basis_along(tmp_path: Path) -> None:
    signed, basis = dense_run()
    node = make_directory(tmp_path / "node", [seal(signed.manifest, 1, 2)], signed)
    assert_teaches(call("log", "export", tmp_path / "x.log", "--data-dir", node), "published basis", "--basis")
    held = DataDirectory(node).basis.store(signed.manifest, basis, origin="test")
    assert call("log", "export", tmp_path / "x.log", "--data-dir", node).code == 0
    assert call("log", "import", tmp_path / "x.log", "--data-dir", tmp_path / "copy").code == 0
    assert (tmp_path / "copy" / BASIS_FILE).read_bytes() == basis
    assert digests(tmp_path / "copy") == digests(node)
    held.write_bytes(basis[:-1])
    assert_teaches(call("log", "export", tmp_path / "y.log", "--data-dir", node), "is not the run's basis", "again")
    assert not (tmp_path / "y.log").exists()


# --- data directories -------------------------------------------------------------------------------------------


def test_log_import__new_directory__equals_the_exporters(node: Path, tmp_path: Path) -> None:
    written = json.loads(call("log", "export", tmp_path / "x.log", "--data-dir", node, "--json").stdout)
    told = json.loads(call("log", "import", tmp_path / "x.log", "--data-dir", tmp_path / "copy", "--json").stdout)
    assert (told["records"], told["added"], told["updates"], told["void_slots"]) == (61, 61, 59, 1)
    assert written["state_digest"] == told["state_digest"] and written["bytes"] == (tmp_path / "x.log").stat().st_size
    assert digests(tmp_path / "copy") == digests(node) == (told["ledger_root"], told["state_digest"], 1)
    assert {path.name for path in tmp_path.iterdir()} == {"node", "copy", "x.log"}
    assert not (tmp_path / "copy" / IDENTITY_FILE).exists()  # a key must not be copied
    text = call("log", "import", tmp_path / "x.log", "--data-dir", tmp_path / "copy")
    assert "0 of 61 records were new" in text.stdout and told["state_digest"] in text.stdout


def test_log_import__directory_of_the_same_run__becomes_the_union(node: Path, tmp_path: Path) -> None:
    other = make_directory(tmp_path / "other", [*RECORDS[:9], seal(MANIFEST, 5, 3)])
    assert call("log", "export", tmp_path / "x.log", "--data-dir", other).code == 0
    told = json.loads(call("log", "import", tmp_path / "x.log", "--data-dir", node, "--json").stdout)
    assert (told["added"], told["updates"]) == (1, 60)
    assert call("log", "export", tmp_path / "y.log", "--data-dir", node).code == 0
    assert call("log", "import", tmp_path / "y.log", "--data-dir", other).code == 0
    assert digests(other) == digests(node)


def test_log_import__full_author_table__says_how_many_have_no_place(tmp_path: Path) -> None:
    small = sign_manifest(small_manifest(authors_max=2), OWNER)
    one, two = ([seal(small.manifest, author, 0) for author in pair] for pair in ((1, 2), (2, 3)))
    first, second = make_directory(tmp_path / "one", one, small), make_directory(tmp_path / "two", two, small)
    assert call("log", "export", tmp_path / "x.log", "--data-dir", second).code == 0
    outcome = call("log", "import", tmp_path / "x.log", "--data-dir", first)
    assert "0 of 2 records were new; 1 found no room" in outcome.stdout


def test_log_import__folder_with_nothing_or_a_key_only__is_filled_and_keeps_the_key(node: Path, tmp_path: Path) -> None:
    assert call("log", "export", tmp_path / "x.log", "--data-dir", node).code == 0
    key = tmp_path / "copy" / IDENTITY_FILE
    seed = KeyFile(key).made_seed()
    assert call("log", "import", tmp_path / "x.log", "--data-dir", tmp_path / "copy").code == 0
    assert KeyFile(key).made_seed() == seed and digests(tmp_path / "copy") == digests(node)
    (tmp_path / "empty").mkdir()
    assert call("log", "import", tmp_path / "x.log", "--data-dir", tmp_path / "empty").code == 0
    assert digests(tmp_path / "empty") == digests(node)


def test_log_import__without_data_dir__goes_below_the_home(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert call("log", "export", tmp_path / "x.log", "--data-dir", node).code == 0
    told = json.loads(call("log", "import", tmp_path / "x.log", "--json").stdout)
    assert told["data_dir"] == str(tmp_path / "home" / ".sfnode" / f"test-{MANIFEST.run_id.hex()[:12]}")
    assert digests(Path(told["data_dir"])) == digests(node)


def test_log_export__while_a_daemon_holds_the_directory__works(node: Path, tmp_path: Path) -> None:
    with closing(Store(DataDirectory(node), SIGNED)):
        assert call("log", "export", tmp_path / "x.log", "--data-dir", node).code == 0
        outcome = call("log", "import", tmp_path / "x.log", "--data-dir", node)
        assert_teaches(outcome, str(node), "in use by another sfnode", "Stop that one")


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (b"", ("byte 0", "not a log file")),
        (SIGNED.encode(), ("byte 0", "not a log file", "`sfnode log export`")),
        (GOOD[:-1], (f"byte {len(GOOD) - 1:,}", "cut off", "Nothing was changed", "Get the file again")),
        (GOOD + b"\0", (f"byte {len(GOOD):,}", "follows the end")),
        (GOOD[:2_000] + b"\xff" + GOOD[2_001:], ("byte ", "check", "damaged")),
        (GOOD[:16] + b"\1\xff\xff\xff\xff" + GOOD[21:], ("byte 16", "4294967295 bytes", "1048576")),
    ],
)
def test_log_import__bad_file__says_where_and_changes_nothing(
    data: bytes, parts: tuple[str, ...], node: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.log"
    bad.write_bytes(data)
    before, content = digests(node), (node / LEDGER_FILE).read_bytes()
    for directory in (tmp_path / "copy", node):
        assert_teaches(call("log", "import", bad, "--data-dir", directory), str(bad), *parts)
    assert {path.name for path in tmp_path.iterdir()} == {"node", "bad.log"}
    assert digests(node) == before and (node / LEDGER_FILE).read_bytes() == content


def test_log_import__wrong_place__says_so_before_reading_on(node: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.log"
    cut.write_bytes(GOOD[:3_000])  # its manifest is whole: what is said concerns the place, not the end
    other = make_directory(tmp_path / "other", [], sign_manifest(small_manifest(steps=80), OWNER))
    assert_teaches(call("log", "import", cut, "--data-dir", other), str(other), "belongs to run", "another --data-dir")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("")
    outcome = call("log", "import", cut, "--data-dir", tmp_path / "photos")
    assert_teaches(outcome, "photos", "'cat.jpg'", "another --data-dir")
    assert_teaches(call("log", "import", tmp_path / "none", "--data-dir", node), "cannot read the log file", "none")


def test_log_export__wrong_use__says_what_to_do(node: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.log"
    assert_teaches(call("log", "export", out, "--data-dir", tmp_path), "not a node's data directory", "manifest.run")
    (node / IDENTITY_FILE).unlink()
    assert_teaches(call("log", "export", out, "--data-dir", node), IDENTITY_FILE, "sfnode id new")
    key = tmp_path / "other.key"
    KeyFile(key).made_seed()
    assert call("log", "export", out, "--data-dir", node, "--key", key).code == 0
    before = out.read_bytes()
    assert_teaches(call("log", "export", out, "--data-dir", node, "--key", key), str(out), "exists")
    assert out.read_bytes() == before


def test_log_export__damaged_record_on_the_disk__writes_nothing(node: Path, tmp_path: Path) -> None:
    with closing(Store(DataDirectory(node), SIGNED)) as store:
        store.add([RECORDS[0][:-1] + b"\0"], is_durable=True)
        store.add([seal(MANIFEST, 4, 4)[:-1] + b"\0"], is_durable=True)
    assert_teaches(call("log", "export", tmp_path / "x.log", "--data-dir", node), str(node / LEDGER_FILE), "damaged")
    assert {path.name for path in tmp_path.iterdir()} == {"node"}


def test_log__disk_that_is_full__leaves_neither_file_nor_directory(node: Path, tmp_path: Path) -> None:
    assert call("log", "export", tmp_path / "x.log", "--data-dir", node).code == 0
    with small_disk(tmp_path / "disk", kilobytes=256) as disk:
        filler = fill(disk)
        assert_teaches(call("log", "import", tmp_path / "x.log", "--data-dir", disk / "copy"), "disk is full")
        assert_teaches(call("log", "export", disk / "x.log", "--data-dir", node), "disk is full", str(disk))
        assert list(disk.iterdir()) == [filler]
        filler.unlink()
        assert call("log", "import", tmp_path / "x.log", "--data-dir", disk / "copy").code == 0
        assert digests(disk / "copy") == digests(node)


# --- the model --------------------------------------------------------------------------------------------------


def test_log_import__machine_with_the_model_only__evaluates_and_exports_the_same_bits(tmp_path: Path) -> None:
    run, node, copy = tmp_path / "a.run", tmp_path / "node", tmp_path / "copy"
    task = ("--model", MODEL, "--task", "embedded:reviews", "--steps", 6, "--admission", "open", "--plain")
    assert call("init", *task, "--out", run).code == 0
    assert call("join", "--run", run, "--data-dir", node, "--exit-when-finished", "--threads", 1).code == 0
    assert call("log", "export", tmp_path / "x.log", "--data-dir", node).code == 0
    assert call("log", "import", tmp_path / "x.log", "--data-dir", copy).code == 0
    assert digests(copy) == digests(node)
    evaluated = [json.loads(call("eval", "--data-dir", each, "--json").stdout) for each in (node, copy)]
    assert evaluated[0] == evaluated[1]
    for each in (node, copy):
        assert call("export", "--data-dir", each, "--out", tmp_path / f"{each.name}-model").code == 0
    weights = [(tmp_path / f"{each.name}-model" / "model.safetensors").read_bytes() for each in (node, copy)]
    assert weights[0] == weights[1]
