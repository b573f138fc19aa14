"""The measured part of docs/rewards.md, and its pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from benchmarks.charts import DASHED, Axis, Chart, Line, render_chart
from benchmarks.learn.page import fill, table
from benchmarks.rewards.runs import Run, merged_runs, run_of
from benchmarks.rewards.tasks import REWARD_TASKS, SAMPLES

ALONE = "alone"
_FILE = "runs.json"
_TITLES = {ALONE: "the model alone", "network": "this network", "LoRA": "*LoRA, back-propagation*"}
_HEADS = (
    "task",
    "",
    "strictly right, %",
    "each seed",
    "reward",
    "answers",
    "tokens forward",
    "plain text",
    "minutes",
)


def table_of(runs: Sequence[Run]) -> list[str]:
    """Lines of Markdown: a row for each task and method, medians of the seeds."""
    if not runs:
        return ["Not measured yet."]
    rows = []
    for task in (name for name in REWARD_TASKS if any(run.task == name for run in runs)):
        for method in dict.fromkeys(run.method for run in runs if run.task == task):
            rows += _rows(task, method, [run for run in runs if (run.task, run.method) == (task, method)])
    models = ", ".join(dict.fromkeys(run.model for run in runs))
    cards = sorted({run.course.card or "CPU" for run in runs})
    return [f"Model: {models}; computed on {', '.join(cards)}.", "", *table(_HEADS, rows)]


def _rows(task: str, method: str, runs: Sequence[Run]) -> list[tuple[str, ...]]:
    about = f"{task}: {REWARD_TASKS[task].about}"
    if method == ALONE:
        return [
            _row(about, _TITLES[ALONE], runs, 0),
            _row(about, f"best of {SAMPLES}, chosen by the check", runs, 1),
        ]
    return [_row(about, _TITLES.get(method, method), runs, -1)]


def _row(about: str, name: str, runs: Sequence[Run], place: int) -> tuple[str, ...]:
    courses = [run.course for run in runs]
    strict = [100 * course.strict[place] for course in courses]
    moved = [100 * (course.plain[place] / course.plain[0] - 1) for course in courses]
    return (
        about,
        name,
        f"{median(strict):.1f}",
        ", ".join(f"{each:.1f}" for each in strict),
        f"{median(course.reward[place] for course in courses):.2f}",
        f"{courses[0].answers[place]:,}",
        f"{median(course.tokens[place] for course in courses):,.0f}",
        f"{median(moved):+.1f} %",
        f"{median(course.seconds[place] for course in courses) / 60:.1f}",
    )


def draw(runs: Sequence[Run], folder: Path) -> None:
    """Write a picture of each task that was learnt: how many answers are strictly right, over the answers made."""
    folder.mkdir(parents=True, exist_ok=True)
    for task in dict.fromkeys(run.task for run in runs if run.method != ALONE):
        learnt = [run for run in runs if run.task == task and run.method != ALONE]
        (folder / f"{task}.svg").write_text(render_chart(_chart(task, learnt)), "utf-8")


def _chart(task: str, runs: Sequence[Run]) -> Chart:
    lines = []
    for method in dict.fromkeys(run.method for run in runs):
        courses = [run.course for run in runs if run.method == method]
        points = tuple(
            (float(answers[0]), 100 * median(strict))
            for answers, strict in zip(
                zip(*(course.answers for course in courses), strict=False),
                zip(*(course.strict for course in courses), strict=False),
                strict=False,
            )
        )
        lines.append(Line(name=method, points=points, dashes=DASHED if method == "LoRA" else ""))
    return Chart(
        title=f"{REWARD_TASKS[task].about}: held-out answers that are strictly right",
        note="%, of the likeliest answers, median of the seeds; dashed: back-propagation",
        x=Axis(name="answers", is_log=False),
        y=Axis(name="%", is_log=False),
        lines=tuple(lines),
    )


def write_docs(runs: Sequence[Run], docs: Path) -> list[Run]:
    """Renew docs/rewards.md with its pictures; what is there and was not measured now stays. Returns all runs."""
    folder = docs / "rewards"
    kept = folder / _FILE
    known = [run_of(each) for each in json.loads(kept.read_text("utf-8"))] if kept.exists() else []
    runs = merged_runs(known, runs)
    draw(runs, folder)
    lines = ",\n".join(json.dumps(asdict(run), separators=(",", ":")) for run in runs)
    kept.write_text(f"[{lines}]\n", "utf-8")
    page = docs / "rewards.md"
    page.write_text(fill(page.read_text("utf-8"), {"rewards": table_of(runs)}), "utf-8")
    return runs
