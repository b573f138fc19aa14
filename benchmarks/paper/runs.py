"""Trials in processes of one thread each, and their curves on disk: what was computed once is not computed again."""

from __future__ import annotations

import json
import multiprocessing
import re
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch

from benchmarks.learn.jobs import prepare_process
from benchmarks.learn.problems import Folders, ModelChoice, Task
from benchmarks.measures import Stopwatch, say
from benchmarks.paper.contest import Curve, Trial, World, entries_of, play

TUNING_SEED = 100  # none of those reported


class Runs:
    """Curves of trials, from disk or computed; remove the folder after a change of the program."""

    def __init__(self, folders: Folders, kept: Path, processes: int) -> None:
        self._play = partial(_kept_or_played, folders=folders, kept=kept)
        self._processes = processes
        kept.mkdir(parents=True, exist_ok=True)

    def of(self, trials: Sequence[Trial]) -> list[Curve]:
        """One curve for each, in their order."""
        if self._processes == 1:
            torch.set_num_threads(1)
            return [self._play(trial) for trial in trials]
        context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
        with ProcessPoolExecutor(self._processes, mp_context=context, initializer=prepare_process) as pool:
            return list(pool.map(self._play, trials))

    def grids(
        self, model: ModelChoice, tasks: Sequence[Task], names: Sequence[str], world: World
    ) -> dict[tuple[str, str], dict[float, float]]:
        """By task and method: the loss after each learning rate's trial, on the tuning file; none where
        `sfnode init` suggests the rate."""
        trials = [
            Trial(
                name=name,
                task=task,
                rate=rate,
                seed=TUNING_SEED,
                steps=entry.tune_steps,
                looks=1,
                is_test=False,
                world=world,
                model=model,
            )
            for task in tasks
            for name, entry in entries_of(model).items()
            if name in names
            for rate in entry.rates
        ]
        found: dict[tuple[str, str], dict[float, float]] = {(task.name, name): {} for task in tasks for name in names}
        for trial, curve in zip(trials, self.of(trials), strict=True):
            assert trial.rate is not None
            found[trial.task.name, trial.name][trial.rate] = curve.loss[-1]
        return found


def best(losses: dict[float, float]) -> float | None:
    """The rate with the lowest loss; None: what is suggested. A loss that is not a number is the worst."""
    return min(losses, key=lambda rate: (losses[rate] != losses[rate], losses[rate])) if losses else None


def _kept_or_played(trial: Trial, *, folders: Folders, kept: Path) -> Curve:
    network = entries_of(trial.model)[trial.name].network
    subject = json.dumps([asdict(trial), network and asdict(network)], sort_keys=True)
    name = re.sub(r"[^a-zA-Z0-9.]+", "-", trial.title)
    path = kept / f"{name}-{sha256(subject.encode()).hexdigest()[:12]}.json"
    if not path.exists():
        watch = Stopwatch()
        with watch.part(trial.name):
            curve = play(trial, folders)
        say(f"{trial.title}: {watch.total:,.0f} s of computing")
        unfinished = path.with_suffix(".part")
        kept_now = {"cpu_s": round(watch.total, 1), "curve": asdict(curve)}
        unfinished.write_text(json.dumps(kept_now) + "\n", "utf-8")
        unfinished.replace(path)
    return Curve(**json.loads(path.read_text("utf-8"))["curve"])
