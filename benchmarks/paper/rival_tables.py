"""The measured parts of docs/paper.md, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Final

from benchmarks.charts import DASHED, Axis, Chart, Line, Point, render_chart
from benchmarks.learn.page import table
from benchmarks.learn.pictures import task_title
from benchmarks.paper.accounting import Account
from benchmarks.paper.consensus import Consensus
from benchmarks.paper.contest import Curve

_UNITS: Final = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalCurves:
    """A method on a task: the loss after each learning rate's trial, the rate that was taken, a curve for each seed."""

    name: str
    task: str
    rate: float | None
    grid: dict[str, float]
    curves: list[Curve]


def parts(
    found: Sequence[RivalCurves], accounts: Sequence[Account], agreed: Sequence[Consensus]
) -> dict[str, list[str]]:
    """Lines of Markdown by the name of the mark."""
    return {
        "rivals": _rivals(found),
        "rates": _rates(found),
        "accounting": _accounting(accounts),
        "consensus": _consensus(agreed),
    }


def real_parts(found: Sequence[RivalCurves]) -> dict[str, list[str]]:
    """The same of a real model, of which only the comparison is measured."""
    return {"real rivals": _rivals(found), "real rates": _rates(found)}


def picture(found: Sequence[RivalCurves]) -> str:
    """Accuracy against bytes over an edge on the first task, as SVG; what sends nothing is a level line."""
    first = [each for each in found if each.task == found[0].task]
    sending = [each for each in first if each.curves[0].sent_bytes[-1]]
    ends = [place for each in sending for place, _ in _points(each)]
    lines = [Line(name=each.name, points=_points(each)) for each in sending]
    for each in first:
        if each not in sending:
            level = 100 * _end(each)
            points = ((min(ends), level), (max(ends), level))
            lines.append(Line(name=each.name, points=points, dashes=DASHED))
    chart = Chart(
        title=f"{task_title(found[0].task)}: accuracy against bytes over one edge",
        note="%, 16 clients on a ring, mean of the seeds; dashed: one machine that has all data, and sends nothing",
        x=Axis(name="bytes over an edge in one direction", is_log=True, ticks=_ticks(min(ends), max(ends))),
        y=Axis(name="%", is_log=False),
        lines=tuple(lines),
    )
    return render_chart(chart)


def _points(compared: RivalCurves) -> tuple[Point, ...]:
    """Means of the seeds; without the start, at which nothing has been sent: a logarithm has no zero."""
    first = compared.curves[0]
    heights = zip(*(curve.accuracy for curve in compared.curves), strict=True)
    return tuple((sent, 100 * mean(height)) for sent, height in zip(first.sent_bytes, heights, strict=True) if sent)


def _ticks(low: float, high: float) -> tuple[tuple[float, str], ...]:
    marks = (10.0**power for power in range(2, 16))
    return tuple((mark, described(mark)) for mark in marks if low <= mark <= high)


def described(count: float) -> str:
    """Bytes for people."""
    for size, unit in _UNITS:
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count:.0f} B"


def _end(compared: RivalCurves) -> float:
    return mean(curve.accuracy[-1] for curve in compared.curves)


def _spread(compared: RivalCurves) -> str:
    """Mean at the end, and the seeds' standard deviation."""
    ends = [100 * curve.accuracy[-1] for curve in compared.curves]
    return f"{mean(ends):.1f}" + (f" +- {stdev(ends):.1f} %" if len(ends) > 1 else " %")


def _rivals(found: Sequence[RivalCurves]) -> list[str]:
    lines: list[str] = []
    for task in dict.fromkeys(each.task for each in found):
        rows = [
            (
                each.name,
                str(each.curves[0].steps[-1]),
                described(each.curves[0].sent_bytes[-1]) if each.curves[0].sent_bytes[-1] else "nothing",
                f"{_spread(each)} ({', '.join(f'{100 * curve.accuracy[-1]:.1f}' for curve in each.curves)})",
                f"{100 * max(mean(seen) for seen in zip(*(c.accuracy for c in each.curves), strict=True)):.1f} %",
                f"{mean(curve.loss[-1] for curve in each.curves):.3f}",
                f"{mean(curve.disagreement for curve in each.curves):.2g}",
            )
            for each in found
            if each.task == task
        ]
        heads = ("", "steps", "bytes over an edge", "at the end (each seed)", "at its best", "loss", "disagreement")
        lines += [f"**{task_title(task)}**", "", *table(heads, rows), ""]
    return lines[:-1]


def _rates(found: Sequence[RivalCurves]) -> list[str]:
    tasks = [*dict.fromkeys(each.task for each in found)]
    cells = {(each.name, each.task): _grid(each) for each in found}
    names = dict.fromkeys(each.name for each in found)
    rows = [(name, *(cells.get((name, task), "") for task in tasks)) for name in names]
    return table(("", *map(task_title, tasks)), rows)


def _grid(compared: RivalCurves) -> str:
    if compared.rate is None:
        return "suggested"
    taken = f"{compared.rate:g}"
    return ", ".join(
        f"{'**' + rate + '**' if rate == taken else rate}: {loss:.3f}" for rate, loss in compared.grid.items()
    )


def _accounting(accounts: Sequence[Account]) -> list[str]:
    rows = [
        (each.name, "" if each.paper is None else described(each.paper), described(each.counted), each.formula)
        for each in accounts
    ]
    return table(("", "the paper", "here", "which is"), rows)


def _consensus(agreed: Sequence[Consensus]) -> list[str]:
    heads = ("graph", "clients", "rounds of flooding, until nobody lacks it", "rounds of gossip, to a hundredth")
    return table(
        heads, [(each.graph, str(each.clients), str(each.flood_rounds), f"{each.gossip_rounds:,}") for each in agreed]
    )
