"""The command line: every mutant in a process of its own, a control without any, and the table.

The processes are forked from one that has imported everything and done nothing: clean caches, at a tenth of the cost.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Final
from unittest import mock

import click

from tests import REPOSITORY
from tests.mutants.catalogue import BY_NAME, MUTANTS, controls
from tests.mutants.detectors import BrokenMutantError, HashSeeds, Simulation
from tests.mutants.mutant import Mutant
from tests.mutants.patch import StaleEditError, switched_on
from tests.simulation.world import run_seed

_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
_PROCESS_SECONDS = 600  # a mutant that computes for ever is stopped by its detector, long before
_PROCESSES: Final = multiprocessing.get_context("forkserver")
_IMPORTED = (
    "tests.mutants.command",
    "sfnode.network.network",
    "sfnode.storage.record_store",
    "hypothesis",
    "pytest_trio",
    "xdist",
    "torch",
    "transformers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. ``problem``: the mutant could not run, so that nothing is known."""

    mutant: str
    breaks: str
    detector: str
    tries: int = 0
    text: str = ""
    problem: str = ""
    seconds: float = 0.0

    @property
    def is_control(self) -> bool:
        """Whether nothing was wrong, and nothing may be found."""
        return self.mutant not in BY_NAME or not BY_NAME[self.mutant].edits

    @property
    def is_as_wanted(self) -> bool:
        """Caught, or for the control: nothing found."""
        return not self.problem and bool(self.text) != self.is_control


@click.command()
@click.option("--only", multiple=True, metavar="NAME", help="Only this mutant, without the control; more than once.")
@click.option("--processes", type=int, default=2, show_default=True, help="How many mutants run at once.")
@click.option(
    "--checked",
    type=int,
    default=0,
    metavar="SEEDS",
    help="Without mutants, tests, vectors and so many seeds have just passed: the control leaves them out.",
)
@click.option("--json", "is_json", is_flag=True, help="Print the table as JSON.")
@click.option("--trace", type=int, hidden=True, help="Print the trace of this seed under the one mutant.")
def main(only: tuple[str, ...], processes: int, checked: int, is_json: bool, trace: int | None) -> None:
    """Switch deliberate bugs on, one at a time, and see each of them caught.

    Example: python -m tests.mutants --only first-seen-wins
    """
    if unknown := [name for name in only if name not in BY_NAME]:
        raise click.UsageError(f"no mutant {unknown[0]!r}; there are {', '.join(BY_NAME)}")
    if trace is not None:
        click.echo(trace_of(BY_NAME[only[0]], trace))
        return
    chosen = [BY_NAME[name] for name in only] or [*controls(checked), *MUTANTS]
    sys.exit(run_all(chosen, processes, is_json=is_json))


def run_here(mutant: Mutant) -> Row:
    """Switch the mutant on in this process and look for it."""
    started_s = time.monotonic()
    row = Row(mutant=mutant.name, breaks=mutant.breaks, detector=str(mutant.detector))
    found = {}
    try:
        with switched_on(mutant.edits):
            finding = mutant.detector.look(mutant.name)
        found = asdict(finding)
    except (BrokenMutantError, StaleEditError) as error:
        found = {"problem": f"{type(error).__name__}: {error}"}
    return Row(**{**asdict(row), **found, "seconds": round(time.monotonic() - started_s, 1)})


def trace_of(mutant: Mutant, seed: int) -> str:
    """Hash of the history of a seed under the mutant."""
    with switched_on(mutant.edits):
        return run_seed(seed).trace


def run_all(chosen: list[Mutant], processes: int, *, is_json: bool) -> int:
    """Run mutants in processes of their own; returns the exit code."""
    started_s = time.monotonic()
    rows: list[Row] = []
    for row in _rows(chosen, processes):
        rows.append(row)
        if not is_json:
            click.echo(text_of(row))
    seconds = time.monotonic() - started_s
    if is_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        click.echo(summary(rows, seconds))
    return 0 if all(row.is_as_wanted for row in rows) else 1


def _rows(chosen: list[Mutant], processes: int) -> Iterator[Row]:
    _PROCESSES.set_forkserver_preload(list(_IMPORTED))
    # Read by the process that the others are forked from, when it starts.
    read = mock.patch.dict(os.environ, _ENVIRONMENT, PYTHONPATH=str(REPOSITORY))
    with read, ThreadPoolExecutor(processes) as pool:
        yield from pool.map(_run_apart, chosen)


def _run_apart(mutant: Mutant) -> Row:
    """The mutant in a process of its own: clean caches, and a fixed hash seed."""
    receiving, sending = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_run_and_tell, args=(mutant.name, sending))
    process.start()
    sending.close()
    problem = f"no end within {_PROCESS_SECONDS} s"
    try:
        if receiving.poll(_PROCESS_SECONDS):
            row: Row = receiving.recv()
            return row
    except EOFError:
        problem = "its process died; what it said is above"
    finally:
        process.kill()
        process.join()
        receiving.close()
    return Row(mutant=mutant.name, breaks=mutant.breaks, detector=str(mutant.detector), problem=problem)


def _run_and_tell(name: str, sending: Connection) -> None:
    os.chdir(REPOSITORY)
    sending.send(run_here(BY_NAME[name]))


def text_of(row: Row) -> str:
    """A row for people."""
    unit = "seeds" if isinstance(BY_NAME[row.mutant].detector, Simulation) else "tries"
    verdict = row.problem or row.text or "NOTHING FOUND"
    if row.is_control:
        verdict = row.problem or (f"FALSE ALARM: {row.text}" if row.text else "nothing found, as it must be")
    return (
        f"{row.mutant:<34}{row.detector:<12}{row.tries:>4} {unit}{row.seconds:>7.1f} s\n"
        f"    breaks: {row.breaks}\n"
        f"    {'without' if row.is_control else 'caught'}: {verdict[:400]}"
    )


def summary(rows: list[Row], seconds: float) -> str:
    """The last lines: what was looked at without any mutant, and how many were caught."""
    mutants = [row for row in rows if not row.is_control]
    controls = [row for row in rows if row.is_control]
    by_simulation = [row for row in mutants if isinstance(BY_NAME[row.mutant].detector, Simulation | HashSeeds)]
    escaped = [row.mutant for row in mutants if not row.is_as_wanted]
    alarms = sum(not row.is_as_wanted for row in controls)
    lines = [f"control: {alarms} false alarms in {len(controls)} runs without a mutant"] if controls else []
    lines += [f"not caught: {', '.join(escaped)}"] if escaped else []
    seeds = sum(row.tries for row in by_simulation)
    lines.append(
        f"mutants: {len(mutants) - len(escaped)} of {len(mutants)} caught, {len(by_simulation)} of them by the "
        f"simulation, {seeds} seeds, {seconds:.0f} s"
    )
    return "\n".join(lines)
