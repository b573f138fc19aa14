"""A line chart as SVG text, drawn by matplotlib, with linear or logarithmic axes and each line's name at its end."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from benchmarks import svg

# Twelve colours that differ in lightness, too, and a mark for each, so that no two lines look alike in grey.
PALETTE = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#6a3d9a", "#b8860b"),
    *("#e31a1c", "#1f9bcf", "#33a02c", "#8c564b", "#4d4d4d", "#999900"),
)
MARKS = "os^Dv<>Pp*Xh"
DASHED = "5 5"  # of a line that is there to compare with
_INCHES = (9.6, 5.4)
_PLOT = (0.075, 0.105, 0.70, 0.745)  # left, bottom, width and height of the plot, as shares of the picture
_NAME_GAP = 0.042  # of the plot's height, between names of lines that end close together

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: its name, its kind, and its ticks as (value, label) unless they follow from the values."""

    name: str
    is_log: bool
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points in order; without a name it has no label and no marks, without a colour the next one of the palette."""

    name: str
    points: tuple[Point, ...]
    colour: str = ""
    dashes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Everything that a picture shows."""

    title: str
    note: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]


def render_chart(chart: Chart) -> str:
    """The picture as SVG text; the same chart gives the same bytes."""
    with mpl.rc_context({"svg.hashsalt": "sfnode", "svg.fonttype": "none", "font.size": 10}):
        figure = Figure(figsize=_INCHES)
        axes = figure.add_axes(_PLOT)
        figure.text(_PLOT[0], 0.945, chart.title, fontsize=15, fontweight="bold", color=svg.INK)
        figure.text(_PLOT[0], 0.895, chart.note, color=svg.MUTED)
        _set_axes(axes, chart)
        colours = itertools.cycle(PALETTE)
        ends = []
        for line, mark in zip(chart.lines, itertools.cycle(MARKS), strict=False):
            colour = line.colour or next(colours)
            _draw(axes, line, colour, mark if line.name else "")
            if line.name:
                ends.append((line.points[-1], line.name, colour))
        _name(axes, ends)
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Title": chart.title})
    return "".join(f"{row.rstrip()}\n" for row in written.getvalue().splitlines())


def _set_axes(axes: Axes, chart: Chart) -> None:
    """Give both axes their scales and ticks; they span the values, so that differences fill the picture."""
    for axis, ours, scale in ((axes.xaxis, chart.x, axes.set_xscale), (axes.yaxis, chart.y, axes.set_yscale)):
        if ours.is_log:
            scale("log")
        axis.set_minor_locator(NullLocator())
        axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=20) if ours.is_log else MaxNLocator(8))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        if ours.ticks:
            axis.set_major_locator(FixedLocator([value for value, _ in ours.ticks]))
            labels = dict(ours.ticks)
            axis.set_major_formatter(FuncFormatter(lambda value, _, labels=labels: labels.get(value, "")))
    axes.set_xlabel(chart.x.name, color=svg.MUTED)
    axes.set_ylabel(chart.y.name, color=svg.MUTED)
    axes.tick_params(colors=svg.MUTED)
    axes.grid(visible=True, axis="y", color=svg.GRID)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _draw(axes: Axes, line: Line, colour: str, mark: str) -> None:
    pattern = (0, tuple(map(float, line.dashes.split()))) if line.dashes else "-"
    across, up = zip(*line.points, strict=True)
    axes.plot(across, up, color=colour, linestyle=pattern, linewidth=1.8, marker=mark, markersize=5)


def _name(axes: Axes, ends: Sequence[tuple[Point, str, str]]) -> None:
    """Write each line's name beside the plot, at the height where the line ends, and lead to it if it had to move."""
    axes.margins(x=0.02)
    axes.autoscale_view()
    places = [axes.transAxes.inverted().transform(axes.transData.transform(end)) for end, _, _ in ends]
    height = -_NAME_GAP
    crowd = sorted(zip(places, ends, strict=True), key=lambda each: float(each[0][1]))
    heights = []
    for (_, y), _ in crowd:
        height = max(float(y), height + _NAME_GAP)
        heights.append(height)
    lower = max(0.0, heights[-1] - 1.0) if heights else 0.0
    for height, ((x, y), (_, name, colour)) in zip(heights, crowd, strict=True):
        axes.annotate(
            name,
            xy=(float(x), float(y)),
            xytext=(1.025, height - lower),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=colour,
            fontweight="bold",
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "shrinkA": 1, "shrinkB": 4},
        )
