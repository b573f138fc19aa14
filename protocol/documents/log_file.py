"""A whole run as one file: manifest, basis, statements, every record, and their sum (SPEC 9.4).

A reader of the file needs no network and need not trust its source: manifest, statements and records are signed, the
basis is named by its hash, and the sum follows from them. This module handles bytes only; callers open files.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from protocol import limits
from protocol.crypto import SIGNATURE_BYTES, Author, Signer, hashing, is_author_key, is_signed
from protocol.errors import Ignore, OtherReleaseError, Reject, RejectReason
from protocol.ledger import STATEMENT_KEY_BYTES, Archive
from protocol.run import Manifest, SignedManifest, basis_bytes, decode_run_untrusted
from protocol.state import Replica
from protocol.subspace import basis_file

MAGIC = b"sfnode/log/1" + b"\n\0\0\0"
MANIFEST, BASIS, RECORDS, END, STATEMENTS = 1, 2, 3, 4, 5  # kinds of blocks, in the order 1 2 5 3 4

_HEAD = struct.Struct(">BI")  # kind, length of the body
_CHECK_BYTES = 32
_TOTALS = struct.Struct(">QQ32s32s32s")  # records, updates, ledger root, state digest, writer
_END_BYTES = _TOTALS.size + SIGNATURE_BYTES
_END_TAG = b"sfnode/log-end/1"
_STEP = slice(32, 36)  # of a record, SPEC 6.1

Read = Callable[[int], bytes]  # returns as many bytes as asked for, fewer only at the end of the file


class Keeper(Archive, Protocol):
    """Keeps the records of a log file while it is read. The file may turn out later to be forged."""

    def add(self, records: Iterable[bytes], *, is_durable: bool) -> None:
        """Keep verified records, which come by step and then by bytes; ``is_durable``: return once they are on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """The content of a log file that was read to its end and verified.

    Attributes:
        replica: its records are in the file's keeper, if it has one.
        records: number in the file, with both of each void slot.
        writer: Ed25519 key of the node that wrote the file and vouches that it is complete.
    """

    signed: SignedManifest
    basis: bytes | None
    replica: Replica
    records: int
    writer: Author


