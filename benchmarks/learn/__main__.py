"""How much is learnt for each forward row, on real data, and what more clients bring.

    python -m benchmarks.learn --write docs

Three tasks, three seeds, and for every recipe the learning rates to choose from (recipes.py). Curves are kept on disk
as soon as they are computed, so the command can be stopped and called again. Add a configuration and only that runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from benchmarks.learn.comparison import Compared, compare
from benchmarks.learn.jobs import Curves
from benchmarks.learn.noise import NOISE_EXAMPLES, measure_noise
from benchmarks.learn.page import fill, parts
from benchmarks.learn.pictures import draw_pictures
from benchmarks.learn.problems import TASKS, Folders, Task
from benchmarks.learn.recipes import (
    CHEATS,
    CHEATS_TASK,
    METRIC_TASK,
    METRICS,
    NETWORKS,
    RECIPES,
    SCALED,
    SCALED_TASK,
    Recipe,
)
from benchmarks.learn.results import Results, to_plain
from benchmarks.learn.scaling import FACTORS, STEPS, Scaled, scale
from benchmarks.measures import report
from protocol.errors import OperatorError

QUICK_STEPS = 12
QUICK_ROWS = 64
QUICK_CLIENTS = (1, 4)
_SHARED = Path(__file__).resolve().parents[3] / "shared"


def quick(recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    """So short that only the program is tried: nothing is learnt."""
    return {name: replace(recipe, steps=QUICK_STEPS, rates=recipe.rates[:1]) for name, recipe in recipes.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is to be measured: names in TASKS and RECIPES, seeds to report."""

    tasks: tuple[str, ...]
    recipes: tuple[str, ...]
    seeds: tuple[int, ...]
    is_quick: bool

    def check(self) -> None:
        """OperatorError for a name that is not known."""
        for option, names, known in (("tasks", self.tasks, TASKS), ("recipes", self.recipes, RECIPES)):
            if unknown := [name for name in names if name not in known]:
                raise OperatorError(f"--{option} {unknown[0]!r}: known are {', '.join(known)}")


def measure_all(folders: Folders, curves: Curves, choice: Choice) -> Results:
    """Everything, the comparison first."""
    shorten = quick if choice.is_quick else dict
    tasks = {name: _task(name, choice) for name in choice.tasks}
    recipes = {name: RECIPES[name] for name in choice.recipes}
    compared = compare(shorten(recipes), list(tasks.values()), choice.seeds, curves)
    examples = QUICK_ROWS if choice.is_quick else NOISE_EXAMPLES
    metric_tasks = [tasks[name] for name in (METRIC_TASK,) if name in tasks]
    cheats_tasks = [tasks[name] for name in (CHEATS_TASK,) if name in tasks]
    return Results(
        seeds=choice.seeds,
        noise={name: measure_noise(folders, task, examples) for name, task in tasks.items()},
        compared=tuple(compared),
        scaled=tuple(_scaled(compared, choice, curves)),
        cheats=tuple(compare(shorten(CHEATS), cheats_tasks, choice.seeds, curves)),
        metric=tuple(compare(shorten(METRICS), metric_tasks, choice.seeds, curves)),
    )


def _task(name: str, choice: Choice) -> Task:
    return replace(TASKS[name], test_rows=QUICK_ROWS) if choice.is_quick else TASKS[name]


def _scaled(compared: Sequence[Compared], choice: Choice, curves: Curves) -> list[Scaled]:
    """At the rate that was chosen for one client, and at multiples of it; nothing where one client was not compared."""
    rates = [each.rate for each in compared if (each.task, each.name) == (SCALED_TASK, SCALED)]
    if not rates:
        return []
    recipe = replace(NETWORKS[SCALED], steps=QUICK_STEPS) if choice.is_quick else NETWORKS[SCALED]
    clients = QUICK_CLIENTS if choice.is_quick else tuple(STEPS)
    factors = [factor * rates[0] for factor in FACTORS]
    return scale(_task(SCALED_TASK, choice), recipe, factors, choice.seeds, clients, curves)


def write(results: Results, docs: Path) -> None:
    """docs/learning/results.json and the pictures, and the measured parts of docs/learning.md."""
    folder = docs / "learning"
    draw_pictures(results, folder)
    plain = to_plain(results)
    lines = [f'"{name}":{json.dumps(value, separators=(",", ":"))}' for name, value in plain.items()]
    (folder / "results.json").write_text("{" + ",\n".join(lines) + "}\n", "utf-8")
    page = docs / "learning.md"
    page.write_text(fill(page.read_text("utf-8"), results), "utf-8")


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=_SHARED / "data", help="Folder of sst2, trec, agnews.")
@click.option("--models", type=click.Path(path_type=Path), default=_SHARED / "models", help="Folder of the model.")
@click.option("--work", type=click.Path(path_type=Path), default=Path("build/learn"), show_default=True)
@click.option("--tasks", default=",".join(TASKS), show_default=True, help="Which tasks.")
@click.option("--recipes", default=",".join(RECIPES), show_default=True, help="What is compared.")
@click.option("--seeds", default="0,1,2", show_default=True, help="Seeds to report.")
@click.option("--jobs", default=2, show_default=True, help="Processes, of one thread each.")
@click.option("--quick", "is_quick", is_flag=True, help="A minute, to try the program; learns nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--write", "docs", type=click.Path(path_type=Path, file_okay=False), help="Folder docs, to be renewed.")
def main(
    data: Path,
    models: Path,
    work: Path,
    tasks: str,
    recipes: str,
    seeds: str,
    jobs: int,
    is_quick: bool,
    as_json: bool,
    docs: Path | None,
) -> None:
    """Learning curves of the network's method, MeZO, SubCGE and back-propagation; about an hour on two idle cores."""
    choice = Choice(
        tasks=(SCALED_TASK,) if is_quick else tuple(tasks.split(",")),
        recipes=tuple(recipes.split(",")),
        seeds=(0,) if is_quick else tuple(int(seed) for seed in seeds.split(",")),
        is_quick=is_quick,
    )
    folders = Folders(data=data, models=models)
    try:
        choice.check()
        folders.check(TASKS[name] for name in choice.tasks)
        results = measure_all(folders, Curves(folders, work / "curves", jobs), choice)
    except OperatorError as error:
        raise click.ClickException(str(error)) from None
    if docs:
        write(results, docs)
    lines = [line for name, part in parts(results).items() for line in ("", name, "", *part)]
    report(to_plain(results), as_json=as_json, lines=lines)


if __name__ == "__main__":
    main()
