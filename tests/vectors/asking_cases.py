"""Vectors of the asking side of anti-entropy (SPEC 8.4.1 to 8.4.6): which requests follow which answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import patch

from protocol import limits
from protocol.crypto.keys import Signer
from protocol.ledger.digest_buckets import bitmap_of, payload_hash, shard_of
from protocol.ledger.envelope import EnvelopeCodec
from protocol.ledger.ledger import Ledger
from protocol.sync.anti_entropy import answer
from protocol.wire import (
    AuthorHoldings,
    Authors,
    Head,
    Payloads,
    PayloadsRequest,
    PullDone,
    PullRequest,
    Records,
    ShardDigest,
    Shards,
    SpanDigest,
    Spans,
    SpansRequest,
    Statements,
)
from tests.support.ledgers import admit, claim, exclude, ledger_of, signer
from tests.support.manifests import small_manifest
from tests.vectors.asking_events import Asking
from tests.vectors.ledger_cases import SPANS
from tests.vectors.notation import Case, Document, document
from tests.vectors.runs import EXAMPLE, record, run, texts
from tests.vectors.sync_answers import INVITED

_FEW = run({"rank": 1}, authors_max=2)
_LARGE = run({"directions": 256, "local_steps": 4, "rank": 1, "epoch_steps": 4}, steps=256, authors_max=4)
_WIDE = small_manifest(steps=30, directions=8)
_RUNS = {"example": EXAMPLE, "spans": SPANS, "invite": INVITED, "few authors": _FEW, "large": _LARGE, "wide": _WIDE}
_AUTHOR = Signer(b"x0".ljust(32, b"."))
_OF_ONE_HASH = [bytes.fromhex("0890318d5fa32f45"), bytes.fromhex("2ef0fe686cec0dcc")]  # found by 2^30 tries
_OTHER = Head(root=bytes(32), state_digest=bytes(32), updates=9, step=9, work_distance=0)
_D16 = b"\x05" * 16


def asking() -> Document:
    """asking.json"""
    groups = (_plain, _statements, _payloads, _bounds, _failures, _refused, _shared, _live)
    about = "The asking side of anti-entropy, without time: SPEC 8.4.1 to 8.4.6"
    return document(about, [made for group in groups for made in group()], manifests=texts(_RUNS))


def _head(ledger: Ledger) -> Head:
    return replace(_OTHER, root=ledger.root(), updates=ledger.updates)


def _compared(asker: Asking, other: Ledger) -> Asking:
    """A whole session with one honest neighbour."""
    return asker.hear(_head(other)).hear_all(other).look()


def _plain() -> Iterator[Case]:
    mine = [record(EXAMPLE, step, 5, author=signer(1)) for step in (0, 1, 20)]
    other = ledger_of(EXAMPLE, [*mine, record(EXAMPLE, 21, 5, author=signer(1))])
    yield _compared(Asking(EXAMPLE, mine), other).case("one slot is missing", "example")
    yield _compared(Asking(EXAMPLE, last_request=(1 << 32) - 3), other).case("all is missing; numbers wrap", "example")
    yield _compared(Asking(EXAMPLE, [*mine, record(EXAMPLE, 22, 5, author=signer(1))]), ledger_of(EXAMPLE, mine)).case(
        "the neighbour holds less: its digest is explained", "example"
    )
    yield _compared(Asking(EXAMPLE, [record(EXAMPLE, 3, 1)]), Ledger(EXAMPLE)).case("the neighbour is empty", "example")
    second = record(EXAMPLE, 20, 6, author=signer(1))
    voided = ledger_of(EXAMPLE, [*mine, second])
    yield _compared(Asking(EXAMPLE, mine), voided).case("void there, and not here", "example")
    yield _compared(Asking(EXAMPLE, [*mine, second]), ledger_of(EXAMPLE, mine)).case(
        "void here, and not there", "example"
    )
    equals = record(EXAMPLE, 0, 5, author=signer(2))
    asker = Asking(EXAMPLE, [*mine, equals])
    other = ledger_of(EXAMPLE, [*mine, equals, record(EXAMPLE, 21, 5, author=signer(1))])
    yield _compared(asker, other).case("another author is equal, in another shard", "example")
    held = [record(SPANS, step, 1, 2, 3) for step in (0, 1_023, 1_026, 2_049)]
    spans = Asking(SPANS, [held[0], held[2]])
    yield _compared(spans, ledger_of(SPANS, held)).case("spans that differ, one after the other", "spans")


def _statements() -> Iterator[Case]:
    said = sorted([admit(INVITED, 1), admit(INVITED, 2), exclude(INVITED, 2, 7), claim(INVITED, 1, 3)])
    other = Ledger(INVITED)
    for statement in said:
        other.add_statement(statement)
    for author, step in ((1, 3), (2, 5), (3, 2)):
        other.add(record(INVITED, step, 3, author=signer(author)))
    yield _compared(Asking(INVITED), other).case("statements first, then the records that they admit", "invite")
    yield _compared(Asking(INVITED, [], said), other).case("statements are held: they are not asked for", "invite")
    mine = [*said, exclude(INVITED, 1, 3)]
    yield _compared(Asking(INVITED, [], mine), other).case("what the own roster excludes is not asked for", "invite")
    empty = Ledger(INVITED)
    yield _compared(Asking(INVITED, [], said), empty).case(
        "the neighbour holds no statement: none are asked for", "invite"
    )
    many = Ledger(INVITED)
    for number in range(129):
        many.add_statement(admit(INVITED, number))
    yield _compared(Asking(INVITED), many).case("statements in two pages", "invite")


def _payloads() -> Iterator[Case]:
    """Bitmaps are equal, digests are not."""
    mine = [record(EXAMPLE, step, 5, author=signer(1)) for step in (0, 1, 20)]
    other = ledger_of(EXAMPLE, [mine[0], record(EXAMPLE, 1, 7, author=signer(1)), mine[2]])
    yield _compared(Asking(EXAMPLE, mine), other).case("another payload in a slot", "example")
    more = Asking(EXAMPLE, [*mine, record(EXAMPLE, 30, 5, author=signer(1))])
    yield _compared(more, other).case("another payload in a slot, and more slots here", "example")
    void = [*mine, record(EXAMPLE, 1, 8, author=signer(1))]
    yield _compared(Asking(EXAMPLE, void), other).case("another payload in a slot that is void here", "example")
    both, alone = [mine[1], void[-1]], ledger_of(EXAMPLE, [mine[1]])
    yield _compared(Asking(EXAMPLE, both), alone).case("no slot counts on both sides: no hashes", "example")
    more = Asking(EXAMPLE, [*void, record(EXAMPLE, 30, 5, author=signer(1))])
    yield _compared(more, ledger_of(EXAMPLE, void)).case("a slot is void on both sides, and more here", "example")
    # Two payloads with one hash: whoever holds one would never ask for the other.
    equal = [EnvelopeCodec(_WIDE).seal(_AUTHOR, 0, tuple(scalars)) for scalars in _OF_ONE_HASH]
    assert payload_hash(equal[0].record) == payload_hash(equal[1].record) == bytes.fromhex("002621f3e76481a0")
    later = [EnvelopeCodec(_WIDE).seal(_AUTHOR, step, (1,) * 8).record for step in (3, 4)]
    there = ledger_of(_WIDE, [equal[1].record, *later])
    twin = EnvelopeCodec(_WIDE).seal(_AUTHOR, 4, (2,) * 8).record
    for name, also in {"": [], ", and a void slot here": [twin]}.items():
        asker = _compared(Asking(_WIDE, [equal[0].record, *later, *also]), there)
        yield asker.case(f"two payloads with one hash{name}", "wide")
    for name, length in {"none": 0, "one too few": 16, "one too many": 32, "half of one more": 28}.items():
        asker = Asking(EXAMPLE, mine).hear(_head(other)).hear_all(other, requests_max=3)
        assert isinstance(asker.asked, PayloadsRequest)
        reply = Payloads(request=4, span=0, author=signer(1).author, hashes=bytes(length))
        asker.hear(reply).look()
        yield asker.case(f"payload hashes, {name}: the session fails", "example")


def _bounds() -> Iterator[Case]:
    """Horizon; slots of one pull: 131072 // (2 x 2156) = 30."""
    other = ledger_of(EXAMPLE, [record(EXAMPLE, step, 5, author=signer(1)) for step in (3, 10, 11, 30)])
    yield _compared(Asking(EXAMPLE, horizon=10), other).case("slots beyond the horizon are not asked for", "example")
    one = ledger_of(EXAMPLE, [record(EXAMPLE, 11, 5, author=signer(1))])
    yield _compared(Asking(EXAMPLE, horizon=10), one).case("nothing within the horizon", "example")
    voided = [record(EXAMPLE, 11, value, author=signer(1)) for value in (5, 6)]
    late = Asking(EXAMPLE, horizon=10)
    yield _compared(late, ledger_of(EXAMPLE, voided)).case("a void slot beyond the horizon", "example")
    held = Asking(EXAMPLE, voided[:1], horizon=10)
    yield _compared(held, ledger_of(EXAMPLE, voided)).case("the same, where one record is held", "example")
    rows = [record(_LARGE, step, *[0] * 1_024) for step in range(0, 4 * 31, 4)]
    asker = Asking(_LARGE)
    asker.hear(_head(ledger_of(_LARGE, rows))).hear_all(ledger_of(_LARGE, rows), requests_max=3)
    assert isinstance(asker.asked, PullRequest)
    yield asker.look().case("30 of 31 slots in the first pull", "large")


