"""The comparison: learning rates are chosen, then the reported seeds run, task by task and recipe by recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.learn.curves import Job, Point, settled
from benchmarks.learn.jobs import Curves
from benchmarks.learn.problems import Task
from benchmarks.learn.recipes import Recipe
from benchmarks.measures import say

TUNING_SEED = 100  # none of those reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One recipe on one task.

    Attributes:
        rate: learning rate, and for each that was tried (none where there was no choice) its settled loss.
        curves: one for each seed, on the test file.
    """

    task: str
    name: str
    rate: float
    tried: dict[float, float]
    curves: tuple[tuple[Point, ...], ...]


def compare(
    recipes: Mapping[str, Recipe], tasks: Sequence[Task], seeds: Sequence[int], curves: Curves
) -> list[Compared]:
    """Every recipe on every task. All trials are computed first, then all reported runs, so that no process idles."""
    trials = [job for task in tasks for name, recipe in recipes.items() for job in _trials(task, name, recipe)]
    tried: dict[tuple[str, str], dict[float, float]] = {}
    for job, points in zip(trials, curves.of(trials), strict=True):
        tried.setdefault((job.task.name, job.name), {})[job.rate] = settled(points)
    jobs = []
    for task in tasks:
        for name, recipe in recipes.items():
            rate = _best(recipe, tried.get((task.name, name), {}))
            say(f"{task.name} {name}: learning rate {rate:g}")
            jobs += [Job(task=task, name=name, recipe=recipe, rate=rate, seed=seed, is_test=True) for seed in seeds]
    found: dict[tuple[str, str], list[tuple[Point, ...]]] = {}
    for job, points in zip(jobs, curves.of(jobs), strict=True):
        found.setdefault((job.task.name, job.name), []).append(tuple(points))
    rates = {(job.task.name, job.name): job.rate for job in jobs}
    return [
        Compared(task=task, name=name, rate=rates[task, name], tried=tried.get((task, name), {}), curves=tuple(runs))
        for (task, name), runs in found.items()
    ]


def _trials(task: Task, name: str, recipe: Recipe) -> list[Job]:
    if len(recipe.rates) == 1:
        return []
    short = replace(recipe, steps=recipe.tune_steps)
    return [
        Job(task=task, name=name, recipe=short, rate=rate, seed=TUNING_SEED, is_test=False) for rate in recipe.rates
    ]


def _best(recipe: Recipe, tried: Mapping[float, float]) -> float:
    return min(tried, key=tried.__getitem__) if tried else recipe.rates[0]
