"""The paper's figure 5 and table 4: the time to take in updates, and where a step's time goes.

    python -m benchmarks.paper.figures --write docs

A minute or two; CPU seconds, so that other programs on the machine count little.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from benchmarks import places, svg
from benchmarks.charts import DASHED, Axis, Chart, Line, render_chart
from benchmarks.command_line import Benchmark, write_option
from benchmarks.learn.page import fill
from benchmarks.learn.problems import SMALL, SMOLLM2, Folders, ModelChoice, load
from benchmarks.measures import report
from benchmarks.paper.apply_time import PAPER, ApplyTime, apply_times
from benchmarks.paper.step_split import StepSplit, bases_by_method, split_of

SHAPES: Final = ("opt-125m", "opt-1.3b")
PICTURE: Final = "apply.svg"
_COLOURS: Final = {SHAPES[0]: svg.BLUE, SHAPES[1]: svg.ORANGE}


def splits(folders: Folders, choice: ModelChoice) -> list[StepSplit]:
    """Both methods on one model."""
    model = load(folders, choice)
    return [split_of(model, choice.title, name, bases) for name, bases in bases_by_method(model).items()]


def apply_part(found: Sequence[ApplyTime]) -> list[str]:
    """Lines of Markdown."""
    counts = list(found[0].seconds)
    heads = ("", *(f"{count:,}" for count in counts), "fold once", f"rebuild {counts[-1]:,}", "ratio")
    rows = [
        (
            f"{each.shape}, {each.method}",
            *(_time(each.seconds[count]) for count in counts),
            _time(each.fold_seconds),
            _time(counts[-1] * each.rebuilt_seconds),
            f"{each.ratio(counts[-1]):,.0f}",
        )
        for each in found
    ]
    return _table(heads, rows)


def split_part(found: Sequence[StepSplit]) -> list[str]:
    """Lines of Markdown."""
    names = list(found[0].parts)
    heads = ("", "a step", *names)
    rows = [
        (
            f"{each.model}, {each.method}",
            _time(each.total),
            *(f"{_time(seconds)} ({100 * seconds / each.total:.1f} %)" for seconds in each.parts.values()),
        )
        for each in found
    ]
    return _table(heads, rows)


def picture(found: Sequence[ApplyTime]) -> str:
    """Time against updates of the paper's method, as SVG; dashed: directions drawn anew."""
    lines = []
    for each in (each for each in found if each.method == PAPER):
        summed = tuple((float(count), 1e3 * seconds) for count, seconds in each.seconds.items())
        rebuilt = tuple((float(count), 1e3 * count * each.rebuilt_seconds) for count in each.seconds)
        colour = _COLOURS[each.shape]
        lines += [
            Line(name=f"{each.shape}: summed", points=summed, colour=colour),
            Line(name=f"{each.shape}: rebuilt", points=rebuilt, colour=colour, dashes=DASHED),
        ]
    chart = Chart(
        title="Time to take in updates",
        note="CPU milliseconds of one thread; dashed: every direction drawn anew and added to all weights",
        x=Axis(name="updates", is_log=True, ticks=tuple((float(count), f"{count:,}") for count in found[0].seconds)),
        y=Axis(name="ms", is_log=True),
        lines=tuple(lines),
    )
    return render_chart(chart)


def write(applied: Sequence[ApplyTime], split: Sequence[StepSplit], docs: Path) -> None:
    """docs/paper/figures.json, the picture, and the measured parts of docs/paper.md."""
    folder = docs / "paper"
    folder.mkdir(parents=True, exist_ok=True)
    kept = {"apply": [asdict(each) for each in applied], "split": [asdict(each) for each in split]}
    (folder / "figures.json").write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    (folder / PICTURE).write_text(picture(applied), "utf-8")
    page = docs / "paper.md"
    measured = {"apply": apply_part(applied), "split": split_part(split)}
    page.write_text(fill(page.read_text("utf-8"), measured), "utf-8")


def _time(seconds: float) -> str:
    """Three digits: microseconds, milliseconds, seconds or hours."""
    rounded = float(f"{seconds:.3g}")
    for size, unit in ((3_600, "h"), (1, "s"), (1e-3, "ms")):
        if abs(rounded) >= size:
            return f"{float(f'{rounded / size:.3g}'):,g} {unit}"
    return f"{1e6 * rounded:.3g} us"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


@click.command(cls=Benchmark)
@click.option("--models", type=click.Path(path_type=Path), default=places.MODELS, help="Folder of the small model.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@write_option
def main(models: Path, as_json: bool, docs: Path | None) -> None:
    """Time to take in updates, and where a step's time goes."""
    folders = Folders(data=models, models=models)
    for choice in (SMALL, SMOLLM2):
        folders.check(choice, ())
    split = [each for choice in (SMALL, SMOLLM2) for each in splits(folders, choice)]
    applied = [each for shape in SHAPES for each in apply_times(shape)]
    if docs:
        write(applied, split, docs)
    lines = ["Updates", "", *apply_part(applied), "", "A step", "", *split_part(split)]
    report({"apply": applied, "split": split}, as_json=as_json, lines=lines)


if __name__ == "__main__":
    main()
