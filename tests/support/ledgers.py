"""Signed records and ledgers for tests of the protocol; two ledgers that compare themselves over the wire format."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from protocol.crypto.keys import Signer
from protocol.errors import Ignore
from protocol.ledger.envelope import EnvelopeCodec
from protocol.ledger.ledger import Ledger
from protocol.run.manifest import Manifest
from protocol.sync.anti_entropy import Claims, SyncSession, answer
from protocol.wire import Message, Records, Statements, decode_untrusted, encode


@lru_cache(maxsize=512)
def signer(number: int) -> Signer:
    """Author number ``number``."""
    return Signer(b"author" + number.to_bytes(26, "big"))


def seal(manifest: Manifest, author: int, step: int, *scalars: int) -> bytes:
    """A valid record; without scalars some that differ by author and step."""
    chosen = scalars or tuple((author * 7 + step + index) % 100 for index in range(manifest.method.scalars))
    return EnvelopeCodec(manifest).seal(signer(author), step, chosen).record


def ledger_of(manifest: Manifest, records: list[bytes]) -> Ledger:
    """A ledger that was given the records in their order; copies and further versions are ignored."""
    ledger = Ledger(manifest)
    for record in records:
        add(ledger, record)
    return ledger


def add(ledger: Ledger, record: bytes) -> None:
    """Add a record that may be held already."""
    with suppress(Ignore):
        ledger.add(record)


@dataclass
class Cost:
    """What one session took: round trips, and bytes with their frame headers."""

    round_trips: int = 0
    bytes_asked: int = 0
    bytes_answered: int = 0


def compare(asker: Ledger, other: Ledger, *, horizon_step: int | None = None) -> tuple[SyncSession, Cost]:
    """One whole session, every message through the wire format; the session as it ended, and its cost."""
    session, cost = SyncSession(asker, Claims(), horizon_step), Cost()
    request = session.start(1)
    while request is not None:
        cost.round_trips += 1
        cost.bytes_asked += len(encode(request)) + 4
        payloads = [encode(message) for message in answer(other, request)]
        cost.bytes_answered += sum(len(payload) + 4 for payload in payloads)
        *frames, reply = (decode_untrusted(payload) for payload in payloads)
        for frame in frames:
            _take(asker, session, frame)
        for statement in reply.statements if isinstance(reply, Statements) else ():
            with suppress(Ignore):
                asker.add_statement(statement)
        request = session.receive(reply, cost.round_trips + 1)  # type: ignore[arg-type]
    return session, cost


def _take(asker: Ledger, session: SyncSession, frame: Message) -> None:
    assert isinstance(frame, Records)
    records = asker.codec.split_untrusted(frame.data)
    session.count_records(len(records))
    for record in records:
        add(asker, record)
