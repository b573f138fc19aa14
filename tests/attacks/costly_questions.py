"""Questions about old updates, which must be read from the disk: they once were booked as a tenth of what they took."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

import trio

from benchmarks.sample_runs import Shape, signer
from protocol import limits
from protocol.wire import PullDone, PullRequest, WantedSlots
from sfnode.network.transport.link import LinkBrokenError
from tests.attacks.outcome import Outcome
from tests.attacks.relay import Relay, running_relay
from tests.attacks.visitor import Visitor, visiting

_AUTHORS: Final = 256  # in one question
_STEPS: Final = 128  # held of each: only the last are in memory
_ASKED: Final = b"\1" + bytes(1)  # one step in sixteen: each is read back with those that are checked with it
_SHARE_MAX: Final = 0.3  # of a core: 60 ms a second for answers, and the rest for reading, writing and the pings


def costly_questions(is_short: bool) -> Outcome:
    """One neighbour pulls old updates, the dearest way there is, as fast as it is answered."""
    with running_relay(Shape(authors=_AUTHORS, steps=_STEPS)) as relay:
        return trio.run(_attack, relay, 6.0 if is_short else 30.0)


async def _attack(relay: Relay, seconds: float) -> Outcome:
    run_id = relay.manifest.run_id
    async with visiting(relay.address, run_id) as honest:
        before = await _share(relay, honest, 2.0)
        async with visiting(relay.address, run_id) as greedy, trio.open_nursery() as nursery:
            answers: list[PullDone] = []
            nursery.start_soon(_ask_for_ever, greedy)
            nursery.start_soon(_count, greedy, answers)
            during = await _share(relay, honest, seconds)
            nursery.cancel_scope.cancel()
        await trio.sleep(1.0)
        after = await _share(relay, honest, 2.0)
    records = sum(answer.records for answer in answers)
    return Outcome(
        before=f"{before:.2f} of a core",
        during=f"{during:.2f} of a core for {len(answers)} answers with {records} updates",
        after=f"{after:.2f} of a core",
        attacker=f"{greedy.sent_bytes} bytes",
        bound=f"less than {_SHARE_MAX} of a core for one neighbour",
        is_held=during < _SHARE_MAX and len(answers) > 0,
    )


async def _share(relay: Relay, honest: Visitor, seconds: float) -> float:
    """Of one core that the node takes, while an honest neighbour pings it."""
    started_s, spent_s = time.monotonic(), relay.cpu_s()
    await honest.ping_for(seconds)
    return (relay.cpu_s() - spent_s) / (time.monotonic() - started_s)


async def _ask_for_ever(greedy: Visitor) -> None:
    steps = (_ASKED * (_STEPS // 16)).ljust(limits.SPAN_STEPS // 8, b"\0")
    authors = sorted(signer(number).author for number in range(_AUTHORS))
    wanted = tuple(WantedSlots(span=0, author=author, steps=steps) for author in authors)
    request = 0
    with suppress(LinkBrokenError):
        while True:
            request += 1
            await greedy.say(PullRequest(request=request, wanted=wanted))


async def _count(greedy: Visitor, answers: list[PullDone]) -> None:
    with suppress(LinkBrokenError):
        while True:
            answers.append(await greedy.hear(PullDone))
