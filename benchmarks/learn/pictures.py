"""The pictures of docs/learning.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import svg
from benchmarks.charts import DASHED, Axis, Chart, Line, render_chart
from benchmarks.learn.comparison import Compared, rate_title
from benchmarks.learn.results import Results, is_first_order, median_curve, targets
from benchmarks.learn.scaling import Scaled

TITLES = {"sst2": "SST-2", "rte": "RTE", "trec": "TREC", "agnews": "AG News"}


def task_title(name: str) -> str:
    """For people."""
    return TITLES.get(name, name)


def draw_pictures(results: Results, folder: Path, prefix: str = "") -> list[str]:
    """Write a picture for each task, and one of the clients if there are any; returns the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    goals = targets(results.compared)
    charts = {
        task: _task_chart(task, [each for each in results.compared if each.task == task], goals.get(task))
        for task in dict.fromkeys(each.task for each in results.compared)
    }
    if results.scaled:
        charts["clients"] = _clients_chart(results.scaled)
    for name, chart in charts.items():
        (folder / f"{prefix}{name}.svg").write_text(render_chart(chart), "utf-8")
    return [f"{prefix}{name}.svg" for name in charts]


def _task_chart(task: str, compared: Sequence[Compared], goal: float | None) -> Chart:
    lines = []
    for each in compared:
        points = _percent(median_curve(each.curves))
        lines.append(Line(name=each.name, points=points, dashes=DASHED if is_first_order(each.name) else ""))
    if goal is not None:
        ends = [line.points[place][0] for line in lines for place in (0, -1)]
        level = ((min(ends), 100 * goal), (max(ends), 100 * goal))
        lines.append(Line(name="", points=level, colour=svg.MUTED, dashes="2 6"))
    return Chart(
        title=f"{task_title(task)}: accuracy against forward rows",
        note="%, median of the seeds; dashed: back-propagation" + ("" if goal is None else "; dotted: MeZO at its end"),
        x=Axis(name="forward rows", is_log=True),
        y=Axis(name="%", is_log=False),
        lines=tuple(lines),
    )


def _clients_chart(scaled: Sequence[Scaled]) -> Chart:
    first = scaled[0]
    chosen = [each for each in scaled if (each.rate, each.factor) == (first.rate, first.factor)]
    lines = []
    for each in chosen:
        steps = [point.step for point in each.curves[0]]
        accuracies = [accuracy for _, accuracy in median_curve(each.curves)]
        points = tuple((step, 100 * accuracy) for step, accuracy in zip(steps, accuracies, strict=True) if step)
        lines.append(Line(name=_clients(each.clients), points=points))
    return Chart(
        title="More clients, the same learning rate for every message",
        note=f"accuracy in % against steps, rate {rate_title(first.rate, first.factor)}; median of the seeds",
        x=Axis(name="steps", is_log=True),
        y=Axis(name="%", is_log=False),
        lines=tuple(lines),
    )


def _clients(number: int) -> str:
    return f"{number} client" + ("s" if number > 1 else "")


def _percent(points: Sequence[tuple[int, float]]) -> tuple[tuple[float, float], ...]:
    """Without the start: a logarithm has no zero."""
    return tuple((rows, 100 * accuracy) for rows, accuracy in points if rows)
