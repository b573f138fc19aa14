"""A line chart as SVG text, with linear or logarithmic axes. Written by hand: no plotting library is needed.

`sfnode.testnet.picture` draws the one picture of a run, with two panels and a step axis; this one draws any lines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sfnode import svg

WIDTH, HEIGHT = 960, 540
_LETTER = 7.8  # pixels that a letter of a line's name takes
LEFT, RIGHT, TOP, BOTTOM = 84, 800, 104, 470
STYLE = svg.LETTERING + "polyline{fill:none;stroke-linejoin:round;stroke-linecap:round;stroke-width:2.5}"
DASHED = "5 5"  # of a line that is there to compare with
_LABEL_GAP = 17  # pixels between names of lines that end close together

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis: its name, its kind, and its ticks as (value, label) unless they follow from the values."""

    name: str
    is_log: bool
    ticks: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points in order; without a name it has no label and no dots."""

    name: str
    points: tuple[Point, ...]
    colour: str
    dashes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Everything that a picture shows."""

    title: str
    note: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class _Scale:
    """Values to pixels along one axis."""

    is_log: bool
    values: tuple[float, float]
    pixels: tuple[float, float]

    def at(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.is_log else v for v in (*self.values, value))
        return self.pixels[0] + (self.pixels[1] - self.pixels[0]) * (value - low) / (high - low)


def render_chart(chart: Chart) -> str:
    """The picture as SVG text; the same chart gives the same bytes."""
    x = _Scale(chart.x.is_log, _range([p[0] for line in chart.lines for p in line.points], chart.x), (LEFT, RIGHT))
    y = _Scale(chart.y.is_log, _range([p[1] for line in chart.lines for p in line.points], chart.y), (BOTTOM, TOP))
    longest = max((len(line.name) for line in chart.lines), default=0)
    parts = [
        *svg.opened(max(WIDTH, RIGHT + 28 + int(_LETTER * longest)), HEIGHT, chart.title, STYLE),
        svg.text((LEFT, 44), chart.title, css="title", fill=svg.INK),
        svg.text((LEFT, 70), chart.note),
        *_grid(chart, x, y),
        *(part for line in chart.lines for part in _drawn(line, x, y)),
        *_names(chart, y),
        svg.CLOSED,
    ]
    return "\n".join(parts) + "\n"


def _range(values: list[float], axis: Axis) -> tuple[float, float]:
    """From the lowest to the highest value, rounded outwards on the value axis; a linear one starts at zero."""
    low, high = min(values), max(values)
    if not axis.is_log:
        return 0.0, high * 1.08
    return (low, high) if axis.name != "s" else (10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high)))


def _ticks(axis: Axis, values: tuple[float, float]) -> list[tuple[float, str]]:
    if axis.ticks:
        return list(axis.ticks)
    low, high = values
    if axis.is_log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        marks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    else:
        gap = 10 ** math.floor(math.log10(high / 3))
        gap *= next(factor for factor in (1, 2, 5, 10) if high / (factor * gap) <= 8)
        marks = [index * gap for index in range(int(high / gap) + 1)]
    return [(mark, f"{mark:,.10g}") for mark in marks if low * 0.999 <= mark <= high * 1.001]


def _grid(chart: Chart, x: _Scale, y: _Scale) -> list[str]:
    parts = []
    for value, label in _ticks(chart.y, y.values):
        parts.append(svg.level(LEFT, RIGHT, y.at(value), svg.GRID))
        parts.append(svg.text((LEFT - 10, y.at(value) + 4.5), label, anchor="end"))
    parts.append(svg.level(LEFT, RIGHT, BOTTOM, svg.MUTED))
    for value, label in _ticks(chart.x, x.values):
        parts.append(svg.tick((x.at(value), BOTTOM), svg.MUTED))
        parts.append(svg.text((x.at(value), BOTTOM + 21), label, anchor="middle"))
    return [*parts, svg.text(((LEFT + RIGHT) / 2, BOTTOM + 46), chart.x.name, anchor="middle")]


def _drawn(line: Line, x: _Scale, y: _Scale) -> list[str]:
    places = [(x.at(value), y.at(other)) for value, other in line.points]
    dashes = f' stroke-dasharray="{line.dashes}" stroke-opacity="0.55"' if line.dashes else ""
    dots = [svg.dot(place, line.colour) for place in places if line.name]
    return [svg.polyline(places, f'stroke="{line.colour}"{dashes}'), *dots]


def _names(chart: Chart, y: _Scale) -> list[str]:
    """Each line's name at its right end, moved apart where they would cover each other."""
    ends = sorted((y.at(line.points[-1][1]), line.name, line.colour) for line in chart.lines if line.name)
    parts, last = [], -math.inf
    for place, name, colour in ends:
        last = max(place, last + _LABEL_GAP)
        parts.append(svg.text((RIGHT + 14, last + 4.5), name, css="strong", fill=colour))
    return parts