def encode_log(signed: SignedManifest, basis: bytes | None, replica: Replica, writer: Signer) -> Iterator[bytes]:
    """Yield the file piece by piece, each at most a block. ``basis``: the checked file of a dense core's basis."""
    assert (basis is not None) == signed.manifest.method.is_dense
    chain = _Chain()
    yield MAGIC
    yield chain.block(MANIFEST, signed.encode())
    for start in range(0, len(basis or b""), limits.LOG_BLOCK_BYTES_MAX):
        yield chain.block(BASIS, (basis or b"")[start : start + limits.LOG_BLOCK_BYTES_MAX])
    statements = replica.ledger.roster.statements()
    for body in _joined(statements, limits.LOG_BLOCK_BYTES_MAX // limits.STATEMENT_BYTES_MAX):
        yield chain.block(STATEMENTS, body)
    records, record_bytes = 0, replica.ledger.codec.record_bytes
    for body in _joined(replica.ledger.slots.ordered_records(), limits.LOG_BLOCK_BYTES_MAX // record_bytes):
        records += len(body) // record_bytes
        yield chain.block(RECORDS, body)
    updates, root = replica.ledger.updates, replica.ledger.root()
    totals = _TOTALS.pack(records, updates, root, replica.state_digest(), writer.author)
    yield chain.block(END, totals + writer.sign(_END_TAG + chain.check + totals))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """One block, with the offset of its body in the file and the check before it."""

    kind: int
    start: int
    body: bytes
    check_before: bytes


class _Chain:
    """Computes the check of each block over all blocks before it, so that none can be left out, moved or replaced."""

    def __init__(self) -> None:
        self.check = bytes(_CHECK_BYTES)

    def block(self, kind: int, body: bytes) -> bytes:
        """Return the bytes of the next block of the file."""
        return _HEAD.pack(kind, len(body)) + body + self.add(kind, body)

    def add(self, kind: int, body: bytes) -> bytes:
        """Return the check of the next block and go on from there."""
        self.check = bytes(hashing.hash_fields("sfnode/log/1", self.check, bytes([kind]), body))
        return self.check


class LogReader:
    """Reads and verifies one log file: its manifest, then the rest.

    Reject: not a log file, or cut off, damaged or forged. The text begins with the offset of the fault.
    """

    def __init__(self, read: Read, on_block: Callable[[int, int], None]) -> None:
        """``on_block``: called after each block of the rest, with the bytes read and the updates held so far."""
        self._read = read
        self._on_block = on_block
        self._offset = 0  # bytes read so far, for the texts of faults
        self._chain = _Chain()
        self._records = 0
        self._last_place = b"", b""
        self._last_key = b""

    def manifest_untrusted(self) -> SignedManifest:
        """Read the manifest, so that the caller can choose what to do with the rest, or leave it."""
        # [REJECT] SPEC 9.4.1: it begins with the magic
        if self._read(len(MAGIC)) != MAGIC:
            raise _fault(0, "this is not a log file: it does not begin as `sfnode log export` writes it")
        self._offset = len(MAGIC)
        block = self._block({MANIFEST: limits.MANIFEST_BYTES_MAX})
        with _at(block.start):
            return decode_run_untrusted(block.body)

    def rest_untrusted(self, signed: SignedManifest, keeper: Keeper | None = None) -> LoadedLog:
        """Read what follows the manifest, and verify every part. With a ``keeper``, records need not stay in memory.

        OtherReleaseError: the basis is the one that the manifest names, and none of this release.
        """
        self._keeper = keeper
        basis = self._basis(signed.manifest)
        replica = Replica(signed.manifest, keeper)
        due = dict.fromkeys((STATEMENTS, RECORDS), limits.LOG_BLOCK_BYTES_MAX) | {END: _END_BYTES}
        while (block := self._block(due)).kind in (STATEMENTS, RECORDS):
            if block.kind == STATEMENTS:
                self._add_statements(replica, block)
            else:
                due.pop(STATEMENTS, None)
                self._add_records(replica, block)
            self._on_block(self._offset, replica.ledger.updates)
        loaded = self._end(signed, basis, replica, block)
        # [REJECT] SPEC 9.4.6: nothing follows
        if self._read(1):
            raise _fault(self._offset, "something follows the end of the log: the file is two in one, or damaged")
        return loaded

    def _block(self, lengths_max: dict[int, int]) -> _Block:
        """Read the next block, which must be of one of these kinds and no longer than its bound."""
        start, before = self._offset, self._chain.check
        kind, length = _HEAD.unpack(self._exactly(_HEAD.size))
        # [REJECT] SPEC 9.4.2: the kind is due here, and the length is within its bound
        if kind not in lengths_max:
            raise _fault(start, f"a block of kind {kind} has no place here")
        if not 0 < length <= lengths_max[kind]:
            raise _fault(start, f"a block of kind {kind} has {length} bytes, allowed are 1 ... {lengths_max[kind]}")
        body = self._exactly(length)
        # [REJECT] SPEC 9.4.3: the check fits
        if self._exactly(_CHECK_BYTES) != self._chain.add(kind, body):
            raise _fault(start, f"the check of the {length} bytes that begin here does not fit: the file is damaged")
        return _Block(kind=kind, start=start + _HEAD.size, body=body, check_before=before)

    def _exactly(self, count: int) -> bytes:
        data = self._read(count)
        self._offset += len(data)
        # [REJECT] SPEC 9.4.2: the block is whole
        if len(data) < count:
            raise _fault(self._offset, "the file ends here, before the end of the log: it was cut off")
        return data

    def _basis(self, manifest: Manifest) -> bytes | None:
        """Read the parts of the basis of a dense core and join them; None with other cores."""
        if not manifest.method.is_dense:
            return None
        start, total = self._offset, basis_bytes(manifest)
        parts, digest = bytearray(), hashlib.sha256()
        try:
            while len(parts) != total:  # a longer one is read to its end, and no block of another kind is due there
                room = limits.BASIS_BYTES_MAX - len(parts)
                parts += (body := self._block({BASIS: min(limits.LOG_BLOCK_BYTES_MAX, room)}).body)
                digest.update(body)
                self._on_block(self._offset, 0)
            with _at(start):
                basis_file.decode_basis_untrusted(manifest, bytes(parts))
        except Reject as reject:
            if digest.hexdigest() != manifest.method.basis_sha256:
                raise
            detail = f"its basis of {len(parts):,} bytes is intact, and none of this release"
            raise OtherReleaseError(reject.reason, detail) from None
        return bytes(parts)

    def _add_statements(self, replica: Replica, block: _Block) -> None:
        with _at(block.start):
            for statement in replica.ledger.roster.codec.split_untrusted(block.body):
                # [REJECT] SPEC 9.4.5: statements ascend
                if (key := statement[:STATEMENT_KEY_BYTES]) < self._last_key:
                    raise Reject(RejectReason.LOG_FORMAT, "a statement is not in its place: they ascend by key")
                self._last_key = key
                with _kept("statement"):
                    replica.add_statement(statement)

    def _add_records(self, replica: Replica, block: _Block) -> None:
        codec, start = replica.ledger.codec, block.start
        with _at(start):
            records = codec.split_untrusted(block.body)
        for index, record in enumerate(records):
            with _at(start + index * codec.record_bytes):
                # [REJECT] SPEC 9.4.5: records ascend
                if (place := (record[_STEP], record)) <= self._last_place:
                    text = "this record is not in its place: they ascend by step and author"
                    raise Reject(RejectReason.LOG_FORMAT, text)
                self._last_place = place
                with _kept("record"):
                    replica.add(record)
        self._records += len(records)
        if self._keeper:
            self._keeper.add(records, is_durable=True)
        replica.coefficients()

    def _end(self, signed: SignedManifest, basis: bytes | None, replica: Replica, block: _Block) -> LoadedLog:
        # [REJECT] SPEC 9.4.2: the end has its one length
        if len(block.body) != _END_BYTES:
            raise _fault(block.start, f"the end of the log has {len(block.body)} bytes instead of {_END_BYTES}")
        totals, signature = block.body[: _TOTALS.size], block.body[_TOTALS.size :]
        records, updates, root, state, writer = _TOTALS.unpack(totals)
        # [REJECT] SPEC 9.4.6: the writer signed
        if not is_author_key(writer) or not is_signed(writer, _END_TAG + block.check_before + totals, signature):
            raise _fault(block.start, "the writer's signature does not fit: the file was changed")
        # [REJECT] SPEC 9.4.6: what the writer says is what the records give
        held = self._records, replica.ledger.updates, bytes(replica.ledger.root()), bytes(replica.state_digest())
        if held != (records, updates, root, state):
            raise _fault(block.start, "the records do not add up to what the writer says of them")
        return LoadedLog(signed=signed, basis=basis, replica=replica, records=records, writer=Author(writer))


@contextmanager
def _kept(what: str) -> Iterator[None]:
    """Refuse what a ledger ignores."""
    try:
        yield
    except Ignore as ignore:
        # [REJECT] SPEC 9.4.5: a log holds nothing that a ledger does not keep
        raise Reject(RejectReason.LOG_FORMAT, f"no ledger keeps this {what}: {ignore.detail}") from None


@contextmanager
def _at(offset: int) -> Iterator[None]:
    """Add the offset in the file to the text of a fault."""
    try:
        yield
    except Reject as reject:
        raise Reject(reject.reason, f"byte {offset:,}: {reject.detail}") from None


def _fault(offset: int, detail: str) -> Reject:
    return Reject(RejectReason.LOG_FORMAT, f"byte {offset:,}: {detail}")


def _joined(records: Iterable[bytes], count: int) -> Iterator[bytes]:
    """Join ``count`` records at a time, end to end."""
    rest = iter(records)
    while body := b"".join(islice(rest, count)):
        yield body
