"""The comparison: learning rates are chosen, then the reported seeds run, task by task and recipe by recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.learn.curves import Job, Point, settled
from benchmarks.learn.jobs import Curves
from benchmarks.learn.problems import Task
from benchmarks.learn.recipes import Study
from benchmarks.learn.trials import Recipe
from benchmarks.measures import say


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One recipe on one task.

    Attributes:
        rate: learning rate; None: what is suggested.
        tried: settled loss of each rate that was tried; empty where there was no choice.
        curves: one for each seed, on the test file.
    """

    task: str
    name: str
    rate: float | None
    tried: dict[float, float]
    curves: tuple[tuple[Point, ...], ...]


def compare(recipes: Mapping[str, Recipe], tasks: Sequence[Task], study: Study, curves: Curves) -> list[Compared]:
    """Every recipe on every task, with the model and the seeds of ``study``.

    All trials are computed first, then all reported runs, so that no process idles.
    """
    chosen = [(task, name) for task in tasks for name in recipes if study.seeds_of(task, name)]
    trials = [job for task, name in chosen for job in _trials(study, task, name, recipes[name])]
    tried: dict[tuple[str, str], dict[float, float]] = {}
    for job, points in zip(trials, curves.of(trials), strict=True):
        if job.rate is not None:
            tried.setdefault((job.task.name, job.name), {})[job.rate] = settled(points)
    jobs = []
    for task, name in chosen:
        rate = _best(recipes[name], tried.get((task.name, name), {}))
        say(f"{task.name} {name}: learning rate {rate_title(rate)}")
        job = study.job(task, name, recipes[name], rate)
        jobs += [replace(job, seed=seed, is_test=True) for seed in study.seeds_of(task, name)]
    found: dict[tuple[str, str], list[tuple[Point, ...]]] = {}
    for job, points in zip(jobs, curves.of(jobs), strict=True):
        found.setdefault((job.task.name, job.name), []).append(tuple(points))
    rates = {(job.task.name, job.name): job.rate for job in jobs}
    return [
        Compared(task=task, name=name, rate=rates[task, name], tried=tried.get((task, name), {}), curves=tuple(runs))
        for (task, name), runs in found.items()
    ]


def _trials(study: Study, task: Task, name: str, recipe: Recipe) -> list[Job]:
    if len(recipe.rates) < 2:
        return []
    short = replace(recipe, steps=recipe.tune_steps)
    return [study.job(task, name, short, rate) for rate in recipe.rates]


def _best(recipe: Recipe, tried: Mapping[float, float]) -> float | None:
    return min(tried, key=tried.__getitem__) if tried else next(iter(recipe.rates), None)


def rate_title(rate: float | None, factor: float = 1.0) -> str:
    """For people."""
    if rate is not None:
        return f"{rate:g}"
    return "suggested" if factor == 1 else f"{factor:g} x suggested"
