"""Signed records and statements, ledgers that hold them, and their archive, without a disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from protocol.crypto.hashing import Author
from protocol.crypto.keys import Signer
from protocol.errors import Ignore, StorageDamagedError
from protocol.ledger.digest_buckets import holdings_in
from protocol.ledger.envelope import EnvelopeCodec
from protocol.ledger.ledger import Ledger
from protocol.ledger.statements import StatementCodec
from protocol.run.manifest import Manifest
from protocol.sync.anti_entropy import Claims, SyncSession, answer
from protocol.wire import AuthorHoldings, Message, Records, Statements, decode_untrusted, encode
from tests.support.manifests import OWNER


@lru_cache(maxsize=512)
def signer(number: int) -> Signer:
    """Author number ``number``."""
    return Signer(b"author" + number.to_bytes(26, "big"))


def seal(manifest: Manifest, author: int, step: int, *scalars: int) -> bytes:
    """A valid record; without scalars some that differ by author and step."""
    chosen = scalars or _made_up(manifest, author, step)
    return EnvelopeCodec(manifest).seal(signer(author), step, chosen).record


def _made_up(manifest: Manifest, author: int, step: int) -> tuple[int, ...]:
    drawn = tuple((author * 7 + step + index) % 100 for index in range(manifest.numbers))
    if not manifest.method.is_dense:
        return drawn
    # Rows, and numbers of -15 ... 15, or of as many bits as there are.
    largest = min(15, manifest.method.clip)
    numbers = (5 * number % (2 * largest + 1) - largest for number in drawn[1:])
    return (1 + drawn[0] % manifest.method.directions, *numbers)


def ledger_of(manifest: Manifest, records: list[bytes]) -> Ledger:
    """A ledger that was given the records in their order; copies and further versions are ignored."""
    ledger = Ledger(manifest)
    for record in records:
        add(ledger, record)
    return ledger


def digest_within(ledger: Ledger, span: int, author: Author, bitmap: bytes) -> bytes:
    """The digest of an author's holdings as if only the slots in the bitmap were held."""
    return ledger.slots.bucket(span, author).digest_within(int.from_bytes(bitmap, "little"))


def holdings_of(ledger: Ledger, span: int, author: Author) -> AuthorHoldings:
    """What a ledger holds of one author in one span, as neighbours hear it."""
    return holdings_in(author, ledger.slots.bucket(span, author))


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
    request = session.advance(None, 1)
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
        request = session.advance(reply, cost.round_trips + 1)  # type: ignore[arg-type]
    return session, cost


def _take(asker: Ledger, session: SyncSession, frame: Message) -> None:
    assert isinstance(frame, Records)
    records = asker.codec.split_untrusted(frame.data)
    session.count_records(records)
    for record in records:
        add(asker, record)


# --- statements


def admit(manifest: Manifest, author: int) -> bytes:
    """The owner admits author number ``author``."""
    return StatementCodec(manifest).admit(OWNER, signer(author).author)


def exclude(manifest: Manifest, author: int, from_step: int, *, by: Signer = OWNER) -> bytes:
    """The owner excludes author number ``author``."""
    return StatementCodec(manifest).exclude(by, signer(author).author, from_step)


def claim(manifest: Manifest, token: int, author: int, *, by: Signer = OWNER, uses: int = 1) -> bytes:
    """Author number ``author`` claims token number ``token``, which is for ``uses`` authors."""
    codec = StatementCodec(manifest)
    return codec.claim(codec.invite(by, b"token".ljust(31, b".") + bytes([token]), uses), signer(author).author)


# --- disks


class MemoryArchive:
    """Records in the order in which they were stored. ``read_back`` counts those that were asked for again."""

    def __init__(self, records: Iterable[bytes] = ()) -> None:
        self.slots: dict[tuple[bytes, int], list[bytes]] = {}
        self.read_back = 0
        self.store(records)

    def store(self, records: Iterable[bytes]) -> None:
        """Append records."""
        for record in records:
            self.slots.setdefault((record[:32], int.from_bytes(record[32:36], "big")), []).append(record)

    def read(self, author: Author, steps: Sequence[int]) -> list[bytes]:
        """As of :class:`protocol.ledger.archived_records.Archive`."""
        found = [record for step in steps for record in self.slots.get((author, step), ())]
        self.read_back += len(found)
        return found

    def read_all(self, author: Author) -> Iterator[bytes]:
        """As of :class:`protocol.ledger.archived_records.Archive`."""
        yield from self.read(author, sorted(step for held, step in list(self.slots) if held == author))

    def damage(self, detail: str) -> StorageDamagedError:
        """As of :class:`protocol.ledger.archived_records.Archive`."""
        return StorageDamagedError(f"the archive is damaged ({detail})")
