"""What more clients bring at the same learning rate for every message, and how many of them the sum rule bears."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.learn.clients import NetworkTrial
from benchmarks.learn.curves import Job, Point
from benchmarks.learn.jobs import Curves
from benchmarks.learn.problems import Task

EVALUATED_AT = (0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128)
STEPS = {1: 128, 4: 64, 16: 32, 64: 16}  # by clients: until more of them stops to help, in bearable time
FACTORS = (0.25, 1)  # of that rate: 16 clients at a quarter of it are like 4 at the whole, as long as sums add up


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """So many clients with this learning rate for each message; one curve for each seed."""

    clients: int
    rate: float
    curves: tuple[tuple[Point, ...], ...]


def scale(
    task: Task,
    recipe: NetworkTrial,
    rates: Sequence[float],
    seeds: Sequence[int],
    clients: Sequence[int],
    curves: Curves,
) -> list[Scaled]:
    """All numbers of clients with all rates, held constant, so that the length is free; the first with all seeds."""
    chosen = {rate: tuple(seeds if rate == rates[0] else seeds[:1]) for rate in rates}
    plan = [(number, rate, chosen[rate]) for rate in rates for number in clients]
    jobs = [_job(task, recipe, number, rate, seed) for number, rate, several in plan for seed in several]
    # The longest first: with two processes neither waits long for the other at the end.
    ordered = sorted(jobs, key=lambda job: -job.recipe.steps * job.recipe.rows_each_step)
    found = dict(zip(ordered, curves.of(ordered), strict=True))
    return [
        Scaled(
            clients=number,
            rate=rate,
            curves=tuple(tuple(found[_job(task, recipe, number, rate, seed)]) for seed in several),
        )
        for number, rate, several in plan
    ]


def _job(task: Task, recipe: NetworkTrial, clients: int, rate: float, seed: int) -> Job:
    many = replace(recipe, clients=clients, steps=min(STEPS[clients], recipe.steps), schedule="constant")
    return Job(
        task=task,
        name=f"{clients} clients",
        recipe=many,
        rate=rate,
        seed=seed,
        is_test=True,
        evaluated_at=EVALUATED_AT,
    )
