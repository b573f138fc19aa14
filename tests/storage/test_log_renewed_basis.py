"""A run whose basis its owner has renewed, as one file: with every basis that its records need, and no other."""

from __future__ import annotations

import hashlib
from contextlib import closing
from pathlib import Path

import pytest

from protocol import limits
from protocol.documents.log_file import encode_log
from protocol.errors import Reject, RejectReason
from protocol.ledger.statements import StatementCodec
from protocol.run.manifest import checked, sign_manifest
from protocol.state.replica import Replica
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.store import Store
from tests.storage.test_log_export_import import Change, blocks_of, digests, joined, load, make_directory
from tests.support.cli_calls import assert_teaches, call
from tests.support.ledgers import seal, signer
from tests.support.manifests import OWNER, manifest_data, small_manifest
from tests.support.published_runs import basis_for

BASIS, RENEWED_ONE = basis_for(small_manifest()), basis_for(small_manifest(), 8)
SHA256 = hashlib.sha256(RENEWED_ONE).hexdigest()
METHOD = {
    "basis": "published",
    "basis_sha256": hashlib.sha256(BASIS).hexdigest(),
    "basis_unit_exp": 3,
    "basis_max": 8,
}
PLAIN = manifest_data(**METHOD)
EPOCH_STEPS = PLAIN["method"]["epoch_steps"]
SIGNED = sign_manifest(checked(PLAIN | {"steps": 3 * EPOCH_STEPS}), OWNER)
MANIFEST = SIGNED.manifest
RENEWAL = StatementCodec(MANIFEST).renew(OWNER, 1, SHA256)
BEFORE, AFTER = seal(MANIFEST, 1, 2), seal(MANIFEST, 1, EPOCH_STEPS)
KINDS = [1, 2, 5, 3, 6, 4]  # manifest, basis, statements, records, renewed basis, end


def log_of(*records: bytes) -> bytes:
    replica = Replica(MANIFEST)
    replica.add_statement(RENEWAL)
    for record in records:
        replica.add(record)
    return b"".join(encode_log(SIGNED, BASIS, replica, signer(9), {SHA256: RENEWED_ONE}.__getitem__))


def test_log__renewed_basis__travels_in_parts_where_a_record_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [kind for kind, _ in blocks_of(log_of(BEFORE, AFTER))] == KINDS
    without = load(log_of(BEFORE))
    assert without.renewals == {} and without.replica.ledger.roster.statements() == [RENEWAL]
    monkeypatch.setattr(limits, "LOG_BLOCK_BYTES_MAX", 300)
    parts = log_of(BEFORE, AFTER)
    assert [kind for kind, _ in blocks_of(parts)].count(KINDS[4]) == -(-len(RENEWED_ONE) // 300) > 1
    assert load(parts).renewals == {SHA256: RENEWED_ONE}


def test_log__basis_renewed_by_that_of_the_manifest__has_no_block_of_its_own() -> None:
    replica, codec = Replica(MANIFEST), StatementCodec(MANIFEST)
    replica.add_statement(RENEWAL)
    replica.add_statement(codec.renew(OWNER, 2, METHOD["basis_sha256"]))  # type: ignore[arg-type]
    for step in (2, EPOCH_STEPS, 2 * EPOCH_STEPS):
        replica.add(seal(MANIFEST, 1, step))
    data = b"".join(encode_log(SIGNED, BASIS, replica, signer(9), {SHA256: RENEWED_ONE}.__getitem__))
    assert [kind for kind, _ in blocks_of(data)] == KINDS
    assert load(data).renewals == {SHA256: RENEWED_ONE}
    *blocks, end = blocks_of(data)
    with pytest.raises(Reject, match="no statement names"):
        load(joined([*blocks, (6, BASIS), end]))


@pytest.mark.parametrize(
    ("change", "reason", "part"),
    [
        (lambda b: [*b[:4], b[5]], RejectReason.LOG_FORMAT, f"a part of the renewed basis {SHA256[:16]} is missing"),
        (lambda b: [*b[:4], (b[4][0], b[4][1][:-1]), b[5]], RejectReason.LOG_FORMAT, "is missing here"),
        (lambda b: [*b[:4], (b[4][0], b[4][1][:-1] + b"\0"), b[5]], RejectReason.BASIS, "SHA-256"),
        (lambda b: [*b[:4], (b[4][0], b[4][1] + b"\0"), b[5]], RejectReason.BASIS, "SHA-256"),
        (lambda b: [b[0], (b[1][0], b[1][1] + b"\0"), *b[2:]], RejectReason.LOG_FORMAT, "bytes, allowed are"),
        (lambda b: [*b[:2], (5, b[2][1][:50]), (5, b[2][1][50:]), *b[3:]], RejectReason.STATEMENT_FORMAT, "whole"),
        (lambda b: [*b[:5], b[4], b[5]], RejectReason.LOG_FORMAT, "no statement names"),
        (lambda b: [*b[:3], (3, BEFORE), *b[4:]], RejectReason.LOG_FORMAT, "no statement names"),
        (lambda b: [*b[:2], b[3], b[2], *b[4:]], RejectReason.LOG_FORMAT, "has no place here"),
    ],
)  # fmt: skip
def test_log__renewed_bases_that_are_not_those_needed__are_refused_with_the_byte(
    change: Change, reason: RejectReason, part: str
) -> None:
    with pytest.raises(Reject) as caught:
        load(joined(change(blocks_of(log_of(BEFORE, AFTER)))))
    assert caught.value.reason is reason and part in caught.value.detail
    assert caught.value.detail.startswith("byte ")


def test_log_import__run_with_a_renewed_basis__brings_it_along(tmp_path: Path) -> None:
    node, file = make_directory(tmp_path / "node", [BEFORE, AFTER], SIGNED), tmp_path / "x.log"
    with closing(Store(DataDirectory(node), SIGNED)) as store:
        store.add_statements([RENEWAL])
    DataDirectory(node).bases.store(MANIFEST, BASIS, origin="test")
    assert_teaches(call("log", "export", file, "--data-dir", node), "the new one is missing", "start the node")
    held = DataDirectory(node).bases.store(MANIFEST, RENEWED_ONE, origin="test", sha256=SHA256)
    assert call("log", "export", file, "--data-dir", node).code == 0
    assert call("log", "import", file, "--data-dir", tmp_path / "copy").code == 0
    assert DataDirectory(tmp_path / "copy").bases.path_of(MANIFEST, SHA256).read_bytes() == RENEWED_ONE
    assert digests(tmp_path / "copy") == digests(node)
    held.write_bytes(BASIS)
    file.unlink()
    assert_teaches(call("log", "export", file, "--data-dir", node), "is damaged", "start the node")
    assert not file.exists()
