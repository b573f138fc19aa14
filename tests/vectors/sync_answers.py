"""Answers that no honest neighbour gives to a request, and some that look odd but are fine (SPEC 8.4.1 to 8.4.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from protocol import limits
from protocol.ledger.digest_buckets import bitmap_of
from protocol.ledger.ledger import Ledger
from protocol.sync.anti_entropy import Claims, Reply, Request, SyncSession
from protocol.wire import (
    AuthorHoldings,
    Authors,
    AuthorsRequest,
    Payloads,
    PayloadsRequest,
    PullDone,
    PullRequest,
    ShardDigest,
    Shards,
    ShardsRequest,
    SpanDigest,
    Spans,
    SpansRequest,
    Statements,
    StatementsRequest,
    encode,
)
from tests.support.ledgers import admit, claim, exclude, ledger_of, signer
from tests.vectors.notation import Case, case, judged
from tests.vectors.runs import EXAMPLE, record, run

_D16 = b"\x05" * 16
_KEYS = sorted(signer(number).author for number in range(4))
_FEW = run({"rank": 1}, authors_max=2)
INVITED = run({}, admission={"kind": "invite", "pow_bits": 0}, steps=2_048, authors_max=4)
_BIT, _NONE = bitmap_of([3]), bytes(128)


def checked_answers() -> Iterator[Case]:
    """Every answer under the request that it answers, with its verdict."""
    for group in (_to_spans, _to_shards, _to_authors, _to_payloads, _to_pulls, _to_statements, _of_other_kinds):
        yield from group()


def _checked(
    name: str, before: Sequence[Reply], reply: Reply, reason: str | None, ledger: Ledger | None = None
) -> Case:
    """Lead a session by honest answers to its next request, then give it ``reply``."""
    ledger = ledger or Ledger(EXAMPLE)
    session = SyncSession(ledger, Claims(), None)
    request = session.advance(None, 6)
    for honest in before:
        if isinstance(request, PullRequest):  # of one slot: it brings what was promised
            (slot,) = request.wanted
            step = slot.span * limits.SPAN_STEPS + int.from_bytes(slot.steps, "little").bit_length() - 1
            session.count_records([slot.author + step.to_bytes(4, "big")])
        request = session.advance(honest, 6)
    assert request is not None
    found = judged(lambda: _received(session, reply))
    assert found["reason"] == reason, (name, found)
    # The manifest says which kinds of statements there are
    given: dict[str, Any] = {"manifest": "invite"} if isinstance(request, StatementsRequest) else {}
    messages = {"request": encode(request).hex(), "answer": encode(reply).hex()}
    return case(f"check: {name}", "check_answer", given | messages, found)


def _received(session: SyncSession, reply: Reply) -> dict[str, Any]:
    session.advance(reply, 7)
    return {}


def _spans(*spans: int) -> Spans:
    return Spans(request=6, statements=bytes(16), spans=tuple(SpanDigest(span=span, digest=_D16) for span in spans))


def _shards(*shards: int, span: int = 3) -> Shards:
    return Shards(request=6, span=span, shards=tuple(ShardDigest(shard=shard, digest=_D16) for shard in shards))


def _entry(author: bytes, valid: bytes = _BIT, void: bytes = _NONE) -> AuthorHoldings:
    return AuthorHoldings(author=author, digest=_D16, valid=valid, void=void)


def _authors(*entries: AuthorHoldings, is_last: bool = True, span: int = 3) -> Authors:
    return Authors(request=6, span=span, authors=entries, is_last=is_last)


_BEFORE_AUTHORS: tuple[Reply, ...] = (_spans(3), _shards(5))


def _to_spans() -> Iterator[Case]:
    for name, spans, reason in (
        ("none", (), None),
        ("ascending, with gaps", (0, 3, 1_023), None),
        ("one twice", (3, 3), "UNREQUESTED"),
        ("descending", (3, 1), "UNREQUESTED"),
        ("the last one out of order", (0, 1, 2, 9, 8), "UNREQUESTED"),
    ):
        yield _checked(f"spans, {name}", (), _spans(*spans), reason)


def _to_shards() -> Iterator[Case]:
    before = (_spans(3),)
    for name, reply, reason in (
        ("ascending", _shards(0, 5, 255), None),
        ("none", _shards(), None),
        ("another span", _shards(5, span=4), "UNREQUESTED"),
        ("one twice", _shards(5, 5), "UNREQUESTED"),
        ("descending", _shards(5, 4), "UNREQUESTED"),
    ):
        yield _checked(f"shards, {name}", before, reply, reason)


def _to_authors() -> Iterator[Case]:
    second_page = (*_BEFORE_AUTHORS, _authors(_entry(_KEYS[1]), is_last=False), PullDone(request=6, records=1))
    for name, before, reply, reason in (
        ("ascending", _BEFORE_AUTHORS, _authors(_entry(_KEYS[0]), _entry(_KEYS[1])), None),
        ("an empty last page", _BEFORE_AUTHORS, _authors(), None),
        ("an empty page that is not the last", _BEFORE_AUTHORS, _authors(is_last=False), "UNREQUESTED"),
        ("another span", _BEFORE_AUTHORS, _authors(_entry(_KEYS[0]), span=2), "UNREQUESTED"),
        ("one twice", _BEFORE_AUTHORS, _authors(_entry(_KEYS[0]), _entry(_KEYS[0])), "UNREQUESTED"),
        ("descending", _BEFORE_AUTHORS, _authors(_entry(_KEYS[1]), _entry(_KEYS[0])), "UNREQUESTED"),
        ("the key of zeros is not after the start", _BEFORE_AUTHORS, _authors(_entry(bytes(32))), "UNREQUESTED"),
        ("a key that is no point", _BEFORE_AUTHORS, _authors(_entry(bytes(31) + b"\x02")), None),
        ("after the key asked for", second_page, _authors(_entry(_KEYS[2])), None),
        ("the key asked for again", second_page, _authors(_entry(_KEYS[1])), "UNREQUESTED"),
        ("before the key asked for", second_page, _authors(_entry(_KEYS[0])), "UNREQUESTED"),
        ("no slot", _BEFORE_AUTHORS, _authors(_entry(_KEYS[0], _NONE)), "UNREQUESTED"),
        ("a void slot alone", _BEFORE_AUTHORS, _authors(_entry(_KEYS[0], _NONE, _BIT)), None),
        ("a slot valid and void", _BEFORE_AUTHORS, _authors(_entry(_KEYS[0], _BIT, _BIT)), "UNREQUESTED"),
        ("valid and void slots", _BEFORE_AUTHORS, _authors(_entry(_KEYS[0], _BIT, bitmap_of([4]))), None),
    ):
        yield _checked(f"authors, {name}", before, reply, reason)
    reply = _authors(*map(_entry, _KEYS[:3]))
    yield _checked("authors, three where the run has two", _BEFORE_AUTHORS, reply, None, Ledger(_FEW))


def _to_payloads() -> Iterator[Case]:
    """The asking ledger holds step 3 of span 0, so it asks for the payload."""
    author = signer(0).author
    before = (_spans(0), _shards(5, span=0), _authors(_entry(author), span=0))
    for name, span, other, length, reason in (
        ("as asked", 0, author, 8, None),
        ("none: the session fails, nobody is at fault", 0, author, 0, None),
        ("half a hash: the same", 0, author, 4, None),
        ("another span", 1, author, 8, "UNREQUESTED"),
        ("another author", 0, signer(1).author, 8, "UNREQUESTED"),
    ):
        reply = Payloads(request=6, span=span, author=other, hashes=bytes(length))
        ledger = ledger_of(EXAMPLE, [record(EXAMPLE, 3, 1, author=signer(0))])
        yield _checked(f"payloads, {name}", before, reply, reason, ledger)


def _to_pulls() -> Iterator[Case]:
    before = (*_BEFORE_AUTHORS, _authors(_entry(_KEYS[0])))
    for records in (0, 1, 1_000):
        yield _checked(f"pull, done after {records}", before, PullDone(request=6, records=records), None)


def _to_statements() -> Iterator[Case]:
    """A token claimed twice has two statements of one key, side by side."""
    first, second, third = sorted(admit(INVITED, number) for number in range(3))
    twice = [claim(INVITED, 1, number) for number in (1, 2, 3)]
    shared = [claim(INVITED, 1, number, uses=2) for number in (1, 2, 3, 4)]
    before = (replace(_spans(), statements=_D16),)
    second_page = (*before, Statements(request=6, statements=(first, second), is_last=False))
    last_key = b"\xff" * 33
    for name, asked, statements, is_last, reason in (
        ("ascending", before, (first, second, exclude(INVITED, 0, 7), *twice[:2]), True, None),
        ("none", before, (), True, None),
        ("an empty page that is not the last", before, (), False, "UNREQUESTED"),
        ("descending", before, (second, first), True, "UNREQUESTED"),
        ("the last one out of order", before, (first, twice[0], third), True, "UNREQUESTED"),
        ("the same twice: two of one key", before, (first, first), True, None),
        ("three of one key", before, twice, True, "UNREQUESTED"),
        ("three claims of a token for two", before, shared[:3], True, None),
        ("four claims of a token for two", before, shared, True, "UNREQUESTED"),
        ("two of one key, not side by side", before, (first, second, first), True, "UNREQUESTED"),
        ("after the key asked for", second_page, (third,), True, None),
        ("of the key asked for again", second_page, (second,), True, "UNREQUESTED"),
        ("before the key asked for", second_page, (first, third), True, "UNREQUESTED"),
        ("of no kind", before, (last_key,), True, "STATEMENT_FORMAT"),
        ("a byte short", before, (first[:-1],), True, "STATEMENT_FORMAT"),
        ("an exclusion from beyond the end", before, (exclude(INVITED, 0, 2_048),), True, "STATEMENT_FORMAT"),
    ):
        reply = Statements(request=6, statements=tuple(statements), is_last=is_last)
        yield _checked(f"statements, {name}", asked, reply, reason, Ledger(INVITED))


def _of_other_kinds() -> Iterator[Case]:
    """Each kind of answer to each kind of request."""
    author = signer(0).author
    held = [record(EXAMPLE, 3, 1, author=signer(0))]
    ways: dict[type[Request], tuple[Sequence[Reply], list[bytes]]] = {
        SpansRequest: ((), []),
        ShardsRequest: ((_spans(3),), []),
        AuthorsRequest: (_BEFORE_AUTHORS, []),
        PayloadsRequest: ((_spans(0), _shards(5, span=0), _authors(_entry(author), span=0)), held),
        PullRequest: ((*_BEFORE_AUTHORS, _authors(_entry(_KEYS[0]))), []),
        StatementsRequest: ((replace(_spans(), statements=_D16),), []),
    }
    replies: tuple[Reply, ...] = (
        _spans(),
        _shards(),
        _authors(),
        Payloads(request=6, span=0, author=author, hashes=bytes(8)),
        PullDone(request=6, records=0),
        Statements(request=6, statements=(), is_last=True),
    )
    for place, (asked, (before, records)) in enumerate(ways.items()):
        for index, reply in enumerate(replies):
            name = f"{type(reply).__name__} to {asked.__name__}"
            if index != place:
                ledger = Ledger(INVITED) if asked is StatementsRequest else ledger_of(EXAMPLE, records)
                yield _checked(name, before, reply, "UNREQUESTED", ledger)
