"""Traces of statements (SPEC 7.7): what they take away and bring back, who is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from protocol.ledger.ledger import Ledger
from protocol.ledger.statements import StatementCodec
from protocol.run.manifest import Manifest
from protocol.wire import Statements, StatementsRequest
from tests.support.ledgers import admit, claim, exclude, seal, signer
from tests.support.manifests import OWNER, small_manifest
from tests.vectors.notation import Document
from tests.vectors.runs import record
from tests.vectors.trace_files import traces
from tests.vectors.trace_recorder import ME, Story, X, Y, Z, head_of

OPEN, LISTED, INVITED = small_manifest(), small_manifest(admission="allow-list"), small_manifest(admission="invite")
_MANIFESTS = {"open": OPEN, "allow-list": LISTED, "invite": INVITED}


def roster() -> Document:
    """traces_roster.json"""
    return traces("Statements: SPEC 7.7, 9.2.4", _stories, _MANIFESTS)


def _stories() -> Iterator[Story]:
    yield from _news()
    yield from _admission()
    yield from _tokens()
    yield from _catching_up()
    yield from _refused()
    yield _forgotten()
    yield from _further()


def relay(name: str, manifest: Manifest, **config: Any) -> Story:
    """A live relay with three neighbours."""
    told = Story(name, manifest, is_training=False, **config).tick(0).join(10, X, Y, Z)
    return told.same(20, X)


def pushed(*statements: bytes) -> Statements:
    """Statements that nobody asked for."""
    return Statements(request=0, statements=statements, is_last=True)


# --- news


def _news() -> Iterator[Story]:
    held = (seal(OPEN, 1, 3), seal(OPEN, 1, 7), seal(OPEN, 1, 7, 99), seal(OPEN, 2, 5))
    told = relay(
        "an exclusion: stored, told to all but its source; slots from its step on hold nothing", OPEN, held=held
    )
    told.tell(100, X, pushed(exclude(OPEN, 1, 7))).push(200, Y, seal(OPEN, 1, 8), seal(OPEN, 1, 4))
    yield told.tell(300, Y, pushed(exclude(OPEN, 1, 7)), pushed(exclude(OPEN, 1, 9))).tick(2_100)

    told = relay(
        "an exclusion from an earlier step replaces one", OPEN, held=held[:1], statements=(exclude(OPEN, 1, 7),)
    )
    yield told.tell(100, X, pushed(exclude(OPEN, 1, 2))).tick(2_100)

    told = relay("an exclusion takes what waits out of the queues", OPEN)
    told.push(100, X, seal(OPEN, 1, 0)).push(110, X, seal(OPEN, 1, 9), seal(OPEN, 2, 9)).tell(
        120, X, pushed(exclude(OPEN, 1, 5))
    )
    yield told.tick(150)

    told = Story("excluded: the node signs nothing from that step on, not even what it measures", OPEN)
    told.tick(0).join(10, X).same(15, X).worker_ready(20).tell(
        100, X, pushed(StatementCodec(OPEN).exclude(OWNER, ME.author, 0))
    ).estimated(500, 0)
    yield told.ticks(600, 9_000)

    excluded = StatementCodec(OPEN).exclude(OWNER, ME.author, 5)
    told = Story("excluded from a step before the frontier: the node jumps there and measures nothing", OPEN, held=held)
    told.tick(0).join(10, X).tell(15, X, pushed(excluded)).same(20, X).worker_ready(30)
    yield told.ticks(100, 9_000)

    told = Story("submitted at this machine: told to all neighbours; what is wrong harms nobody", OPEN)
    told.tick(0).join(10, X, Y).submit(100, exclude(OPEN, 1, 7)).submit(200, exclude(OPEN, 1, 6, by=signer(4)))
    yield told.submit(300, exclude(OPEN, 1, 8)).tick(350)


def _admission() -> Iterator[Story]:
    told = relay("not admitted: ignored; the admission comes, and then the record", LISTED)
    told.push(100, X, seal(LISTED, 1, 0)).tell(200, Y, pushed(admit(LISTED, 1)))
    yield told.push(300, X, seal(LISTED, 1, 0)).tick(350)

    told = Story("not admitted itself: trains as soon as it is", LISTED)
    told.tick(0).worker_ready(10).ticks(60, 9_000).submit(
        9_010, StatementCodec(LISTED).admit(OWNER, ME.author)
    ).estimated(9_500, 0)
    yield told.tick(9_550)


# --- tokens


def _tokens() -> Iterator[Story]:
    first, second, admission = claim(INVITED, 1, 1), claim(INVITED, 1, 2), admit(INVITED, 1)
    held = (seal(INVITED, 1, 0), seal(INVITED, 1, 1), seal(INVITED, 1, 1, 99))

    told = relay(
        "a token claimed twice is void: both claims go on, and records of its author are suspended",
        INVITED,
        statements=(first,),
        held=held,
    )
    told.tell(100, X, pushed(second)).push(200, Y, seal(INVITED, 1, 0))
    yield told.tell(300, Z, pushed(first)).tick(2_100)

    told = relay(
        "suspended records come back when their author is admitted otherwise", INVITED, statements=(first,), held=held
    )
    told.tell(100, X, pushed(second)).tell(200, Y, pushed(admission)).tick(2_100)
    yield told.push(2_200, X, seal(INVITED, 1, 0))

    told = relay("suspended records that an exclusion bars do not come back", INVITED, statements=(first,), held=held)
    told.tell(100, X, pushed(second)).tell(150, X, pushed(exclude(INVITED, 1, 1))).tell(200, Y, pushed(admission))
    yield told.tick(2_100)

    told = relay(
        "read from the disk: what an exclusion bars is nothing; what is suspended comes back",
        INVITED,
        statements=(second, first, admit(INVITED, 3), exclude(INVITED, 3, 2)),
        held=(*held, seal(INVITED, 3, 1), seal(INVITED, 3, 2)),
    )
    yield told.tell(200, Y, pushed(admission)).tick(2_100)

    away = [admit(INVITED, 2), admit(INVITED, 3)]
    others = (seal(INVITED, 2, 20), seal(INVITED, 3, 20))
    told = relay(
        "nothing is held of an author any more: it is not heard of, not even once its records are back",
        INVITED,
        statements=(first, *away),
        held=others,
    )
    told.push(1_000, X, seal(INVITED, 1, 5)).tell(1_100, X, pushed(claim(INVITED, 1, 4)), pushed(admission))
    yield told.tick(2_100)

    told = relay("both claims in one message", INVITED)
    yield told.tell(100, X, pushed(first, second)).tick(150)


def _forgotten() -> Story:
    """The node is eight rounds ahead of author 1, who sends an update a second, loses its token, and comes back."""
    mine = [StatementCodec(INVITED).admit(OWNER, ME.author), claim(INVITED, 1, 1)]
    own = [record(INVITED, step, 5, author=ME) for step in range(19)]
    told = Story(
        "nothing is held of an author any more: its interval is forgotten, too",
        INVITED,
        statements=mine,
        held=own,
        reserved_step=18,
    )
    told.tick(0).join(5, X).same(10, X, work_distance=1)
    for step in (7, 8, 9):
        told.push(1_000 * (step - 6), X, seal(INVITED, 1, step))
    told.tell(3_100, X, pushed(claim(INVITED, 1, 2))).tell(3_200, X, pushed(admit(INVITED, 1)))
    told.push(4_000, X, seal(INVITED, 1, 10)).worker_ready(4_100)
    return told.ticks(12_001, 34_000, 34_001)


# --- anti-entropy


def _full(manifest: Manifest, statements: list[bytes], records: list[bytes]) -> Ledger:
    full = Ledger(manifest)
    for statement in statements:
        full.add_statement(statement)
    for each in records:
        full.add(each)
    return full


def _catching_up() -> Iterator[Story]:
    records = [seal(LISTED, 1, 0), seal(LISTED, 2, 1)]
    full = _full(LISTED, [admit(LISTED, 1), admit(LISTED, 2), exclude(LISTED, 2, 5)], records)
    told = Story("a joiner gets the statements first, then the records; it tells nobody", LISTED, is_training=False)
    yield told.tick(0).join(10, X, Y).catch_up(30, X, full).tick(80)

    told = relay("a live node tells the others what a session brought", LISTED)
    told.tell(2_000, X, head_of(full))
    yield told.catch_up(4_000, X, full)

    told = relay("what is excluded here is not asked for", LISTED, statements=(admit(LISTED, 1), exclude(LISTED, 1, 5)))
    told.tell(2_000, X, head_of(full))
    ahead = _full(LISTED, [admit(LISTED, 1)], [seal(LISTED, 1, 4), seal(LISTED, 1, 6)])
    yield told.catch_up(4_000, X, ahead)

    told = relay(
        "statements come before the spans are compared: what they exclude leaves nothing to ask for",
        LISTED,
        held=tuple(records),
        statements=(admit(LISTED, 1), admit(LISTED, 2)),
    )
    fewer = _full(LISTED, [admit(LISTED, 1), admit(LISTED, 2), exclude(LISTED, 1, 0)], records[1:])
    told.tell(2_000, X, head_of(fewer))
    yield told.catch_up(4_000, X, fewer)

    told = relay("a neighbour without statements is not asked for any", LISTED, statements=(admit(LISTED, 1),))
    bare = _full(OPEN, [], [seal(OPEN, 1, 4)])
    told.tell(2_000, X, head_of(bare)).tell(4_000, X, head_of(bare)).answer(4_010, X, bare, rounds=1)
    yield told

    yield _many_pages()


def _many_pages() -> Story:
    """128 keys are a page."""
    full = _full(LISTED, [admit(LISTED, number) for number in range(130)], [])
    told = Story("statements come in pages of 128 keys", LISTED, is_training=False)
    return told.tick(0).join(10, X, Y).catch_up(30, X, full)


def _refused() -> Iterator[Story]:
    good, other = admit(LISTED, 1), admit(LISTED, 2)
    low, high = sorted((good, other))
    forged = other[:-1] + bytes([other[-1] ^ 1])

    told = relay("a bad signature: those before it are kept and told, the peer is dropped", LISTED)
    yield told.tell(100, X, pushed(good, forged))

    def asked(name: str) -> Story:
        told = Story(f"statements: {name}: UNREQUESTED", LISTED, is_training=False).tick(0).join(10, X)
        full = _full(LISTED, [good, other], [])
        return told.tell(30, X, head_of(full)).answer(40, X, full, until=StatementsRequest)

    def page(*statements: bytes, is_last: bool = True) -> Statements:
        return Statements(request=102, statements=statements, is_last=is_last)

    yield asked("not ascending").tell(50, X, page(high, low))
    yield asked("none, and not the last page").tell(50, X, page(is_last=False))
    yield (
        asked("not beyond the page before")
        .tell(50, X, page(low, is_last=False))
        .tell(60, X, Statements(request=103, statements=(low,), is_last=True))
    )
    claims = [claim(INVITED, 1, number) for number in (1, 2, 3)]
    told = Story("statements: three of one token: UNREQUESTED", INVITED, is_training=False).tick(0).join(10, X)
    full = _full(INVITED, claims[:2], [])
    told.tell(30, X, head_of(full)).answer(40, X, full, until=StatementsRequest)
    yield told.tell(50, X, page(*claims))


def _further() -> Iterator[Story]:
    """Stand last: the names of what the others hold stay."""
    told = Story("not live: a statement that nobody asked for goes on", OPEN, is_training=False).tick(0)
    yield told.join(10, X, Y).tell(100, X, pushed(exclude(OPEN, 1, 7))).tick(200)

    told = relay("an exclusion takes what waits out of the queues from its very step on", OPEN)
    told.push(100, X, seal(OPEN, 2, 0)).push(110, X, seal(OPEN, 1, 4), seal(OPEN, 1, 5))
    yield told.tell(120, X, pushed(exclude(OPEN, 1, 5))).tick(150)

    told = Story("pulled: excluded since it was asked for: ignored, and its slot is answered", OPEN, is_training=False)
    slots = [seal(OPEN, 1, 4), seal(OPEN, 1, 5)]
    told.tick(0).join(10, X, Y).until_pull(30, X, _full(OPEN, [], slots)).tell(40, Y, pushed(exclude(OPEN, 1, 5)))
    yield told.pulled(50, X, *slots).tick(100)

    first, second = claim(INVITED, 1, 1), claim(INVITED, 1, 2)
    full = _full(INVITED, [first], [seal(INVITED, 1, 0)])
    name = "pulled: not admitted any more since it was asked for: ignored, and its slot is answered"
    told = Story(name, INVITED, is_training=False).tick(0).join(10, X, Y).until_pull(30, X, full)
    yield told.tell(40, Y, pushed(second)).pulled(50, X, seal(INVITED, 1, 0)).tick(100)

    told = relay("flooded: excluded before anything is held of the author, and from a later step on", OPEN)
    told.tell(100, X, pushed(exclude(OPEN, 1, 5))).push(200, Y, seal(OPEN, 1, 5))
    yield told.push(300, Y, seal(OPEN, 1, 4)).tick(350)
