"""Traces of the flood (SPEC 8.3), of faults (8.5) and of equal ledgers with different states (7.6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from protocol.wire import Head, Ping, PullDone, Records, Spans
from tests.support.ledgers import ledger_of, seal
from tests.vectors.notation import Document
from tests.vectors.runs import EXAMPLE
from tests.vectors.trace_files import traces
from tests.vectors.trace_recorder import OTHER_STATE, Story, X, Y, Z, head_of

_MANIFESTS = {"example": EXAMPLE}


def flood() -> Document:
    """traces_flood.json"""
    return traces(
        "The flood, faults, and equal ledgers with different states: SPEC 8.3, 8.5, 7.6", _stories, _MANIFESTS
    )


def _stories() -> Iterator[Story]:
    yield from _queues()
    yield from _void()
    yield from _faults()
    yield from _recounts()
    yield _busy()
    yield from _exact()


def relay(name: str, *, held: tuple[bytes, ...] = (), is_live: bool = True) -> Story:
    """A relay with three neighbours."""
    told = Story(name, EXAMPLE, held=held, is_training=False).tick(0).join(10, X, Y, Z)
    return told.same(20, X) if is_live else told


def _busy() -> Story:
    a, b = (seal(EXAMPLE, 1, step) for step in range(2))
    told = relay("every tick is late: 400 ms lie between two frames, and no more")
    told.tick(100, 26).tick(200, 26).tick(300, 26).tick(400, 26).push(3_000, X, a).push(3_010, X, b)
    return told.tick(3_399, 26).tick(3_400, 26)


def _exact() -> Iterator[Story]:
    a, b, c, d, e = (seal(EXAMPLE, 1, step) for step in range(5))
    told = relay("what waits fills its frames: no empty one follows")
    with told.limited(RECORDS_PER_FRAME_MAX=2):
        told.push(1_000, X, a).push(1_010, X, b, c, d, e).tick(1_050)
    yield told

    told = relay("two neighbours claim another state before the node has recounted: the first is dropped")
    told.push(1_000, X, a).push(1_010, Y, b).tell(1_100, X, _other_state(told)).tell(1_110, Y, _other_state(told))
    yield told.tick(1_150)

    told = relay("one tick is late: the interval is doubled").tick(500, 26)
    yield told.push(1_000, X, a).push(1_010, X, b).ticks(1_074, 1_075)

    told = relay(
        "new records, and in their midst one that makes a slot void: the first of that slot goes first", held=(a,)
    )
    yield told.push(1_000, X, b, seal(EXAMPLE, 1, 0, 77), c)

    told = relay("one record and a half: nothing is kept")
    yield told.tell(1_000, X, Records(request=0, data=a + b[:54]))


# --- queues


def _queues() -> Iterator[Story]:
    a, b, c, d = (seal(EXAMPLE, 1, step) for step in range(4))

    told = relay("a record goes to all but its source; what comes within 50 ms waits and goes in one frame")
    yield told.push(1_000, X, a).push(1_010, X, b).push(1_020, Y, c).ticks(1_049, 1_050)

    told = relay("a record that a neighbour has sent meanwhile is not sent to it")
    told.push(1_000, X, a).push(1_010, X, b).push(1_020, Y, b)
    yield told.tick(1_050)

    told = relay("a further event waits: queues are emptied after the last")
    yield told.push(1_000, X, a, is_last=False).push(1_000, Y, a)

    told = relay("late ticks: the interval doubles with each, up to 400 ms, and falls by 25 ms with each other one")
    told.tick(500, 25).tick(600, 26).tick(700, 30).push(1_000, X, a).push(1_010, X, b).tick(1_174).tick(1_175)
    told.tick(2_000, 99).tick(2_400, 99).tick(2_800, 99).push(3_000, X, c).push(3_010, X, d)
    yield told.tick(3_374).tick(3_375)

    told = relay("a full queue drops the newest record")
    with told.limited(PUSH_QUEUE_RECORDS_MAX=2):
        told.push(1_000, X, a).push(1_010, X, b).push(1_020, X, c).push(1_030, X, d).tick(1_050)
    yield told

    told = relay("a long queue goes in several frames")
    with told.limited(RECORDS_PER_FRAME_MAX=2):
        told.push(1_000, X, a).push(1_010, X, b).push(1_020, X, c).push(1_030, X, d).tick(1_050)
    yield told

    told = relay("not live: what was pulled goes to nobody, what was pushed goes on", is_live=False)
    told.push(100, X, b).catch_up(200, Y, ledger_of(EXAMPLE, [a, b, c, d]))
    yield told.tick(400)

    told = relay("live: what was pulled goes on")
    full = ledger_of(EXAMPLE, [a, b])
    told.tell(1_000, Y, head_of(full)).catch_up(3_000, Y, full)
    yield told.tick(3_050)

    told = relay("a neighbour that has left is sent nothing, and a newcomer only what comes from then on")
    told.push(1_000, X, a).push(1_010, X, b).leave(1_020, Y)
    yield told.join(1_030, Y).push(1_040, X, c).tick(1_100)


# --- two payloads for one slot


def _void() -> Iterator[Story]:
    first, second, third = (seal(EXAMPLE, 1, 0, value) for value in (1, 2, 3))

    told = relay("a second payload: the first goes to all, the second to all but its source; a third to nobody")
    told.push(1_000, X, first).tick(1_100).push(1_200, Y, second).push(1_300, Z, third)
    yield told.push(1_400, X, first)

    told = relay("both payloads in one message, and once more from another neighbour")
    yield told.push(1_000, X, first, second).push(1_020, Y, second, first).tick(1_050)

    told = relay("the other signature bytes of a payload that is held change nothing")
    altered = first[:-1] + bytes([first[-1] ^ 1])
    yield told.push(1_000, X, first).push(1_100, Y, altered)


# --- faults


def _faults() -> Iterator[Story]:
    good, other = seal(EXAMPLE, 1, 0), seal(EXAMPLE, 2, 0)
    forged = seal(EXAMPLE, 3, 0)
    forged = forged[:-1] + bytes([forged[-1] ^ 1])

    told = relay("a bad signature: records before it are kept and passed on, the peer is dropped and not heard again")
    told.push(1_000, X, good, forged, other).push(1_010, X, other).tell(1_020, X, Ping(nonce=1))
    told.same(1_030, X).leave(1_040, X).push(1_050, Y, other)
    yield told.join(2_000, X).push(2_100, X, seal(EXAMPLE, 1, 1))

    told = relay("records that are cut off: SIZE")
    yield told.tell(1_000, X, Records(request=0, data=good[:-1]))

    told = relay("a message that is not for the node machine: UNREQUESTED")
    yield told.tell(1_000, X, Ping(nonce=1))

    told = relay("an answer of another kind: UNREQUESTED; the next answer to it is not heard", is_live=False)
    told.tell(1_000, X, head_of(ledger_of(EXAMPLE, [good])))
    told.tell(1_010, X, PullDone(request=101, records=0))
    yield told.tell(1_020, X, Spans(request=101, statements=bytes(16), spans=())).ticks(1_100)

    told = relay("whoever relays both records of an equivocator is not at fault")
    yield told.push(1_000, X, seal(EXAMPLE, 1, 0, 1), seal(EXAMPLE, 1, 0, 2)).tick(1_100)


# --- SPEC 7.6


def _recounts() -> Iterator[Story]:
    record = seal(EXAMPLE, 1, 0)

    told = relay("equal root, other state, by a neighbour that brought a new record: recounted, then it is dropped")
    told.push(1_000, X, record).tell(1_100, X, _other_state(told)).tick(1_150)
    yield told.push(1_200, X, seal(EXAMPLE, 1, 1))

    told = relay("equal root, other state, by a neighbour that brought nothing: ignored", held=(record,))
    yield told.tell(1_000, Y, _other_state(told)).ticks(1_050, 1_100).push(1_200, Y, seal(EXAMPLE, 1, 1))

    told = relay("equal root and a state of zeros: not computed, nothing is wrong, and the node is live", is_live=False)
    yield told.tell(1_000, X, replace(_other_state(told), state_digest=bytes(32))).tick(1_050)

    told = relay("equal root, other state: such a head makes nobody live", is_live=False)
    yield told.tell(1_000, X, _other_state(told)).tick(1_050)

    told = relay("60 s lie between two recounts that sum the ledger; a claim in between is ignored")
    told.push(1_000, X, record).push(1_010, Y, seal(EXAMPLE, 2, 0)).tell(1_100, X, _other_state(told)).tick(1_150)
    told.tell(1_200, Y, _other_state(told)).ticks(1_250, 61_149).tell(61_149, Y, _other_state(told)).tick(61_149)
    yield told.tell(61_150, Y, _other_state(told)).tick(61_200)

    told = relay("each kind of recount has a rest of its own").push(500, X, record)
    told.tell(1_000, Y, _other_state(told)).tick(1_050).tell(1_100, X, _other_state(told))
    yield told.tick(1_150)

    told = relay("the liar leaves while the node recounts: it is not dropped, and not on its return")
    told.push(1_000, X, record).tell(1_100, X, _other_state(told)).leave(1_110, X).join(1_120, X)
    yield told.tick(1_150)


def _other_state(told: Story) -> Head:
    return head_of(told.node.replica.ledger, state_digest=OTHER_STATE)
