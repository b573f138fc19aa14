"""The command line of the simulation: one seed exactly, or many of them on all cores."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import count, islice

import click

from protocol.errors import Reject
from protocol.events import Ticked
from protocol.wire import decode_untrusted
from tests.simulation.environment import Part
from tests.simulation.scenario import Fault, SnapshotEvent, draw
from tests.simulation.topology import TOPOLOGIES
from tests.simulation.world import Result, run_seed

_SEEDS_OF_ALL = 200  # among so many seeds, everything that can happen does
_SNAPSHOTS_WANTED = (SnapshotEvent.USED, SnapshotEvent.STEP, SnapshotEvent.PROVED, SnapshotEvent.REFUSED)


@click.command()
@click.option("--seed", type=int, help="Run this one seed and show all about it.")
@click.option("--seeds", type=int, default=300, show_default=True, help="Run so many seeds that count.")
@click.option("--first", type=int, default=0, show_default=True, help="The first of them.")
@click.option("--processes", type=int, default=2, show_default=True, help="How many run at once.")
@click.option("--log", "is_logged", is_flag=True, help="With --seed: print every event, with its virtual time in ms.")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
def main(seed: int | None, seeds: int, first: int, processes: int, is_logged: bool, is_json: bool) -> None:
    """Simulate whole networks of real node cores, break them, heal them, and demand that they agree.

    Example: python -m tests.simulation --seed 17
    """
    if seed is not None:
        sys.exit(show_one(seed, is_logged=is_logged, is_json=is_json))
    sys.exit(run_many(seeds, first, processes, is_json=is_json))


def show_one(seed: int, *, is_logged: bool, is_json: bool) -> int:
    """Run one seed; returns the exit code."""
    result = run_seed(seed, _log if is_logged else None)
    if is_json:
        click.echo(json.dumps(asdict(result)))
    else:
        click.echo(f"{draw(seed)}")
        for name, value in asdict(result).items():
            click.echo(f"{name:>11}  {value}")
    return 1 if result.violation else 0


def _log(now_ms: int, parts: tuple[Part, ...]) -> None:
    """One line per event; ticks, which are most of them, are left out."""
    if parts[0] != Ticked.__name__:
        click.echo(f"{now_ms:>8} " + " ".join(_readable(part) for part in parts))


def _readable(part: Part) -> str:
    if not isinstance(part, bytes):
        return str(part)
    try:
        return type(decode_untrusted(part)).__name__
    except Reject:
        return f"<{len(part)} bytes>"


def run_many(seeds: int, first: int, processes: int, *, is_json: bool) -> int:
    """Run seeds until so many counted; returns the exit code."""
    started_s = time.monotonic()
    tally = Tally()
    with ProcessPoolExecutor(processes) as pool:
        for result in _results(pool, first, seeds, tally):
            tally.add(result)
            if result.violation:
                click.echo(f"seed {result.seed} ({result.topology}): {result.violation}")
                click.echo(f"  again: python -m tests.simulation --seed {result.seed}")
            if (tally.counted + tally.absent) % 100 == 0 and sys.stderr.isatty():
                click.echo(f"  {tally.counted} of {seeds} seeds", err=True)
    seconds = time.monotonic() - started_s
    click.echo(json.dumps(tally.as_plain(seconds)) if is_json else tally.text(seconds))
    absent = tally.never_happened() if tally.counted >= _SEEDS_OF_ALL else []
    if absent:
        click.echo(f"never happened in {tally.counted} seeds, so that nothing was shown about it: {', '.join(absent)}")
    return 1 if tally.violations or absent else 0


def _results(pool: ProcessPoolExecutor, first: int, seeds: int, tally: Tally) -> Iterator[Result]:
    """Results in the order of their seeds: as many as are still missing in the tally, until none is."""
    numbers = count(first)
    while tally.counted < seeds:
        yield from pool.map(run_seed, islice(numbers, seeds - tally.counted))


class Tally:
    """Figures over many seeds."""

    def __init__(self) -> None:
        self.counted = 0
        self.absent = 0  # a demanded fault did not happen: the run counts for nothing
        self.violations: list[int] = []
        self.injected: Counter[str] = Counter()
        self.snapshots: Counter[str] = Counter()
        self.topologies: Counter[str] = Counter()
        self.agreed_ms: list[tuple[int, int]] = []  # with the seed
        self.missing: Counter[str] = Counter()
        self.updates, self.partial = 0, 0
        self.events = 0

    def add(self, result: Result) -> None:
        """One more seed."""
        if result.violation:
            self.violations.append(result.seed)
        elif result.missing:
            self.absent += 1
            self.missing.update(result.missing)
            return
        self.counted += 1
        self.injected.update(result.injected)
        self.snapshots.update(result.snapshots)
        self.topologies[result.topology] += 1
        self.agreed_ms.append((result.agreed_ms, result.seed))
        self.updates += result.updates
        self.partial += result.partial
        self.events += result.events

    def never_happened(self) -> list[str]:
        """Topologies, faults and fates of snapshots that no counted seed had."""
        demanded = (
            *((topology, self.topologies[topology]) for topology in TOPOLOGIES),
            *((fault.value, self.injected[fault.value]) for fault in Fault),
            ("rounds of some directions", self.partial),
            *((f"snapshot {event.value}", self.snapshots[event.value]) for event in _SNAPSHOTS_WANTED),
        )
        return [name for name, times in demanded if not times]

    def as_plain(self, seconds: float) -> dict[str, object]:
        """All figures, for programs."""
        ordered = sorted(self.agreed_ms)
        return {
            "seeds": self.counted,
            "not_counted": self.absent,
            "missing": dict(sorted(self.missing.items())),
            "violations": self.violations,
            "topologies": dict(sorted(self.topologies.items())),
            "injected": {fault.value: self.injected[fault.value] for fault in Fault},
            "snapshots": {event.value: self.snapshots[event.value] for event in SnapshotEvent},
            "agreed_s": {
                "median": ordered[len(ordered) // 2][0] / 1_000,
                "p99": ordered[len(ordered) * 99 // 100][0] / 1_000,
                "max": ordered[-1][0] / 1_000,
            },
            "slowest_seeds": [seed for _, seed in ordered[:-6:-1]],
            "updates": self.updates,
            "partial": self.partial,
            "events": self.events,
            "seconds": round(seconds, 1),
        }

    def text(self, seconds: float) -> str:
        """All figures, for people; the last line says it all."""
        plain = self.as_plain(seconds)
        faults = [f"  {self.injected[fault.value]:>9,}  {fault.value}" for fault in Fault]
        snapshots = ", ".join(f"{self.snapshots[event.value]:,} {event.value}" for event in SnapshotEvent)
        topologies = ", ".join(f"{name} {number}" for name, number in sorted(self.topologies.items()))
        agreed = plain["agreed_s"]
        slowest = plain["slowest_seeds"]
        assert isinstance(agreed, dict) and isinstance(slowest, list)
        return "\n".join(
            [
                "faults injected:",
                *faults,
                f"snapshots: {snapshots}",
                f"topologies: {topologies}",
                f"{self.partial:,} rounds of some directions only",
                f"{self.absent} more seeds did not count: a demanded fault did not happen",
                f"slowest to agree: seeds {', '.join(map(str, slowest))}",
                f"simulation: {self.counted:,} seeds, {len(self.violations)} violations, {self.events:,} events, "
                f"{sum(self.injected.values()):,} faults; agreement {agreed['median']} s (median), {agreed['p99']} s "
                f"(99 %), {agreed['max']} s (longest) after the faults; {seconds:.0f} s",
            ]
        )
