"""Log files put together block by block, so that each rule of SPEC 9.4 can be broken alone."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from protocol.crypto.hashing import hash_fields
from protocol.documents.log_file import BASIS, END, MAGIC, MANIFEST, RECORDS, STATEMENTS
from protocol.run.manifest import SignedManifest
from protocol.state.replica import Replica
from tests.support.ledgers import signer

WRITER = signer(77)


class Block(NamedTuple):
    """One block. ``length``: the one that its head tells, if it is not that of the body."""

    kind: int
    body: bytes
    length: int | None = None


class Totals(NamedTuple):
    """What the end says."""

    records: int
    updates: int
    root: bytes
    state: bytes
    writer: bytes


@dataclass(frozen=True, kw_only=True)
class Log:
    """A log file before it is written: ``blocks`` without the end, which follows from ``totals``."""

    blocks: tuple[Block, ...]
    totals: Totals
    sign: Callable[[bytes], bytes] = WRITER.sign  # as the writer
    magic: bytes = MAGIC
    after: bytes = b""
    changed_end: Callable[[bytes], bytes] = field(default=lambda body: body)
    change_check: int | None = None  # the number of a block whose check does not fit

    def without(self, number: int) -> Log:
        """A block less."""
        return replace(self, blocks=self.blocks[:number] + self.blocks[number + 1 :])

    def with_block(self, number: int, block: Block) -> Log:
        """One block more, before that number."""
        return replace(self, blocks=(*self.blocks[:number], block, *self.blocks[number:]))

    def with_body(self, number: int, body: bytes) -> Log:
        """Another body in a block."""
        return self.without(number).with_block(number, Block(self.blocks[number].kind, body))

    def says(self, totals: Totals) -> Log:
        """Other totals at the end."""
        return replace(self, totals=totals)

    def encode(self) -> bytes:
        """The file, every check and the signature at its end in their places."""
        parts, check = [self.magic], bytes(32)
        for number, block in enumerate(self.blocks):
            check = hash_fields("sfnode/log/1", check, bytes([block.kind]), block.body)
            length = len(block.body) if block.length is None else block.length
            shown = bytes(32) if number == self.change_check else check
            parts += [struct.pack(">BI", block.kind, length), block.body, shown]
        told = struct.pack(">QQ32s32s32s", *self.totals)
        body = self.changed_end(told + self.sign(b"sfnode/log-end/1" + check + told))
        check = hash_fields("sfnode/log/1", check, bytes([END]), body)
        return b"".join([*parts, struct.pack(">BI", END, len(body)), body, check, self.after])


def log_of(
    signed: SignedManifest,
    records: list[bytes],
    statements: list[bytes] | None = None,
    *,
    basis: bytes = b"",
) -> Log:
    """The log of these records and statements, which must all count: one block for each kind."""
    replica = Replica(signed.manifest)
    for statement in sorted(statements or []):
        replica.add_statement(statement)
    for record in records:
        replica.add(record)
    held = list(replica.ledger.slots.ordered_records())
    blocks = [
        Block(MANIFEST, signed.encode()),
        Block(BASIS, basis),
        Block(STATEMENTS, b"".join(sorted(statements or []))),
    ]
    blocks.append(Block(RECORDS, b"".join(held)))
    ledger, state = replica.ledger, replica.state_digest()
    totals = Totals(len(held), ledger.updates, ledger.root(), state, WRITER.author)
    return Log(blocks=tuple(block for block in blocks if block.body), totals=totals)