def _pull(asker: Asking, other: Ledger) -> PullRequest:
    """Lead a session to its pull."""
    asker.hear(_head(other)).hear_all(other, requests_max=3)
    assert isinstance(asker.asked, PullRequest)
    return asker.asked


def _failures() -> Iterator[Case]:
    steps = (0, 1, 20)
    rows = [record(EXAMPLE, step, 5, author=signer(1)) for step in steps]
    other = ledger_of(EXAMPLE, rows)
    for name, count in {"none": 0, "one": 1, "two": 2}.items():
        asker = Asking(EXAMPLE)
        number = _pull(asker, other).request
        if count:
            asker.hear(Records(request=number, data=b"".join(rows[:count])))
        asker.hear(PullDone(request=number, records=3)).look()
        yield asker.case(f"{name} of three records come: the session fails", "example")
    asker = Asking(EXAMPLE)
    number = _pull(asker, other).request
    asker.hear(Records(request=number, data=rows[0]), Records(request=number, data=rows[1] + rows[2]))
    asker.hear(PullDone(request=number, records=0)).look()
    yield asker.case("records in two messages; the count that is told does not matter", "example")
    asker = Asking(EXAMPLE)
    number = _pull(asker, other).request
    asker.hear(Records(request=0, data=b"".join(rows))).hear(PullDone(request=number, records=3)).look()
    yield asker.case("pushed records answer no pull", "example")
    asker = Asking(EXAMPLE)
    number = _pull(asker, other).request
    asker.hear(Records(request=number - 1, data=b"".join(rows))).hear(PullDone(request=number, records=3)).look()
    yield asker.case("records under another number are kept, and answer no pull", "example")
    spans = ledger_of(SPANS, [record(SPANS, step, 1, 2, 3) for step in (0, 1_026)])
    asker = Asking(SPANS)
    number = _pull(asker, spans).request
    asker.hear(PullDone(request=number, records=0)).look()
    yield asker.case("after too few records no other span is asked for", "spans")


