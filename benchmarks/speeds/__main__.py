"""Machines of unequal speed in one run: all wait, slow ones skip rounds, or slow ones measure fewer rows.

    python -m benchmarks.speeds --write docs

A quarter of an hour of one core.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

import click
import numpy as np
import torch

from benchmarks import places, svg
from benchmarks.charts import Axis, Chart, Line, render_chart
from benchmarks.command_line import Benchmark, write_option
from benchmarks.learn.page import fill
from benchmarks.learn.problems import DEVICES, REAL_TASKS, Folders
from benchmarks.learn.recipes import real_tasks
from benchmarks.measures import report
from benchmarks.one_pass.laboratory import CALIBRATION_ROWS, late_layers, make_laboratory
from benchmarks.one_pass.training import look
from benchmarks.speeds.race import Fleet, Policy, Race, SpeedCurve, SpeedTrial

PICTURE: Final = "speeds.svg"
_FLEET: Final = Fleet(name="10, 1 and 0.1 rows a second", row_ms={100: 2, 1_000: 2, 10_000: 2})


@dataclass(frozen=True, slots=True, kw_only=True)
class Raced:
    """What one policy came to on one task, by seed; ``card``: as in `benchmarks.learn.curves.Point`."""

    task: str
    policy: str
    curves: list[SpeedCurve]
    card: str = ""

    def at(self, place: int) -> tuple[float, float]:
        """Return the median accuracy in percent and loss of a look over the seeds."""
        return median(each.accuracy[place] for each in self.curves), median(each.loss[place] for each in self.curves)


def race(folders: Folders, task: str, *, seeds: int, pool: int, seconds: int) -> list[Raced]:
    """Let each policy run with each seed; a seed has its own basis and order of the rows."""
    rows = pool + CALIBRATION_ROWS
    drawn = late_layers(folders, REAL_TASKS[task], np.random.default_rng(1_000), rows=rows, dtype=torch.bfloat16)
    curves: dict[Policy, list[SpeedCurve]] = {policy: [] for policy in Policy}
    start = None
    for seed in range(seeds):
        lab = make_laboratory(*drawn, np.random.default_rng(seed).permutation(rows).tolist(), seed)
        start = start or look(lab.test, lab.basis, lab.basis.zero(), 0)
        for policy in Policy:
            trial = SpeedTrial(fleet=_FLEET, policy=policy, seed=seed, seconds=seconds)
            curves[policy].append(Race(trial, lab, start).play())
    return [Raced(task=task, policy=policy.value, curves=of, card=folders.card) for policy, of in curves.items()]


def table(found: Sequence[Raced]) -> list[str]:
    """Return lines of Markdown."""
    looks = [f"{seconds:,.0f} s" for seconds in found[0].curves[0].seconds]
    heads = ("task", "policy", "steps", "rows by speed", *looks, "ends")
    rows = []
    for each in found:
        first = each.curves[0]
        measured = " + ".join(f"{count:,}" for _, count in sorted(first.rows.items()))
        seen = [f"{accuracy:.1f} ({loss:.3f})" for accuracy, loss in map(each.at, range(len(looks)))]
        ends = ", ".join(f"{curve.accuracy[-1]:.1f}" for curve in each.curves)
        rows.append((each.task, each.policy, f"{first.steps:,}", measured, *seen, ends))
    lines = [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]
    return [*lines, "", f"Measured on an {found[0].card}."] if found[0].card else lines


def picture(found: Sequence[Raced]) -> str:
    """Draw the first task's accuracy against virtual time, as SVG."""
    colours = dict(zip(Policy, (svg.MUTED, svg.ORANGE, svg.BLUE), strict=True))
    lines = [
        Line(
            name=each.policy,
            points=tuple((second, each.at(place)[0]) for place, second in enumerate(each.curves[0].seconds)),
            colour=colours[Policy(each.policy)],
        )
        for each in found
        if each.task == found[0].task
    ]
    chart = Chart(
        title=f"Two machines each of {_FLEET.name}",
        note=f"{found[0].task}: accuracy against virtual time; median of the seeds",
        x=Axis(name="virtual seconds", is_log=False),
        y=Axis(name="accuracy in %", is_log=False),
        lines=tuple(lines),
    )
    return render_chart(chart)


def write(found: Sequence[Raced], docs: Path) -> None:
    """Renew docs/learning/speeds.json, the picture, and the measured part of docs/learning.md."""
    folder = docs / "learning"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "speeds.json").write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n", "utf-8")
    (folder / PICTURE).write_text(picture(found), "utf-8")
    page = docs / "learning.md"
    page.write_text(fill(page.read_text("utf-8"), {"speeds": table(found)}), "utf-8")


@click.command(cls=Benchmark)
@click.option("--tasks", default="sst2", show_default=True, help="Learn these, separated by commas.")
@click.option("--seeds", default=3, show_default=True, help="Repeat with this many seeds.")
@click.option("--seconds", default=180, show_default=True, help="Let each run last for this virtual time.")
@click.option("--pool", default=3_840, show_default=True, help="Draw from this many training rows.")
@places.data_option
@click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True, help="Compute on this.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@write_option
def main(
    tasks: str, seeds: int, seconds: int, pool: int, data: Path, device: str, as_json: bool, docs: Path | None
) -> None:
    """Accuracy against time where machines differ in speed."""
    folders = Folders(data=data, models=places.MODELS, device=device)
    names = [task.name for task in real_tasks(tasks, folders)]
    found = [each for name in names for each in race(folders, name, seeds=seeds, pool=pool, seconds=seconds)]
    if docs:
        write(found, docs)
    report({"speeds": found}, as_json=as_json, lines=table(found))


if __name__ == "__main__":
    main()
