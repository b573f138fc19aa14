"""SeedFlood and its rivals in one laboratory: accuracy against bytes, and the paper's accounting.

    python -m benchmarks.paper --write docs

Sixteen clients on a ring teach a model of four million parameters, each method with its own grid of learning rates.
Curves are kept on disk as soon as they are computed: the command can be stopped and called again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from benchmarks.learn.page import fill
from benchmarks.learn.problems import SMALL, TASKS, Folders, Task
from benchmarks.measures import report
from benchmarks.paper.accounting import accounts
from benchmarks.paper.consensus import consensus
from benchmarks.paper.contest import ENTRIES, Trial, World
from benchmarks.paper.rival_tables import PICTURE, RivalCurves, parts, picture
from benchmarks.paper.runs import Runs, best
from benchmarks.sample_runs import Shape, manifest_of, sealed_records
from protocol.errors import OperatorError

_SHARED = Path(__file__).resolve().parents[3] / "shared"
_GRAPHS = ("ring", "torus", "random 4", "star")
_CLIENTS = (16, 32, 64, 128)
_QUICK_ROWS = 32
_QUICK_STEPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is compared, on which tasks, with which seeds."""

    names: tuple[str, ...]
    tasks: tuple[Task, ...]
    seeds: tuple[int, ...]
    world: World
    is_quick: bool

    def trial(self, name: str, task: Task, rate: float | None, seed: int) -> Trial:
        """A run that is reported."""
        steps = _QUICK_STEPS if self.is_quick else ENTRIES[name].steps
        return Trial(name=name, task=task, rate=rate, seed=seed, steps=steps, is_test=True, world=self.world)


def compare(plan: Plan, runs: Runs) -> list[RivalCurves]:
    """Every method on every task: the grid, then the seeds with the best rate."""
    found = []
    for task in plan.tasks:
        grids = {name: dict.fromkeys(ENTRIES[name].rates[:1], 0.0) for name in plan.names}
        if not plan.is_quick:
            grids = runs.grid(task, plan.names, plan.world)
        rates = {name: best(grid) for name, grid in grids.items()}
        trials = [plan.trial(name, task, rates[name], seed) for seed in plan.seeds for name in plan.names]
        curves = dict(zip(trials, runs.of(trials), strict=True))
        found += [
            RivalCurves(
                name=name,
                task=task.name,
                rate=rates[name],
                grid={f"{rate:g}": loss for rate, loss in grids[name].items()},
                curves=[curve for trial, curve in curves.items() if trial.name == name],
            )
            for name in plan.names
        ]
    return found


def write(found: Sequence[RivalCurves], docs: Path) -> None:
    """docs/paper/results.json, the picture, and the measured parts of docs/paper.md."""
    folder = docs / "paper"
    folder.mkdir(parents=True, exist_ok=True)
    rows = [json.dumps(asdict(each), separators=(",", ":")) for each in found]
    (folder / "results.json").write_text("[" + ",\n".join(rows) + "]\n", "utf-8")
    (folder / PICTURE).write_text(picture(found), "utf-8")
    page = docs / "paper.md"
    page.write_text(fill(page.read_text("utf-8"), _measured(found)), "utf-8")


def _measured(found: Sequence[RivalCurves]) -> dict[str, list[str]]:
    manifest = manifest_of(Shape(authors=1, steps=1))
    one = replace(manifest, method=replace(manifest.method, directions=1))
    record = next(iter(sealed_records(one, Shape(authors=1, steps=1))))
    agreed = [consensus(graph, clients) for graph in _GRAPHS for clients in _CLIENTS]
    return parts(found, accounts(record), agreed)


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=_SHARED / "data", help="Folder of sst2 and so on.")
@click.option("--models", type=click.Path(path_type=Path), default=_SHARED / "models", help="Folder of the model.")
@click.option("--work", type=click.Path(path_type=Path), default=Path("build/paper"), show_default=True)
@click.option("--tasks", default="sst2,trec,agnews", show_default=True, help="Which tasks.")
@click.option("--only", default=",".join(ENTRIES).replace(", ", " "), help="Which methods; without it, all.")
@click.option("--seeds", default="0,1,2", show_default=True, help="Seeds to report.")
@click.option("--jobs", default=2, show_default=True, help="Processes, of one thread each.")
@click.option("--quick", "is_quick", is_flag=True, help="Minutes, to try the program; learns nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--write", "docs", type=click.Path(path_type=Path, file_okay=False), help="Folder docs, to be renewed.")
def main(
    data: Path,
    models: Path,
    work: Path,
    tasks: str,
    only: str,
    seeds: str,
    jobs: int,
    is_quick: bool,
    as_json: bool,
    docs: Path | None,
) -> None:
    """SeedFlood, its rivals and both ends of the scale: accuracy against bytes over an edge."""
    folders = Folders(data=data, models=models)
    try:
        plan = Plan(
            names=_chosen(only, [*ENTRIES]),
            tasks=tuple(TASKS[name] for name in _chosen(tasks, [*TASKS])),
            seeds=tuple(map(int, seeds.split(","))),
            world=World(),
            is_quick=is_quick,
        )
        if is_quick:
            world, first = replace(plan.world, clients=4), replace(plan.tasks[0], test_rows=_QUICK_ROWS)
            plan = replace(plan, world=world, tasks=(first,), seeds=(0,))
        folders.check(SMALL, plan.tasks)
        found = compare(plan, Runs(folders, work / ("quick" if is_quick else "curves"), jobs))
    except OperatorError as error:
        raise click.ClickException(str(error)) from None
    if docs:
        write(found, docs)
    lines = [line for name, part in _measured(found).items() for line in ("", name, "", *part)]
    report(found, as_json=as_json, lines=lines)


def _chosen(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Names separated by commas; a comma within a name may be left out. OperatorError."""
    short = {name.replace(",", ""): name for name in known}
    unknown = [name for name in text.split(",") if name not in short]
    if unknown:
        raise OperatorError(f"{unknown[0]!r} is not known: choose from {', '.join(short)}")
    return tuple(short[name] for name in text.split(","))


if __name__ == "__main__":
    main()
