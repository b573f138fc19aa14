"""The plans: which fault strikes where, drawn from one number; and the worlds in which they are carried out."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click
import trio

from tests.faults.clock import UnhurriedClock
from tests.faults.instrument import SITES
from tests.faults.kinds import kinds
from tests.faults.points import Fault, Mode, Points
from tests.faults.world import RATE, FoundError, World, open_world

STRIKES_PER_WORLD: Final = 40
JOINED_EVERY: Final = 5  # strikes
# Of plans at points that were reached since the last plan, at any time, and at any point: it may lie behind a fault.
_SHARES: Final = (0.65, 0.25, 0.1)
_MODES: Final = ((Mode.BEFORE, 6), (Mode.AFTER, 3), (Mode.GARBLE, 3), (Mode.STALL, 1), (Mode.CANCEL, 2))
_MODES_OF_FUNCTIONS: Final = ((Mode.BEFORE, 6), (Mode.CANCEL, 1))
# Where a node is slow as its neighbours see it: they must go on without it.
_OF_SLOW_PEERS: Final = ("sfnode.network.sessions.file_server", "sfnode.network.sessions.file_server")
_NTH_MAX: Final = 3
# A socket within one machine loses and changes nothing; the worker here is no process whose stillness could be seen.
_FAITHFUL: Final = "sfnode.worker.worker_client"
# Whatever fails inside of it, this gives the lock back; only before its first line it would not.
_CANNOT_FAIL: Final = (
    "sfnode.storage.record_store:Store._release:enter",
    "sfnode.storage.record_store:Store.close:enter",
)


@dataclass(slots=True)
class Tally:
    """What came of some plans."""

    struck: int = 0
    missed: int = 0  # nobody came to the point
    modes: Counter[str] = field(default_factory=Counter)
    sites: set[str] = field(default_factory=set)
    findings: int = 0

    def found(self, lines: Sequence[str], text: str) -> None:
        """Say at once what was found, and the command that repeats it."""
        self.findings += 1
        together = f" --at-once {len(lines)}" if len(lines) > 1 else ""
        again = "".join(f" --repeat {json.dumps(line)}" for line in lines)
        click.echo(f"FOUND {text}" + (f"\n  repeat: python -m tests.faults{together}{again}" if lines else ""))


def drawn(seed: int, points: Points, part: str = "") -> Fault:
    """A fault of this seed among the points that were reached up to now; `described` is what repeats it.

    ``part``: of the names of the points that come into question.
    """
    chance = random.Random(seed)
    every = [
        number for number, site in enumerate(SITES) if part in site.name and not site.name.startswith(_CANNOT_FAIL)
    ]
    pools = [[each for each in every if each in pool] for pool in (points.lately, points.lately | points.reached)]
    (pool,) = chance.choices([*pools, every], _SHARES)
    site = chance.choice(pool or every)
    modes: tuple[tuple[Mode, int], ...] = _MODES if SITES[site].is_await else _MODES_OF_FUNCTIONS
    if SITES[site].is_await and SITES[site].module in _OF_SLOW_PEERS:
        modes = (*modes, (Mode.SLOW, 5))
    if SITES[site].module == _FAITHFUL:
        modes = tuple(each for each in modes if each[0] is not Mode.GARBLE)
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
    points: Points,
    faults: Iterator[Callable[[], Fault]],
    tally: Tally,
    on_plans: Callable[[int], None],
    *,
    at_once: int = 1,
) -> None:
    """Carry out the plans, ``at_once`` of them together, in one world after the other.

    Each fault is made when its turn comes. ``on_plans`` hears how many plans have been carried out.
    """
    is_over = False

    async def in_one_world(folder: Path) -> None:
        nonlocal is_over
        async with open_world(folder, points) as world:
            for number in range(STRIKES_PER_WORLD):
                made = [each() for each in islice(faults, at_once)]
                if not made:
                    is_over = True
                    break
                if number % JOINED_EVERY == 0:
                    world.join()
                if not await _carry_out(world, made, tally, on_plans):
                    return  # what was found may have left its traces: a new world
                if world.is_worn_out:
                    break
            try:
                await world.check_agreement()
            except FoundError as error:
                tally.found([], f"after all plans of one world: {error}")

    while not is_over:
        with TemporaryDirectory(prefix="faults-") as folder:
            trio.run(in_one_world, Path(folder), clock=UnhurriedClock(RATE))


async def _carry_out(world: World, faults: Sequence[Fault], tally: Tally, on_plans: Callable[[int], None]) -> bool:
    """Carry out some plans together; False when something was found."""
    together = _compatible(faults)
    try:
        await world.strike(together)
    except FoundError as error:
        victims = ", ".join(f"node {fault.victim}, {fault.task}" for fault in together if fault.victim is not None)
        tally.found([described(fault) for fault in together], f"{error} ({victims})")
        return False
    struck = [fault for fault in together if fault.victim is not None]
    tally.struck += len(struck)
    tally.missed += len(faults) - len(struck)
    tally.modes.update(fault.mode for fault in struck)
    tally.sites |= {SITES[fault.site].name for fault in struck}
    on_plans(len(faults))
    return True


def _compatible(faults: Sequence[Fault]) -> list[Fault]:
    """Leave out a second fault at one point, and a second slow peer: somebody must be left who has to go on."""
    by_site = {fault.site: fault for fault in faults}
    slow = [fault for fault in by_site.values() if fault.mode is Mode.SLOW]
    return [fault for fault in by_site.values() if fault not in slow[1:]]
