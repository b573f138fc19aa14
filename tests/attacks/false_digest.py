"""A head with our root and another state digest, which once made a node replay its whole ledger in one go."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import trio

from benchmarks.sample_runs import Shape, scalars_of, signer
from protocol.ledger.envelope import EnvelopeCodec
from protocol.wire import Bye, Head, Records
from tests.attacks.outcome import Outcome
from tests.attacks.relay import Relay, running_relay
from tests.attacks.visitor import Visitor, visiting

_WAIT_MAX_S: Final = 0.25  # of the node's own computing, so that a busy machine tells nothing; a slice is milliseconds
_CPU_MAX_S: Final = 0.1  # for somebody who has brought nothing: most of it for the handshake
_CALM_S: Final = 2.0
_DROPPED_S: Final = 600.0

Lie = Callable[[Visitor], Awaitable[None]]


def false_digest(is_short: bool) -> Outcome:
    """Two liars claim another state of the same ledger: a stranger, and one who has brought an update first."""
    with running_relay(Shape(authors=100, steps=400 if is_short else 2_000)) as relay:
        return trio.run(_attack, relay)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the node did while an honest neighbour pinged it."""

    wait_s: float  # of the node's computing, for the slowest pong
    cpu_s: float
    seconds: float
    is_dropped: bool = False  # the liar, if there was one
    sent_bytes: int = 0

    def more_cpu_s(self, calm: _Seen) -> float:
        """Processor time beyond what the pings take."""
        return self.cpu_s - calm.cpu_s * self.seconds / calm.seconds


async def _attack(relay: Relay) -> Outcome:
    async with visiting(relay.address, relay.manifest.run_id) as honest:
        before = await _watch(relay, honest, _CALM_S, trio.Event())
        stranger = await _deceive(relay, honest, _claim, _CALM_S)
        author = await _deceive(relay, honest, partial(_bring_and_claim, relay), _DROPPED_S)
        after = await _watch(relay, honest, _CALM_S, trio.Event())
    wait_s = max(stranger.wait_s, author.wait_s)
    stranger_cpu_s, author_cpu_s = stranger.more_cpu_s(before), author.more_cpu_s(before)
    return Outcome(
        before=f"{1e3 * before.wait_s:.0f} ms of computing for the slowest pong",
        during=f"{1e3 * wait_s:.0f} ms; {stranger_cpu_s:.2f} s of CPU for a stranger, {author_cpu_s:.2f} s in "
        f"{author.seconds:.0f} s for an author, who is{'' if author.is_dropped else ' not'} dropped",
        after=f"{1e3 * after.wait_s:.0f} ms",
        attacker=f"{stranger.sent_bytes + author.sent_bytes} bytes",
        bound=f"no pong waits for {1e3 * _WAIT_MAX_S:.0f} ms of computing; a stranger costs less than {_CPU_MAX_S} s",
        is_held=author.is_dropped and wait_s < _WAIT_MAX_S and stranger_cpu_s < _CPU_MAX_S,
    )


async def _deceive(relay: Relay, honest: Visitor, lie: Lie, limit_s: float) -> _Seen:
    """Let somebody lie, and watch until they are dropped, or for so long."""
    dropped = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_lie, relay, lie, dropped, liars := list[Visitor]())
        seen = await _watch(relay, honest, limit_s, dropped)
        nursery.cancel_scope.cancel()
    return replace(seen, is_dropped=dropped.is_set(), sent_bytes=liars[0].sent_bytes)


async def _watch(relay: Relay, honest: Visitor, limit_s: float, end: trio.Event) -> _Seen:
    wait_s, spent_s, started_s = 0.0, relay.cpu_s(), trio.current_time()
    while trio.current_time() < started_s + limit_s and not end.is_set():
        pinged_s = relay.cpu_s()
        await honest.ping()
        wait_s = max(wait_s, relay.cpu_s() - pinged_s)
    return _Seen(wait_s=wait_s, cpu_s=relay.cpu_s() - spent_s, seconds=trio.current_time() - started_s)


async def _lie(relay: Relay, lie: Lie, dropped: trio.Event, liars: list[Visitor]) -> None:
    async with visiting(relay.address, relay.manifest.run_id) as liar:
        liars.append(liar)
        await lie(liar)
        await liar.hear(Bye)
        dropped.set()


async def _claim(liar: Visitor) -> None:
    head = await liar.hear(Head)
    await liar.say(replace(head, state_digest=b"\1" * 32))


async def _bring_and_claim(relay: Relay, liar: Visitor) -> None:
    codec = EnvelopeCodec(relay.manifest)
    scalars = scalars_of(relay.manifest, random.Random(1))
    await liar.hear(Head)
    await liar.say(Records(request=0, data=codec.seal(signer(0), relay.first_free_step, scalars).record))
    await _claim(liar)
