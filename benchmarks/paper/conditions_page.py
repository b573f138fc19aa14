"""Tables and pictures of the conditions, for docs/paper.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from benchmarks.charts import Axis, Chart, Line, render_chart
from benchmarks.learn.comparison import Compared
from benchmarks.learn.page import rates_tried, table

_HEADS: tuple[str, ...] = (
    "",
    "rate: loss of each that was tried",
    "steps",
    "accuracy in % (each seed)",
    "loss",
    "best on the way",
)
_SENT = "messages that were sent"
_TITLES = {
    "rank": "Rank and refresh of the subspace",
    "delay": "Updates that travel k hops in a step",
    "clients": "More clients",
}


def tables(found: Mapping[str, Sequence[Compared]]) -> dict[str, list[str]]:
    """Lines of Markdown by the name of the mark."""
    return {name: _part(compared) for name, compared in found.items()}


def _part(compared: Sequence[Compared]) -> list[str]:
    start = compared[0].curves[0][0]
    seeds = len(max(compared, key=lambda each: len(each.curves)).curves)
    heads, rows = _HEADS, [_row(each) for each in compared]
    sent = [each.curves[0][-1].sent for each in compared]
    if any(sent):
        heads = (*heads, _SENT)
        rows = [(*row, "all" if count is None else f"{count:,}") for row, count in zip(rows, sent, strict=True)]
    return [
        f"From {100 * start.accuracy:.1f} % (loss {start.loss:.2f}); means of up to {seeds} seeds.",
        "",
        *table(heads, rows),
    ]


def _row(compared: Compared) -> tuple[str, ...]:
    ends = [curve[-1] for curve in compared.curves]
    each = ", ".join(f"{100 * end.accuracy:.1f}" for end in ends)
    best = mean(max(point.accuracy for point in curve) for curve in compared.curves)
    return (
        compared.name,
        rates_tried(compared),
        str(ends[0].step),
        f"{100 * mean(end.accuracy for end in ends):.1f} ({each})",
        f"{mean(end.loss for end in ends):.3f}",
        f"{100 * best:.1f}",
    )


def draw(found: Mapping[str, Sequence[Compared]], folder: Path) -> None:
    """A picture of each part that has one: the paper's method alone, whose runs are of one length."""
    for name, title in _TITLES.items():
        if name not in found:
            continue
        longest = max(each.curves[0][-1].step for each in found[name])
        same = [each for each in found[name] if each.curves[0][-1].step == longest and "default" not in each.name]
        (folder / f"{name}.svg").write_text(render_chart(_chart(title, same)), "utf-8")


def _chart(title: str, compared: Sequence[Compared]) -> Chart:
    lines = tuple(Line(name=each.name, points=_course(each)) for each in compared)
    return Chart(
        title=title,
        note="SST-2, accuracy in % against steps; mean of the seeds",
        x=Axis(name="steps", is_log=False),
        y=Axis(name="%", is_log=False),
        lines=lines,
    )


def _course(compared: Compared) -> tuple[tuple[float, float], ...]:
    points = zip(*compared.curves, strict=True)
    return tuple((float(each[0].step), 100 * mean(point.accuracy for point in each)) for each in points)
