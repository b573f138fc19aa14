"""The figures of `benchmarks.scale`, and the pictures of docs/scale.md from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.charts import DASHED, PALETTE, Axis, Chart, Line, Point, render_chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One experiment.

    Attributes:
        graph: name in GRAPHS.
        nodes: how many.
        hops_max: floods end after so many hops; the rest is left to anti-entropy. None: no limit.
        updates: how many in all, from ``authors`` sources spread over the graph.
        per_second: how many a second, over all authors.
    """

    graph: str
    nodes: int
    hops_max: int | None = None
    updates: int = 40
    authors: int = 8
    per_second: int = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Setting):
    """An experiment and what was measured in it.

    Attributes:
        degree, way_median, way_max: of the graph; the ways are hops from the sources to all nodes.
        median_ms, most_ms, all_ms: until half, 99 % and all of the nodes held an update; medians over the updates.
        worst_ms: until all held the slowest update.
        copies: times that a node received an update, mean.
        flood_bytes, pull_bytes, sync_bytes: per update and node.
        frames: flood frames per update and node.
        head_bytes_s: per node and second.
        cpu_us: per update and node, for receiving, checking, storing, forwarding and summing it.
        idle_cpu_us_s: per node and second, for ticks and heads alone.
    """

    degree: float
    way_median: float
    way_max: int
    median_ms: float
    most_ms: float
    all_ms: float
    worst_ms: float
    copies: float
    flood_bytes: float
    pull_bytes: float
    sync_bytes: float
    frames: float
    head_bytes_s: float
    cpu_us: float
    idle_cpu_us_s: float


def draw_pictures(sizes: Sequence[Found], hop_limits: Sequence[Found], folder: Path) -> None:
    """Write time.svg, traffic.svg and hops.svg into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, chart in (
        ("time", _time(sizes)),
        ("traffic", _traffic(sizes)),
        ("hops", _hops(hop_limits)),
    ):
        (folder / f"{name}.svg").write_text(render_chart(chart), "utf-8")


def _time(rows: Sequence[Found]) -> Chart:
    lines = []
    for colour, (graph, found) in zip(PALETTE, _by_graph(rows).items(), strict=False):
        measured = tuple((row.nodes, row.all_ms / 1e3) for row in found)
        bound = tuple((row.nodes, row.way_max * _DELAY_S) for row in found)
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


def _traffic(rows: Sequence[Found]) -> Chart:
    return Chart(
        title="Flooded bytes for each update and node",
        note="bytes with frame headers; one record has 124",
        x=Axis(name="nodes", is_log=True),
        y=Axis(name="bytes", is_log=False),
        lines=_lines(rows, lambda row: (row.nodes, row.flood_bytes)),
    )


def _hops(rows: Sequence[Found]) -> Chart:
    return Chart(
        title="Until all of 64 nodes hold an update, against the hop limit",
        note="seconds; after k hops the flood ends and anti-entropy brings the rest; far right: no limit",
        x=Axis(
            name="hop limit k", is_log=True, ticks=((1, "1"), (2, "2"), (4, "4"), (8, "8"), (_UNLIMITED_AT, "none"))
        ),
        y=Axis(name="s", is_log=True),
        lines=_lines(rows, lambda row: (row.hops_max or _UNLIMITED_AT, row.all_ms / 1e3)),
    )


_DELAY_S = 0.06
_UNLIMITED_AT = 16


def _lines(rows: Sequence[Found], place: Callable[[Found], Point]) -> tuple[Line, ...]:
    """A line for each kind of graph through the places of its rows."""
    return tuple(Line(name=graph, points=tuple(map(place, found))) for graph, found in _by_graph(rows).items())


def _by_graph(rows: Sequence[Found]) -> dict[str, list[Found]]:
    found: dict[str, list[Found]] = {}
    for row in rows:
        found.setdefault(row.graph, []).append(row)
    return found
