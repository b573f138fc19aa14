"""What more clients bring at the same learning rate for every message, and how many of them the sum rule bears."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.learn.curves import Job, Point
from benchmarks.learn.jobs import Curves
from benchmarks.learn.trials import NetworkTrial


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """What is tried.

    Attributes:
        recipe: name of the one for a single client; its rate is taken.
        task: name of the only one that it is tried on; None: the first.
        steps: by clients: until more of them stops to help, in bearable time.
        factors: of that rate: 16 clients at a quarter of it are like 4 at the whole, as long as sums add up.
        evaluated_at: after which steps.
    """

    recipe: str
    task: str | None
    steps: Mapping[int, int]
    factors: tuple[float, ...]
    evaluated_at: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """So many clients with this learning rate for each message; one curve for each seed.

    Attributes:
        rate: None: ``factor`` times what is suggested.
    """

    clients: int
    rate: float | None
    curves: tuple[tuple[Point, ...], ...]
    factor: float = 1.0


def scale(scaling: Scaling, single: Job, seeds: Sequence[int], curves: Curves) -> list[Scaled]:
    """All numbers of clients with all rates, held constant, so that the length is free; the first with all seeds.

    ``single``: the run of one client.
    """
    plan = [
        [_job(scaling, single, number, factor, seed) for seed in (seeds if factor == scaling.factors[0] else seeds[:1])]
        for factor in scaling.factors
        for number in scaling.steps
    ]
    # The longest first: with two processes neither waits long for the other at the end.
    jobs = [job for several in plan for job in several]
    ordered = sorted(jobs, key=lambda job: -job.recipe.steps * job.recipe.rows_each_step)
    found = dict(zip(ordered, curves.of(ordered), strict=True))
    return [_scaled(several, [found[job] for job in several]) for several in plan]


def _scaled(jobs: Sequence[Job], curves: Sequence[Sequence[Point]]) -> Scaled:
    recipe = jobs[0].recipe
    assert isinstance(recipe, NetworkTrial)
    kept = tuple(tuple(curve) for curve in curves)
    return Scaled(clients=recipe.clients, rate=jobs[0].rate, curves=kept, factor=recipe.rate_factor)


def _job(scaling: Scaling, single: Job, clients: int, factor: float, seed: int) -> Job:
    recipe = single.recipe
    assert isinstance(recipe, NetworkTrial)
    many = replace(recipe, clients=clients, steps=scaling.steps[clients], schedule="constant")
    return replace(
        single,
        name=f"{clients} clients",
        recipe=replace(many, rate_factor=factor) if single.rate is None else many,
        rate=None if single.rate is None else factor * single.rate,
        seed=seed,
        evaluated_at=scaling.evaluated_at,
    )
