"""Traces of anti-entropy (SPEC 8.4): sessions from their first request to being live, retries, sharing, and liars."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from protocol.crypto import Author
from protocol.ledger.digest_buckets import bitmap_of, shard_of
from protocol.sync.anti_entropy import answer
from protocol.wire import (
    Authors,
    AuthorsRequest,
    Payloads,
    PayloadsRequest,
    PullDone,
    PullRequest,
    Records,
    ShardsRequest,
    Spans,
    SpansRequest,
    StatementsRequest,
    WantedSlots,
)
from tests.support.ledgers import ledger_of, seal, signer
from tests.vectors.notation import Document
from tests.vectors.runs import DENSE, EXAMPLE, run
from tests.vectors.trace_files import traces
from tests.vectors.trace_recorder import Story, X, Y, Z, head_of

LONG = run({"rank": 2, "epoch_steps": 512, "clip": 99}, steps=4_096)
FEW = run({}, authors_max=3)
_MANIFESTS = {"example": EXAMPLE, "long": LONG, "few": FEW, "dense": DENSE}


def anti_entropy() -> Document:
    """traces_sync.json"""
    return traces("Anti-entropy: SPEC 8.4", _stories, _MANIFESTS)


def _stories() -> Iterator[Story]:
    yield from _sessions()
    yield from _payloads()
    yield from _times()
    yield from _several()
    yield from _liars()
    yield from _answers()
    yield from _counted_anew()
    yield from _shared()
    yield from _counted()
    yield from _misread()


def relay(name: str, *, held: tuple[bytes, ...] = (), is_live: bool = False, first_request: int = 100) -> Story:
    """A relay of the example run with two neighbours."""
    told = Story(name, EXAMPLE, held=held, is_training=False, first_request=first_request).tick(0).join(10, X, Y)
    return told.same(20, X) if is_live else told


# --- whole sessions


def _sessions() -> Iterator[Story]:
    held = (seal(LONG, 1, 5), seal(LONG, 1, 1_030), seal(LONG, 2, 2_050))
    told = Story("only what differs is asked for: spans, shards, authors, slots", LONG, held=held, is_training=False)
    more = [seal(LONG, 1, 1_031), seal(LONG, 3, 1_040), seal(LONG, 2, 2_049), seal(LONG, 4, 4_000)]
    yield told.tick(0).join(10, X, Y).catch_up(30, X, ledger_of(LONG, [*held, *more])).tick(80)

    rows = {author: [seal(DENSE, author, step, 4, *[author - step] * 8) for step in range(4)] for author in (1, 2)}
    second = seal(DENSE, 2, 1, 1, *[7] * 8)
    told = Story("dense cores: what is missing, and a void slot", DENSE, held=rows[1][:2] + rows[2], is_training=False)
    yield told.tick(0).join(10, X, Y).catch_up(30, X, ledger_of(DENSE, [*rows[1], *rows[2], second])).ticks(80, 2_100)

    told = relay("authors come in pages", held=(seal(EXAMPLE, 2, 0),))
    full = ledger_of(EXAMPLE, [seal(EXAMPLE, author, 0) for author in range(5)])
    with told.limited(AUTHORS_PER_PAGE_MAX=2):
        told.catch_up(30, X, full)
    yield told

    told = relay("a pull asks for as many slots as fit if all are void")
    full = ledger_of(EXAMPLE, [seal(EXAMPLE, author, step) for author in (1, 2) for step in range(3)])
    with told.limited(PULL_BYTES_MAX=500):
        told.catch_up(30, X, full)
    yield told

    told = relay("live: another root twice in a row begins a session, once does not", is_live=True)
    full = ledger_of(EXAMPLE, [seal(EXAMPLE, 1, 0)])
    told.tell(2_000, X, head_of(full)).same(4_000, X).tell(6_000, X, head_of(full))
    yield told.catch_up(8_000, X, full)

    told = relay("after the number 4,294,967,295 comes 1", first_request=0xFFFF_FFFD)
    yield told.catch_up(30, X, ledger_of(EXAMPLE, [seal(EXAMPLE, 1, 0)]))


# --- different payloads, void slots


def _payloads() -> Iterator[Story]:
    here, there, after = seal(EXAMPLE, 1, 5, 1), seal(EXAMPLE, 1, 5, 2), seal(EXAMPLE, 1, 6, 3)

    told = relay("other payload in the same slot: payload hashes show which, and it becomes void", held=(here, after))
    yield told.catch_up(30, X, ledger_of(EXAMPLE, [there, after]))

    told = relay("void there and not here: both records are pulled", held=(here, after))
    yield told.catch_up(30, X, ledger_of(EXAMPLE, [here, there, after]))

    told = relay("more here than there: nothing is asked beyond the authors", held=(here, after))
    yield told.catch_up(30, X, ledger_of(EXAMPLE, [here]))

    told = relay("void here and not there: nothing to pull", held=(here, there, after))
    yield told.catch_up(30, X, ledger_of(EXAMPLE, [there, after]))

    told = relay("hashes that do not fit the bitmap: the session has failed", held=(here, after))
    full = ledger_of(EXAMPLE, [there, after])
    told.tell(30, X, head_of(full)).answer(30, X, full, until=PayloadsRequest)
    told.tell(40, X, Payloads(request=104, span=0, author=signer(1).author, hashes=bytes(8)))
    yield told.tell(1_050, X, head_of(full)).tell(2_040, X, head_of(full))


# --- time


def _times() -> Iterator[Story]:
    one, two = seal(EXAMPLE, 1, 0), seal(EXAMPLE, 2, 0)
    full = ledger_of(EXAMPLE, [one, two])
    spans = Spans(request=101, statements=bytes(16), spans=())

    told = relay("no answer: asked once more after 5 s, given up after 10 s, asked again after 2 s of rest")
    told.tell(30, X, head_of(full)).ticks(5_029, 5_030, 9_000, 10_029, 10_030)
    told.tell(10_040, X, spans).tell(12_029, X, head_of(full)).tell(12_030, X, head_of(full))
    yield told.ticks(22_030).tell(26_029, X, head_of(full)).tell(26_030, X, head_of(full))

    told = relay("parts of an answer keep a session alive, for 60 s in all")
    records = [seal(EXAMPLE, 1, step) for step in range(9)]
    told.until_pull(30, X, ledger_of(EXAMPLE, records))
    for number in range(7):
        told.tell(9_000 * number + 5_000, X, Records(request=104, data=records[number])).tick(9_000 * number + 9_000)
    yield told.tell(63_999, X, head_of(full)).tell(64_000, X, head_of(full))

    told = relay("an answer that came after a request was sent again counts once")
    told.tell(30, X, head_of(full)).tick(5_030).answer(5_040, X, full, rounds=1)
    yield told.tell(5_050, X, *answer(full, SpansRequest(request=101)))

    told = relay("fewer records than slots: failed; none came, so the rest doubles")
    told.until_pull(30, X, full).pulled(40, X)
    told.tell(2_039, X, head_of(full)).tell(2_040, X, head_of(full))
    told.answer(2_050, X, full, until=PullRequest).pulled(2_060, X)
    yield told.tell(6_059, X, head_of(full)).tell(6_060, X, head_of(full))

    told = relay("the rest between sessions that fail is a minute at most")
    now_ms = 0
    for rest_ms in (2_000, 4_000, 8_000, 16_000, 32_000, 60_000):
        told.until_pull(now_ms + 50, X, full).pulled(now_ms + 60, X)
        now_ms += rest_ms + 50
    yield told.tell(now_ms + 9, X, head_of(full)).tell(now_ms + 10, X, head_of(full))

    told = relay("fewer records than slots: failed; some came, so the rest is 1 s")
    told.until_pull(30, X, full).pulled(40, X, one)
    yield told.tell(1_039, X, head_of(full)).tell(1_040, X, head_of(full))

    told = relay("records of a request that is over, or that nobody made, are kept; not live, nobody is sent them")
    yield told.tell(30, X, Records(request=77, data=one)).tick(80)


# --- several neighbours


def _several() -> Iterator[Story]:
    one, two = seal(LONG, 1, 3), seal(LONG, 2, 1_500)
    full = ledger_of(LONG, [one, two])

    told = Story(
        "what one session pulls another skips; a session that skipped makes nobody live", LONG, is_training=False
    )
    told.tick(0).join(10, X, Y).until_pull(30, X, full)
    told.catch_up(40, Y, full).leave(50, X)
    yield told.catch_up(5_000, Y, full)

    told = Story("the one that pulls leaves: another is asked for it", LONG, is_training=False)
    told.tick(0).join(10, X, Y).until_pull(30, X, full).leave(40, X)
    yield told.catch_up(50, Y, full)

    told = Story("an equal head makes it live while a session is under way", LONG, is_training=False)
    told.tick(0).join(10, X, Y).until_pull(30, X, full).same(40, Y)
    yield told.answer(50, X, full)


# --- 8.4.1 to 8.4.3


def _liars() -> Iterator[Story]:
    records = [seal(EXAMPLE, author, 0) for author in (1, 2)]
    full = ledger_of(EXAMPLE, records)

    def asked(name: str, until: type) -> Story:
        return relay(name).tell(30, X, head_of(full)).answer(30, X, full, until=until)

    yield asked("an answer about another span: UNREQUESTED", ShardsRequest).tell(
        40,
        X,
        *(replace(each, span=1) for each in answer(full, ShardsRequest(request=102, span=0))),  # type: ignore[call-arg]
    )
    told = asked("authors: one page", AuthorsRequest)
    request = told.request(X)
    assert isinstance(request, AuthorsRequest)
    (page,) = answer(full, request)
    assert isinstance(page, Authors)
    first, second = page.authors

    def answered(name: str, answer: Authors) -> Story:
        return asked(f"authors: {name}: UNREQUESTED", AuthorsRequest).tell(40, X, answer)

    yield answered("not ascending", replace(page, authors=(second, first)))
    yield answered("one twice", replace(page, authors=(first, first)))
    yield answered("none, and not the last page", replace(page, authors=(), is_last=False))
    yield answered("one without a slot", replace(page, authors=(replace(first, valid=bytes(128)),)))
    yield answered("a slot both valid and void", replace(page, authors=(replace(first, void=first.valid),)))
    yield answered("of another request", replace(page, span=3))

    told = Story("authors: more than the run may have, over several pages: the session fails", FEW, is_training=False)
    crowd = ledger_of(EXAMPLE, [seal(EXAMPLE, author, 0) for author in range(4)])
    told.tick(0).join(10, X).tell(30, X, head_of(crowd)).answer(30, X, crowd, until=AuthorsRequest)
    with told.limited(AUTHORS_PER_PAGE_MAX=2):
        told.answer(40, X, crowd, until=PullRequest)
        pull = told.request(X)
        assert isinstance(pull, PullRequest)
        numbers = {signer(number).author: number for number in range(4)}
        told.pulled(50, X, *(seal(FEW, numbers[Author(wanted.author)], 0) for wanted in pull.wanted))
        told.answer(60, X, crowd)
    yield told

    here = seal(EXAMPLE, 1, 0, 77)
    told = relay("payload hashes of another author: UNREQUESTED", held=(here,)).tell(30, X, head_of(full))
    told.answer(30, X, full, until=PayloadsRequest)
    yield told.tell(40, X, Payloads(request=104, span=0, author=signer(2).author, hashes=bytes(8)))

    told = asked("a late answer is nobody's fault, whatever its kind", ShardsRequest)
    yield told.tell(40, X, PullDone(request=101, records=5)).answer(50, X, full)


# --- the answering side


def _answers() -> Iterator[Story]:
    held = (seal(EXAMPLE, 1, 5, 1), seal(EXAMPLE, 1, 5, 2), seal(EXAMPLE, 1, 6, 3), seal(EXAMPLE, 2, 5, 4))
    told = relay("answers to every request, live or not", held=held)
    author = signer(1).author
    told.tell(30, X, SpansRequest(request=9), ShardsRequest(request=10, span=0), ShardsRequest(request=11, span=3))
    told.tell(40, X, AuthorsRequest(request=12, span=0, shards=(shard_of(author),), after=bytes(32)))
    told.tell(50, X, PayloadsRequest(request=13, span=0, author=author))
    wanted = WantedSlots(span=0, author=author, steps=bitmap_of([5, 6, 7]))
    told.tell(60, X, PullRequest(request=14, wanted=(wanted,)))
    yield told.tell(70, X, StatementsRequest(request=15, after=bytes(33)))


# --- what begins anew


def _counted_anew() -> Iterator[Story]:
    one, two, three = (seal(EXAMPLE, 1, step) for step in range(3))
    full = ledger_of(EXAMPLE, [one, two, three])

    told = relay("two sessions that bring nothing rest for 2 s and 4 s; one that brings something begins anew")
    told.until_pull(0 + 30, X, full).pulled(40, X).until_pull(2_040, X, full).pulled(2_050, X)
    told.tell(6_049, X, head_of(full)).until_pull(6_050, X, full).pulled(6_060, X, one)
    told.tell(7_059, X, head_of(full)).until_pull(7_060, X, full).pulled(7_070, X)
    yield told.tell(9_069, X, head_of(full)).tell(9_070, X, head_of(full))

    told = relay("a request may take 60 s in all, looked at with each tick")
    told.until_pull(30, X, full)
    request = told.request(X)
    assert request is not None
    for now_ms in range(4_000, 60_000, 4_000):
        told.tell(now_ms, X, Records(request=request.request, data=one))
    told.ticks(60_029, 60_030)
    yield told.tell(61_029, X, head_of(full)).tell(61_030, X, head_of(full))


def _shared() -> Iterator[Story]:
    """What is left to another session: slots that its pull in flight asks for, once."""
    held = (seal(LONG, 1, 3), seal(LONG, 1, 4))
    fewer = ledger_of(LONG, [held[0], seal(LONG, 2, 5)])
    more = ledger_of(LONG, [*held, seal(LONG, 1, 6)])
    told = Story("free: a slot that no pull asks for, on a page that is pulled", LONG, held=held, is_training=False)
    told.tick(0).join(10, X, Y).until_pull(30, X, fewer).catch_up(40, Y, more).pulled(50, X, seal(LONG, 2, 5))
    yield told.catch_up(5_000, Y, more)

    first, second = sorted((1, 2), key=lambda number: signer(number).author)
    pages = ledger_of(LONG, [seal(LONG, first, 3), seal(LONG, second, 3)])
    more = ledger_of(LONG, [seal(LONG, first, 3), seal(LONG, first, 3, 7), seal(LONG, first, 4)])
    told = Story("free: a slot that has come, while the session goes on, though not its pair", LONG, is_training=False)
    with told.limited(AUTHORS_PER_PAGE_MAX=1):
        told.tick(0).join(10, X, Y).until_pull(30, X, pages).pulled(40, X, seal(LONG, first, 3))
    yield told.catch_up(50, Y, more)

    records = [seal(EXAMPLE, 1, step) for step in range(7)]
    full = ledger_of(EXAMPLE, records[:6])
    told = relay("two sessions share a page: each pull asks for what has not come and is not asked for")
    with told.limited(PULL_BYTES_MAX=500):
        told.until_pull(30, X, full).until_pull(40, Y, full).pulled(50, X, *records[:2]).pulled(60, Y, *records[2:4])
    yield told.pulled(70, X, *records[4:6])

    told = relay("left to a neighbour that does not send it: the next session asks for it, too, after all else")
    with told.limited(PULL_BYTES_MAX=500):
        told.until_pull(30, X, full).catch_up(40, Y, full)
        told.tell(1_040, Y, head_of(full)).answer(1_050, Y, ledger_of(EXAMPLE, records))
    yield told.tick(1_100)

    told = relay("a session that failed has skipped nothing: the next one leaves out what another pull asks for")
    with told.limited(PULL_BYTES_MAX=500):
        told.until_pull(30, X, full).pulled(40, X).until_pull(50, Y, full).catch_up(2_040, X, full)
    yield told

    pair = (records[2], seal(EXAMPLE, 1, 2, 8))
    told = relay("one record of a slot that is void there comes from elsewhere: both are still asked for")
    with told.limited(PULL_BYTES_MAX=500):
        told.until_pull(30, X, ledger_of(EXAMPLE, [*records[:2], *pair])).push(40, Y, pair[0])
        told.pulled(50, X, *records[:2]).pulled(60, X, *pair)
    yield told


def _counted() -> Iterator[Story]:
    """What answers a pull: a record of each slot."""
    one, two, three = (seal(EXAMPLE, author, 0) for author in (1, 2, 3))
    full = ledger_of(EXAMPLE, [one, two])
    for name, records in (
        ("the same record twice", (one, one)),
        ("a record of a slot that was not asked for", (one, three)),
    ):
        told = relay(f"{name}: fewer slots than were asked for: failed")
        yield told.until_pull(30, X, full).pulled(40, X, *records).catch_up(1_040, X, full)
    told = relay("only records of slots that were not asked for: failed; none came, so the rest doubles")
    yield told.until_pull(30, X, full).pulled(40, X, three).tell(2_039, X, head_of(full)).catch_up(2_040, X, full)


def _misread() -> Iterator[Story]:
    """What a plausible other reading of SPEC 8.4 gets wrong."""
    crowd = [seal(FEW, author, 0) for author in (2, 3, 4)]
    told = Story(
        "ignored for a full author table, a record answers its slot; then no slot of a new author is asked for",
        FEW,
        held=(seal(FEW, 1, 0), crowd[0]),
        is_training=False,
    )
    told.tick(0).join(10, X).catch_up(30, X, ledger_of(FEW, crowd))
    more = ledger_of(FEW, [*crowd, seal(FEW, 2, 1)])
    yield told.tell(2_000, X, head_of(more)).catch_up(4_000, X, more)

    here, there = seal(EXAMPLE, 1, 5, 1), seal(EXAMPLE, 1, 5, 2)
    told = relay("void here by the time the payload hashes come: nothing is pulled", held=(here,))
    full = ledger_of(EXAMPLE, [there])
    told.tell(30, X, head_of(full)).answer(30, X, full, until=PayloadsRequest)
    yield told.push(35, Y, there).answer(40, X, full)

    one, two = seal(EXAMPLE, 1, 0), seal(EXAMPLE, 2, 0)
    full = ledger_of(EXAMPLE, [one, two])

    told = relay("live: a head in the rest after a session counts", is_live=True).tell(2_000, X, head_of(full))
    told.until_pull(4_000, X, full).pulled(4_010, X).tell(5_000, X, head_of(full))
    yield told.tell(6_010, X, head_of(full))

    told = relay("fewer records than slots, one of them held by then: the rest is 1 s").until_pull(30, X, full)
    yield told.push(35, Y, one).pulled(40, X, one).tell(1_039, X, head_of(full)).tell(1_040, X, head_of(full))

    told = relay("the session with another neighbour has skipped something: this one may leave it, too")
    yield told.join(15, Z).until_pull(30, X, full).catch_up(40, Y, full).catch_up(50, Z, full)

    full = ledger_of(EXAMPLE, [there, two])
    told = relay("hashes that do not fit the bitmap: the rest of the page is pulled, then the session has failed")
    told.push(20, Y, here).tell(30, X, head_of(full)).answer(30, X, full, until=PayloadsRequest)
    asked = told.request(X)
    assert isinstance(asked, PayloadsRequest)
    told.tell(40, X, Payloads(request=asked.request, span=0, author=asked.author, hashes=bytes(16)))
    yield told.answer(50, X, full)
