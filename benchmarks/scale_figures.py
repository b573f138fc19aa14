"""The pictures of docs/scale.md, from the result of `benchmarks.scale`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.charts import DASHED, Axis, Chart, Line, Point, render_chart
from sfnode import svg

COLOURS = (svg.TEAL, svg.ORANGE, svg.BLUE, svg.OCHRE)


def draw_pictures(result: Mapping[str, Any], folder: Path) -> None:
    """Write time.svg, traffic.svg and hops.svg into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, chart in (
        ("time", _time(result["sizes"])),
        ("traffic", _traffic(result["sizes"])),
        ("hops", _hops(result["hop_limits"])),
    ):
        (folder / f"{name}.svg").write_text(render_chart(chart), "utf-8")


def _time(rows: list[dict[str, Any]]) -> Chart:
    lines = []
    for colour, (graph, found) in zip(COLOURS, _by_graph(rows).items(), strict=False):
        measured = tuple((row["nodes"], row["all_ms"] / 1e3) for row in found)
        bound = tuple((row["nodes"], row["way_max"] * _DELAY_S) for row in found)
        lines += [
            Line(name=graph, points=measured, colour=colour),
            Line(name="", points=bound, colour=colour, dashes=DASHED),
        ]
    return Chart(
        title="Until every node holds an update",
        note="seconds; dashed: longest way in hops x 60 ms, the mean delay of a link",
        x=Axis(name="nodes", is_log=True),
        y=Axis(name="s", is_log=True),
        lines=tuple(lines),
    )


def _traffic(rows: list[dict[str, Any]]) -> Chart:
    return Chart(
        title="Flooded bytes for each update and node",
        note="bytes with frame headers; one record has 124",
        x=Axis(name="nodes", is_log=True),
        y=Axis(name="bytes", is_log=False),
        lines=_lines(rows, lambda row: (row["nodes"], row["flood_bytes"])),
    )


def _hops(rows: list[dict[str, Any]]) -> Chart:
    return Chart(
        title="Until all of 64 nodes hold an update, against the hop limit",
        note="seconds; after k hops the flood ends and anti-entropy brings the rest; far right: no limit",
        x=Axis(
            name="hop limit k", is_log=True, ticks=((1, "1"), (2, "2"), (4, "4"), (8, "8"), (_UNLIMITED_AT, "none"))
        ),
        y=Axis(name="s", is_log=True),
        lines=_lines(rows, lambda row: (row["hops_max"] or _UNLIMITED_AT, row["all_ms"] / 1e3)),
    )


_DELAY_S = 0.06
_UNLIMITED_AT = 16


def _lines(rows: list[dict[str, Any]], place: Callable[[dict[str, Any]], Point]) -> tuple[Line, ...]:
    """A line for each kind of graph through the places of its rows."""
    return tuple(
        Line(name=graph, points=tuple(map(place, found)), colour=colour)
        for colour, (graph, found) in zip(COLOURS, _by_graph(rows).items(), strict=False)
    )


def _by_graph(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["graph"], []).append(row)
    return found
