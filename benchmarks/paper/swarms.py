"""The paper's figure 4 and table 2: accuracy against the number of clients, of SeedFlood and of its rivals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Final

from benchmarks import svg
from benchmarks.charts import DASHED, Axis, Chart, Line, render_chart
from benchmarks.learn.page import table
from benchmarks.learn.problems import Task
from benchmarks.paper.contest import ENTRIES, OURS, SEEDFLOOD, Curve, Trial, World
from benchmarks.paper.runs import Runs

PICTURE: Final = "swarms.svg"
SIZES: Final = (4, 16, 32, 128)
_TUNED: Final = 16  # clients for which the rates were chosen
_ONCE: Final = (32, 128)  # so many clients have the first seed alone, and so have the graphs below
_GRAPHS_ONCE: Final = ("random 4", "star")
_COLOURS: Final = {"DSGD": svg.MUTED, "DSGD-LoRA": svg.PURPLE, SEEDFLOOD: svg.BLUE, OURS: svg.TEAL}
# Four in a grid are a ring, and whoever floods has the same bits on any graph.
SETTINGS: Final = (
    *((name, "ring", size) for size in SIZES for name in _COLOURS),
    *(("DSGD", "torus", size) for size in (_TUNED, max(SIZES))),
    *(("DSGD", graph, _TUNED) for graph in _GRAPHS_ONCE),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """A method with so many clients on a graph: a curve for each seed."""

    name: str
    graph: str
    clients: int
    rate: float | None
    curves: list[Curve]

    @property
    def accuracy(self) -> float:
        """After the last step, the mean over the seeds."""
        return mean(curve.accuracy[-1] for curve in self.curves)

    @property
    def title(self) -> str:
        """Method and graph, for people: a torus is a grid whose edges meet."""
        return f"{self.name}, {'grid' if self.graph == 'torus' else self.graph}"


def swarms(
    task: Task, rates: Mapping[str, float | None], seeds: Sequence[int], runs: Runs, steps: int | None = None
) -> list[Swarm]:
    """Every method with every number of clients, at the rates that were chosen for sixteen.

    Gossip takes means, so that a rate suits any number. SeedFlood's messages add up: its rate is divided among them.

    Args:
        rates: by method; those that are not in it are left out.
        steps: of every run; None: as many as the comparison makes.
    """
    settings = [each for each in SETTINGS if each[0] in rates]
    trials = {
        (name, graph, clients, seed): Trial(
            name=name,
            task=task,
            rate=_rate(name, rates[name], clients),
            seed=seed,
            steps=steps or ENTRIES[name].steps,
            is_test=True,
            world=World(clients=clients, graph=graph),
        )
        # the longest first: neither process waits long for the other at the end
        for name, graph, clients in sorted(settings, key=lambda setting: -setting[2])
        for seed in (seeds[:1] if clients in _ONCE or graph in _GRAPHS_ONCE else seeds)
    }
    played = dict(zip(trials, runs.of([*trials.values()]), strict=True))
    return [
        Swarm(
            name=name,
            graph=graph,
            clients=clients,
            rate=_rate(name, rates[name], clients),
            curves=[curve for key, curve in played.items() if key[:3] == (name, graph, clients)],
        )
        for name, graph, clients in settings
    ]


def _rate(name: str, rate: float | None, clients: int) -> float | None:
    return rate if name != SEEDFLOOD or rate is None else rate * _TUNED / clients


def swarm_part(found: Sequence[Swarm]) -> list[str]:
    """Lines of Markdown: accuracy at the end, and its difference from DSGD's with as many clients on a ring."""
    usual = {each.clients: each.accuracy for each in found if each.title == "DSGD, ring"}
    cells = {(each.title, each.clients): _cell(each, usual.get(each.clients)) for each in found}
    titles = dict.fromkeys(each.title for each in found)
    rows = [(title, *(cells.get((title, clients), "") for clients in SIZES)) for title in titles]
    return table(("", *(f"{clients} clients" for clients in SIZES)), rows)


def _cell(swarm: Swarm, usual: float | None) -> str:
    each = ", ".join(f"{100 * curve.accuracy[-1]:.1f}" for curve in swarm.curves)
    text = f"{100 * swarm.accuracy:.1f} % ({each})" if len(swarm.curves) > 1 else f"{each} %"
    return text if usual is None else f"{text}; {100 * (swarm.accuracy - usual):+.1f}"


def swarm_picture(found: Sequence[Swarm]) -> str:
    """Accuracy at the end against the number of clients, as SVG; dashed: on a grid. One number alone is no line."""
    sizes = Counter(each.title for each in found)
    lines = tuple(
        Line(
            name=title,
            points=tuple((float(each.clients), 100 * each.accuracy) for each in found if each.title == title),
            colour=_COLOURS[title.rpartition(", ")[0]],
            dashes="" if title.endswith("ring") else DASHED,
        )
        for title, count in sizes.items()
        if count > 1
    )
    chart = Chart(
        title="SST-2: accuracy against the number of clients",
        note="% after the last step, mean of the seeds; dashed: on a grid",
        x=Axis(name="clients", is_log=True, ticks=tuple((float(clients), str(clients)) for clients in SIZES)),
        y=Axis(name="%", is_log=False),
        lines=lines,
    )
    return render_chart(chart)
