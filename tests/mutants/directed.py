"""Short scenes with one real node, for bugs that neither the simulation nor a test sees. Empty text: all is well."""

from __future__ import annotations

from protocol import timings
from protocol.events import Effect, Ticked, WorkerReady
from protocol.wire import Spans, SpansRequest
from tests.support.ledgers import seal
from tests.support.node_cores import (
    MANIFEST,
    X,
    head_of,
    join,
    node,
    other_head,
    own,
    pushed,
    sent,
    start_effects,
    tell,
)


def rest_after_a_good_session() -> str:
    """SPEC 8.4.7: failures in a row double the rest; one session that ended well, and it is as short as at first."""
    asking = node(is_training=False)
    join(asking, X)
    head = other_head(seal(MANIFEST, 0, 0))
    now_ms = 0
    for _ in range(3):
        while not sent(tell(asking, X, head, now_ms), SpansRequest):
            now_ms += 500
        now_ms += timings.REQUEST_TIMEOUT_MS
        asking.handle(Ticked(), now_ms)
    while not (requests := sent(tell(asking, X, head, now_ms), SpansRequest)):
        now_ms += 500
    number = requests[0][1].request  # type: ignore[attr-defined]
    tell(asking, X, Spans(request=number, statements=bytes(16), spans=()), now_ms)
    tell(asking, X, head, now_ms + 1)
    effects = tell(asking, X, head, now_ms + timings.SYNC_REST_MS)
    return (
        "" if sent(effects, SpansRequest) else "after a session that ended well a neighbour rests as if it had failed"
    )


def made_up_keys_that_sign_old_steps() -> str:
    """SPEC 9.1.4: only what raises an author's highest step shows that it is at work."""
    working = node(records=[own(29)])
    join(working, X)
    tell(working, X, head_of(working.replica.ledger, working.replica.state_digest()), 0)  # live from now on
    effects: list[Effect] = []
    for number in range(8):
        now_ms = 5_000 * number
        tell(working, X, pushed(*(seal(MANIFEST, sybil, 15 - number) for sybil in range(3))), now_ms)
        effects += working.handle(WorkerReady(), now_ms + 1)
    is_going_on = all(effect in effects for effect in start_effects(30))
    return "" if is_going_on else "made-up keys that sign ever older steps hold a node back for ever"
