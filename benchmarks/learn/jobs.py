"""Runs in processes of one thread each, and their curves on disk: what was computed once is not computed again.

A kept curve is used where model, task, recipe, rate and seed are the same; after a change of the program, of a default,
or of a user's data, remove the folder.
"""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch

from benchmarks.learn.curves import Job, Point, play
from benchmarks.learn.problems import Folders
from benchmarks.learn.trials import Recipe
from benchmarks.measures import Stopwatch, say
from sfnode.training.allocator import keep_freed_memory

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")
Player = Callable[[Job, Folders], list[Point]]

_DIGEST_LETTERS = 12


class Curves:
    """The curves of jobs, and other figures, from disk or computed.

    Args:
        folders: of data and models.
        kept: folder of curves on disk.
        processes: how many compute at once.
        player: computes a curve; None: `play`. A function of a module, so that other processes find it.
    """

    def __init__(self, folders: Folders, kept: Path, processes: int, player: Player | None = None) -> None:
        self._play = partial(_kept_or_played, folders=folders, kept=kept, player=player)
        self._kept, self._processes = kept, processes
        kept.mkdir(parents=True, exist_ok=True)

    def of(self, jobs: Sequence[Job]) -> list[list[Point]]:
        """One curve for each job, in their order."""
        if self._processes == 1:
            torch.set_num_threads(1)
            return [self._play(job) for job in jobs]
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        with ProcessPoolExecutor(self._processes, mp_context=context, initializer=prepare_process) as pool:
            return list(pool.map(self._play, jobs))

    def measured(self, title: str, subject: Mapping[str, object], measure: Callable[[], T], kind: type[T]) -> T:
        """What ``measure`` finds of ``subject``, an instance of the dataclass ``kind``."""
        path = self._kept / f"{_as_name(title)}-{_digest(subject)}.json"
        if not path.exists():
            say(f"{title}: measuring")
            _write(path, asdict(measure()))
        return kind(**json.loads(path.read_text("utf-8")))


def prepare_process() -> None:
    """One thread; freed memory is kept, which asked for anew takes longer than the sums in it."""
    torch.set_num_threads(1)
    keep_freed_memory()


def _kept_or_played(job: Job, *, folders: Folders, kept: Path, player: Player | None) -> list[Point]:
    description = _describe(job)
    digest = _digest(description)
    for known in kept.glob(f"*-{digest}.json"):  # of the same run, under whatever name
        return [Point(**point) for point in json.loads(known.read_text("utf-8"))["points"]]
    path = kept / f"{_as_name(job.title)}-{digest}.json"
    watch = Stopwatch()
    with watch.part(job.name):
        points = (player or play)(job, folders)
    say(f"{job.title}: {watch.total:,.0f} s of computing")
    _write(path, {"job": description, "cpu_s": round(watch.total, 1), "points": [asdict(point) for point in points]})
    return points


def _as_name(title: str) -> str:
    return re.sub(r"[^a-zA-Z0-9.]+", "-", title)


def _write(path: Path, document: Mapping[str, object]) -> None:
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    unfinished.replace(path)


def _describe(job: Job) -> dict[str, object]:
    """Everything that a curve depends on; not how settings came about, nor how a recipe is called.

    Values that are defaults are left out, so that a new setting leaves the curves kept without it in force.
    """
    recipe = {name: value for name, value in _not_defaults(job.recipe).items() if name not in ("rates", "tune_steps")}
    described = {name: value for name, value in _not_defaults(job).items() if name != "name"}
    if "model" in described:
        described["model"] = asdict(job.model)
    return {**described, "kind": type(job.recipe).__name__, "recipe": recipe, "task": asdict(job.task)}


def _not_defaults(value: Job | Recipe) -> dict[str, object]:
    return {each.name: held for each in fields(value) if (held := getattr(value, each.name)) != each.default}


def _digest(description: Mapping[str, object]) -> str:
    return sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:_DIGEST_LETTERS]
