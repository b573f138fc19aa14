"""More idle connections than the system lets a node have open files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from tests.attacks.doors import ATTACKER, Spent, in_words, manifest_s
from tests.attacks.outcome import Outcome
from tests.attacks.relay import Relay, running_relay

_OPEN_FILES: Final = 256  # what macOS gives a process
_CONNECTIONS: Final = 320
_AGAIN_S: Final = 5.0  # all at once and sooner would fill the system's own queue, which is another attack
_CLOSED_S: Final = 1.0
_STATUS_S_MAX: Final = 4.0  # written once a second
_JOINED_S_MAX: Final = 3.0


def many_connections(is_short: bool) -> Outcome:
    """320 connections without a word to a node that may have 256 files open: from one address, then from 320."""
    limited = ("sh", "-c", f'ulimit -n {_OPEN_FILES} && exec "$@"', "sh")
    with running_relay(prefix=limited) as victim:
        return trio.run(_attack, victim, 5.0 if is_short else 30.0)


async def _attack(victim: Relay, lasts_s: float) -> Outcome:
    before_s, spent = await manifest_s(victim), Spent()
    async with _idle(victim, [ATTACKER] * _CONNECTIONS, spent):
        await trio.sleep(lasts_s)
        during_s = await manifest_s(victim)
        age_s = await victim.status_s()
    hosts = [f"127.{2 + number // 200}.0.{1 + number % 200}" for number in range(_CONNECTIONS)]
    async with _idle(victim, hosts, spent):
        await trio.sleep(lasts_s)
        others_s = await manifest_s(victim)
        age_s = max(age_s, await victim.status_s())
    await trio.sleep(_CLOSED_S)
    is_alive = victim.is_alive
    after_s = await manifest_s(victim) if is_alive else None
    is_joined = all(each is not None and each <= _JOINED_S_MAX for each in (before_s, during_s, others_s, after_s))
    return Outcome(
        before=in_words(before_s),
        during=f"{in_words(during_s)}, then {in_words(others_s)}, a status after {age_s:.1f} s",
        after=in_words(after_s) if is_alive else "the node has ended",
        attacker=f"{spent.connections} connections, no byte",
        bound=f"a status every {_STATUS_S_MAX:.0f} s, a manifest in {_JOINED_S_MAX:.0f} s",
        is_held=is_alive and is_joined and age_s <= _STATUS_S_MAX,
    )


@asynccontextmanager
async def _idle(victim: Relay, hosts: Sequence[str], spent: Spent) -> AsyncIterator[None]:
    """A connection from each of these addresses, and another one whenever the victim closes it."""
    async with trio.open_nursery() as nursery:
        for host in hosts:
            nursery.start_soon(_hold_for_ever, victim, host, spent)
        yield
        nursery.cancel_scope.cancel()


async def _hold_for_ever(victim: Relay, local_host: str, spent: Spent) -> None:
    while True:
        with suppress(OSError, trio.BrokenResourceError):
            await _hold(victim, local_host, spent)
        await trio.sleep(_AGAIN_S)


async def _hold(victim: Relay, local_host: str, spent: Spent) -> None:
    async with await trio.open_tcp_stream(victim.host, victim.port, local_address=local_host) as stream:
        spent.connections += 1
        while await stream.receive_some(1_024):
            pass