def _spans(number: int, *spans: int, statements: bytes = bytes(16)) -> Spans:
    listed = tuple(SpanDigest(span=span, digest=_D16) for span in spans)
    return Spans(request=number, statements=statements, spans=listed)


def _refused() -> Iterator[Case]:
    """Rules 1 to 3 over a whole session; the single answers are in sync.json."""
    begun = Asking(EXAMPLE).hear(_OTHER, _spans(7, 3), Shards(request=2, span=1, shards=()))
    begun.hear(PullDone(request=9, records=1)).look().hear(_spans(1, 3), Shards(request=1, span=3, shards=()))
    begun.hear(PullDone(request=2, records=1), expect="UNREQUESTED")
    yield begun.case("late answers are passed over, whatever their kind; others are not", "example")
    keys = sorted(signer(number).author for number in range(3))
    entries = [AuthorHoldings(author=key, digest=_D16, valid=bitmap_of([3]), void=bytes(128)) for key in keys]
    shards = Shards(request=2, span=0, shards=(ShardDigest(shard=5, digest=_D16),))
    several = Asking(_FEW).hear(_OTHER, _spans(1, 0), shards)
    for number, entry in enumerate(entries):
        page = Authors(request=3 + 2 * number, span=0, authors=(entry,), is_last=False)
        if number == 2:
            several.hear(page).look()
            break
        row = record(_FEW, 3, 1, author=next(signer(n) for n in range(3) if signer(n).author == entry.author))
        several.hear(page, Records(request=4 + 2 * number, data=row), PullDone(request=4 + 2 * number, records=1))
    yield several.case("more authors over several pages than the run may have: the session fails", "few authors")
    said = sorted(admit(INVITED, number) for number in range(3))
    with patch.multiple(limits, STATEMENTS_MAX=1):
        roster = Asking(INVITED).hear(_OTHER, _spans(1, statements=_D16))
        roster.hear(Statements(request=2, statements=tuple(said[:2]), is_last=False))
        roster.hear(Statements(request=3, statements=(said[2],), is_last=True), expect="UNREQUESTED")
    found = roster.case("more statements over several pages than twice the most that may be held", "invite")
    yield found | {"input": found["input"] | {"statements_max": 1}}
    bad = record(EXAMPLE, 3, 5)
    pulled = Asking(EXAMPLE)
    number = _pull(pulled, ledger_of(EXAMPLE, [bad])).request
    pulled.hear(Records(request=number, data=bad[:-1] + bytes([bad[-1] ^ 1])), expect="SIGNATURE").look()
    yield pulled.case("a pulled record passes the same door", "example")


