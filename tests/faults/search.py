"""The plans: which fault strikes where, drawn from one number; and the worlds in which they are carried out."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
import trio
import trio.testing

from tests.faults.instrument import SITES
from tests.faults.kinds import kinds
from tests.faults.points import Fault, Mode, Points
from tests.faults.world import RATE, FoundError, World, open_world

PLANS_PER_WORLD: Final = 40
RENEWED_EVERY: Final = 5  # plans
# Of plans at points that were reached since the last plan, at any time, and at any point: it may lie behind a fault.
_SHARES: Final = (0.65, 0.25, 0.1)
_MODES: Final = ((Mode.BEFORE, 6), (Mode.AFTER, 3), (Mode.GARBLE, 3), (Mode.STALL, 1), (Mode.CANCEL, 2))
_MODES_OF_FUNCTIONS: Final = ((Mode.BEFORE, 6), (Mode.CANCEL, 1))
# Where a node is slow as its neighbours see it: they must go on without it.
_OF_SLOW_PEERS: Final = ("sfnode.network.sessions.file_server", "sfnode.network.sessions.file_answers")
_NTH_MAX: Final = 3


@dataclass(slots=True)
class Tally:
    """What came of some plans."""

    struck: int = 0
    missed: int = 0  # nobody came to the point
    modes: Counter[str] = field(default_factory=Counter)
    sites: set[str] = field(default_factory=set)
    findings: int = 0

    def found(self, line: str, text: str) -> None:
        """Say at once what was found, and the line that repeats it."""
        self.findings += 1
        again = f"\n  repeat: python -m tests.faults --repeat {json.dumps(line)}" if line else ""
        click.echo(f"FOUND {text}{again}")


def drawn(seed: int, points: Points, part: str = "") -> Fault:
    """A fault of this seed among the points that were reached up to now; `described` is what repeats it.

    ``part``: of the names of the points that come into question.
    """
    chance = random.Random(seed)
    every = [number for number, site in enumerate(SITES) if part in site.name]
    pools = [[each for each in every if each in pool] for pool in (points.lately, points.lately | points.reached)]
    (pool,) = chance.choices([*pools, every], _SHARES)
    site = chance.choice(pool or every)
    modes = _MODES if SITES[site].is_await else _MODES_OF_FUNCTIONS
    if SITES[site].is_await and SITES[site].module in _OF_SLOW_PEERS:
        modes = (*modes, (Mode.SLOW, 5))
    (mode,) = chance.choices([mode for mode, _ in modes], [weight for _, weight in modes])
    return Fault(
        site=site, mode=mode, kind=chance.choice(kinds()), nth=chance.randrange(1, _NTH_MAX + 1), chance=chance
    )


def described(fault: Fault) -> str:
    """The fault in one line, for `repeated`."""
    return f"{fault.mode}|{fault.kind.name}|{fault.nth}|{SITES[fault.site].name}"


def repeated(line: str) -> Fault:
    """The fault that a line describes."""
    mode, kind, nth, name = line.split("|", 3)
    site = next(number for number, site in enumerate(SITES) if site.name == name)
    (made,) = [each for each in kinds() if each.name == kind]
    return Fault(site=site, mode=Mode(mode), kind=made, nth=int(nth), chance=random.Random(0))


def search(
    points: Points, faults: Iterator[Callable[[], Fault]], tally: Tally, on_plan: Callable[[Fault, bool], None]
) -> None:
    """Carry out the plans, in one world after the other. Each fault is made when its turn comes."""
    is_over = False

    async def in_one_world(folder: Path) -> None:
        nonlocal is_over
        async with open_world(folder, points) as world:
            for number in range(PLANS_PER_WORLD):
                made = next(faults, None)
                if made is None:
                    is_over = True
                    break
                if number % RENEWED_EVERY == 0:
                    world.renew()
                if not await _carry_out(world, made(), tally, on_plan):
                    return  # what was found may have left its traces: a new world
                if world.is_worn_out:
                    break
            try:
                await world.check_agreement()
            except FoundError as error:
                tally.found("", f"after all plans of one world: {error}")

    while not is_over:
        with TemporaryDirectory(prefix="faults-") as folder:
            trio.run(in_one_world, Path(folder), clock=trio.testing.MockClock(rate=RATE))


async def _carry_out(world: World, fault: Fault, tally: Tally, on_plan: Callable[[Fault, bool], None]) -> bool:
    """Carry out one plan; False when something was found."""
    try:
        has_struck = await world.strike(fault)
    except FoundError as error:
        tally.found(described(fault), f"{error} (node {fault.victim}, {fault.task})")
        return False
    tally.struck += has_struck
    tally.missed += not has_struck
    if has_struck:
        tally.modes[fault.mode] += 1
        tally.sites.add(SITES[fault.site].name)
    on_plan(fault, has_struck)
    return True
