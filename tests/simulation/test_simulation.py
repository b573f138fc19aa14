"""The simulation itself: it repeats exactly, its faults happen, and a few seeds of each topology keep every promise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests import REPOSITORY
from tests.simulation.command import Tally
from tests.simulation.scenario import Fault, SnapshotEvent, draw
from tests.simulation.topology import TOPOLOGIES
from tests.simulation.world import Result, run_seed

SEEDS = range(18)


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
    seed = 11
    traces = {run_process(seed, hash_seed).trace for hash_seed in ("0", "1", "4711")}
    assert traces == {results[seed].trace}


def test_simulation__each_kind_of_fault__was_injected(results: list[Result]) -> None:
    injected: Counter[str] = Counter()
    for result in results:
        injected.update(result.injected)
    assert {fault.value for fault in Fault} == set(injected)


@pytest.mark.timeout(300)
def test_simulation__seeds_with_snapshots__some_are_used_some_proved_and_some_found_false() -> None:
    wanted = {SnapshotEvent.USED, SnapshotEvent.STEP, SnapshotEvent.PROVED, SnapshotEvent.REFUSED}
    for seed in (seed for seed in range(len(SEEDS), 150) if draw(seed).snapshot):
        result = run_seed(seed)
        assert not result.violation, f"again: python -m tests.simulation --seed {seed}"
        wanted -= result.snapshots.keys()
        if not wanted:
            break
    assert not wanted


def test_simulation__other_seed__is_another_scenario_and_history() -> None:
    assert draw(3) == draw(3) != draw(9)
    assert draw(3).topology == draw(9).topology


def test_tally__demanded_fault_that_did_not_happen__does_not_count(results: list[Result]) -> None:
    tally = Tally()
    for result in results:
        tally.add(result)
    absent = sum(bool(result.missing) for result in results)
    assert (tally.counted, tally.absent) == (len(results) - absent, absent)
