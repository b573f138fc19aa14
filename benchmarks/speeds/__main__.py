"""Machines of unequal speed in one run: all wait, slow ones skip rounds, or slow ones measure fewer rows.

    python -m benchmarks.speeds --write docs

A quarter of an hour of one core.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Final

import click

from benchmarks.charts import Axis, Chart, Line, render_chart
from benchmarks.learn.page import fill
from benchmarks.learn.problems import SMALL, Folders
from benchmarks.measures import report
from benchmarks.speeds.race import FLEETS, TASK, Fleet, Policy, Race, SpeedCurve, SpeedTrial
from protocol.errors import OperatorError
from sfnode import svg

PICTURE: Final = "speeds.svg"
_SHARED: Final = Path(__file__).resolve().parents[3] / "shared"
_SEEDS: Final = (0, 1, 2)
_TUNING_SEEDS: Final = (100, 101, 102)  # one alone takes a rate that breaks others
_FIRST_RATE: Final = 1.0  # as `sfnode init` suggests it


@dataclass(frozen=True, slots=True, kw_only=True)
class Raced:
    """What one policy came to in one fleet, at the rate that was best for it on the tuning file."""

    fleet: str
    policy: str
    rate: float
    curves: list[SpeedCurve]

    def at(self, look: int) -> tuple[float, float]:
        """Median loss and accuracy over the seeds."""
        return median(each.loss[look] for each in self.curves), median(each.accuracy[look] for each in self.curves)

    def seconds_to(self, loss: float) -> float | None:
        """Virtual seconds until the median loss is that low; None: never."""
        looks = range(len(self.curves[0].seconds))
        return next((self.curves[0].seconds[look] for look in looks if self.at(look)[0] <= loss), None)


def race(fleet: Fleet, policy: Policy, folders: Folders, *, rounds: int, is_quick: bool) -> Raced:
    """The rate is chosen on the tuning file with seeds of its own; then come the seeds that are reported."""

    def played(rate: float, seed: int, *, is_test: bool) -> SpeedCurve:
        trial = SpeedTrial(fleet=fleet, policy=policy, rate=rate, seed=seed, rounds=rounds, is_test=is_test)
        return Race(trial, folders).play()

    def tuned(rate: float) -> float:
        return mean(played(rate, seed, is_test=False).loss[-1] for seed in _TUNING_SEEDS)

    rate = _FIRST_RATE if is_quick else best_rate(tuned)
    curves = [played(rate, seed, is_test=True) for seed in (_SEEDS[:1] if is_quick else _SEEDS)]
    return Raced(fleet=fleet.name, policy=policy.value, rate=rate, curves=curves)


def best_rate(loss_of: Callable[[float], float]) -> float:
    """`_FIRST_RATE` doubled, then halved, for as long as the loss falls. A loss that is not a number is none."""
    losses = {_FIRST_RATE: loss_of(_FIRST_RATE)}
    best = _FIRST_RATE
    for factor in (2.0, 0.5):
        while (tried := best * factor) not in losses:
            losses[tried] = loss_of(tried)
            if not losses[tried] < losses[best]:
                break
            best = tried
    return best


def table(found: Sequence[Raced]) -> list[str]:
    """Lines of Markdown."""
    heads = (
        "speeds",
        "policy",
        "rate",
        "steps",
        "rows by speed",
        "loss",
        "accuracy",
        "the end of all wait",
    )
    rows = []
    for each in found:
        goal = next(other for other in found if other.fleet == each.fleet and other.policy == Policy.WAIT)
        seconds = each.seconds_to(goal.at(-1)[0])
        loss, accuracy = each.at(-1)
        measured = " + ".join(f"{count:,}" for _, count in sorted(each.curves[0].rows.items()))
        reached = "-" if seconds is None else f"{seconds:,.0f} s"
        cells = (f"{each.rate:g}", f"{each.curves[0].steps:,}", measured, f"{loss:.3f}", f"{100 * accuracy:.1f} %")
        rows.append((each.fleet, each.policy, *cells, reached))
    return [f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)]


def picture(found: Sequence[Raced]) -> str:
    """Loss against virtual time in the first fleet, as SVG."""
    colours = dict(zip(Policy, (svg.MUTED, svg.ORANGE, svg.BLUE), strict=True))
    lines = [
        Line(
            name=each.policy,
            points=tuple((second, each.at(look)[0]) for look, second in enumerate(each.curves[0].seconds)),
            colour=colours[Policy(each.policy)],
        )
        for each in found
        if each.fleet == found[0].fleet
    ]
    chart = Chart(
        title=f"Machines with speeds of {found[0].fleet}",
        note="Held-out loss against virtual time; median of the seeds",
        x=Axis(name="virtual seconds", is_log=False),
        y=Axis(name="loss", is_log=False),
        lines=tuple(lines),
    )
    return render_chart(chart)


def write(found: Sequence[Raced], docs: Path) -> None:
    """docs/paper/speeds.json, the picture, and the measured part of docs/paper.md."""
    folder = docs / "paper"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "speeds.json").write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n", "utf-8")
    (folder / PICTURE).write_text(picture(found), "utf-8")
    page = docs / "paper.md"
    page.write_text(fill(page.read_text("utf-8"), {"speeds": table(found)}), "utf-8")


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=_SHARED / "data", help="Folder of the data sets.")
@click.option(
    "--models", type=click.Path(path_type=Path), default=_SHARED / "models", help="Folder of the small model."
)
@click.option("--rounds", default=20, show_default=True, help="Of the machine in the middle.")
@click.option("--quick", "is_quick", is_flag=True, help="One rate, one seed: only to try it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--write", "docs", type=click.Path(path_type=Path, file_okay=False), help="Folder docs, to be renewed.")
def main(data: Path, models: Path, rounds: int, is_quick: bool, as_json: bool, docs: Path | None) -> None:
    """Loss against time where machines differ in speed."""
    folders = Folders(data=data, models=models)
    try:
        folders.check(SMALL, [TASK])
    except OperatorError as error:
        raise click.ClickException(str(error)) from None
    found = [race(fleet, policy, folders, rounds=rounds, is_quick=is_quick) for fleet in FLEETS for policy in Policy]
    if docs:
        write(found, docs)
    report({"speeds": found}, as_json=as_json, lines=table(found))


if __name__ == "__main__":
    main()
