"""The simulation itself: it repeats exactly, its faults happen, and a few seeds of each topology keep every promise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tests import REPOSITORY
from tests.simulation import command
from tests.simulation.command import Tally
from tests.simulation.scenario import Fault, SnapshotEvent, draw
from tests.simulation.topology import TOPOLOGIES
from tests.simulation.world import Result, run_seed

SEEDS = range(len(TOPOLOGIES))


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [run_seed(seed) for seed in SEEDS]


def run_process(seed: int, hash_seed: str) -> Result:
    """One seed in a process of its own, where sets of bytes have another order."""
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--json"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    plain = json.loads(done.stdout)
    return Result(**{**plain, "missing": tuple(plain["missing"])})


@pytest.mark.timeout(300)
def test_simulation__seeds_of_every_topology__hold_every_invariant(results: list[Result]) -> None:
    broken = {result.seed: result.violation for result in results if result.violation}
    assert not broken, "again: python -m tests.simulation --seed N"
    assert {result.topology for result in results} == set(TOPOLOGIES)


def test_simulation__same_seed_in_processes_with_other_hash_seeds__has_the_same_trace(results: list[Result]) -> None:
    seed = 5
    traces = {run_process(seed, hash_seed).trace for hash_seed in ("0", "4711")}
    assert traces == {results[seed].trace}


@pytest.fixture
def everything(results: list[Result]) -> Tally:
    """Figures of seeds in which all has happened that can."""
    tally = Tally()
    faults = {fault.value: 1 for fault in Fault}
    snapshots = {event.value: 1 for event in SnapshotEvent}
    for result in results:
        tally.add(replace(result, missing=(), injected=faults, snapshots=snapshots, partial=1))
    return tally


def test_many_seeds__all_that_can_happen_did__nothing_is_called_absent(everything: Tally) -> None:
    assert everything.never_happened() == []


def test_many_seeds__fault_snapshot_or_topology_that_never_happened__is_named(everything: Tally) -> None:
    del everything.injected[Fault.LOSS.value]
    del everything.snapshots[SnapshotEvent.PROVED.value]
    del everything.topologies["ring"]
    assert everything.never_happened() == ["ring", Fault.LOSS.value, f"snapshot {SnapshotEvent.PROVED.value}"]


@pytest.mark.parametrize(("seeds_of_all", "code"), [(1, 1), (2, 0)])
def test_many_seeds__something_is_absent_among_enough_of_them__exit_code_says_so(
    seeds_of_all: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_SEEDS_OF_ALL", seeds_of_all)
    assert command.run_many(1, 0, 1, is_json=False) == code
    assert ("never happened in 1 seeds" in capsys.readouterr().out) == bool(code)


def test_simulation__other_seed__is_another_scenario_and_history() -> None:
    assert draw(3) == draw(3) != draw(9)
    assert draw(3).topology == draw(9).topology


def test_tally__demanded_fault_that_did_not_happen__does_not_count(results: list[Result]) -> None:
    tally = Tally()
    for result in results:
        tally.add(result)
    absent = sum(bool(result.missing) for result in results)
    assert (tally.counted, tally.absent) == (len(results) - absent, absent)