def _shared() -> Iterator[Case]:
    """Two neighbours hold the same two authors, in shards of their own."""
    rows = [record(EXAMPLE, 3, 5, author=signer(number)) for number in (1, 2)]
    assert len({shard_of(signer(number).author) for number in (1, 2)}) == 2
    first, both = ledger_of(EXAMPLE, rows[:1]), ledger_of(EXAMPLE, rows)
    asker = Asking(EXAMPLE).hear(_head(first)).hear_all(first, requests_max=3)
    pulled = asker.asked
    assert isinstance(pulled, PullRequest)
    asker.hear(_head(both), of="b").hear_all(both, of="b").look()
    asker.hear(*answer(first, pulled)).look()
    yield asker.case("a bucket that one session pulls is skipped by the other, which makes nobody live", "example")
    asker = Asking(EXAMPLE).hear(_head(first)).hear_all(first, requests_max=3).leave("a")
    asker.hear(_head(both), of="b").hear_all(both, of="b").look()
    yield asker.case("what a neighbour that has left was asked for is free again", "example")


def _live() -> Iterator[Case]:
    rows = [record(EXAMPLE, 3, 5, author=signer(1))]
    held = ledger_of(EXAMPLE, rows)
    equal = Asking(EXAMPLE, rows).hear(_head(held)).look()
    equal.hear(_OTHER).look().hear(_OTHER).look()
    yield equal.case("live by an equal head; then a session only when roots differ twice in a row", "example")
    again = Asking(EXAMPLE, rows).hear(_head(held), _OTHER, _head(held), _OTHER).look().hear(_OTHER)
    assert isinstance(again.asked, SpansRequest)
    yield again.case("an equal head between two others starts the count anew", "example")
    asker = Asking(EXAMPLE).hear(_OTHER, _OTHER)
    yield asker.look().case("one session per neighbour", "example")
