"""All that was measured, as plain data for the files in docs/learning, and the figures that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import NotRequired, TypeAlias, TypedDict

from benchmarks.learn.comparison import Compared
from benchmarks.learn.curves import Point, first_reach
from benchmarks.learn.noise import Noise
from benchmarks.learn.recipes import MEZO, REAL_RECIPES, RECIPES
from benchmarks.learn.scaling import Scaled
from benchmarks.learn.trials import BackPropagation

Curve = Sequence[Point]
PlainCurves: TypeAlias = list[list[list[float]]]  # a point is [step, rows, accuracy, loss]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Everything of one call.

    Attributes:
        model: title of what learnt.
        seeds: of the reported runs.
        noise: by task.
        compared: every recipe on every task.
        scaled: more clients, on one task.
        cheats: runs in which some of the clients cheat.
        metric: the run whose objective is the accuracy itself, and what it is compared with.
    """

    model: str
    seeds: tuple[int, ...]
    noise: dict[str, Noise]
    compared: tuple[Compared, ...]
    scaled: tuple[Scaled, ...]
    cheats: tuple[Compared, ...]
    metric: tuple[Compared, ...]


class PlainCompared(TypedDict):
    """`Compared` in JSON."""

    task: str
    name: str
    rate: float | None
    tried: dict[str, float]
    curves: PlainCurves
    cards: NotRequired[list[str]]  # by curve: as in `Point`


class PlainScaled(TypedDict):
    """`Scaled` in JSON."""

    clients: int
    rate: float | None
    factor: float
    curves: PlainCurves
    cards: NotRequired[list[str]]


class PlainResults(TypedDict):
    """`Results` in JSON."""

    model: str
    seeds: list[int]
    noise: dict[str, dict[str, float]]
    compared: list[PlainCompared]
    scaled: list[PlainScaled]
    cheats: list[PlainCompared]
    metric: list[PlainCompared]


def to_plain(results: Results) -> PlainResults:
    """For JSON."""
    return {
        "model": results.model,
        "seeds": list(results.seeds),
        "noise": {task: asdict(noise) for task, noise in results.noise.items()},
        "compared": [_compared_plain(each) for each in results.compared],
        "scaled": [
            {
                "clients": each.clients,
                "rate": each.rate,
                "factor": each.factor,
                "curves": _curves_plain(each.curves),
                "cards": _cards(each.curves),
            }
            for each in results.scaled
        ],
        "cheats": [_compared_plain(each) for each in results.cheats],
        "metric": [_compared_plain(each) for each in results.metric],
    }


def from_plain(plain: PlainResults) -> Results:
    """The inverse of `to_plain`."""
    return Results(
        model=plain["model"],
        seeds=tuple(plain["seeds"]),
        noise={task: Noise(**noise) for task, noise in plain["noise"].items()},
        compared=tuple(_compared(each) for each in plain["compared"]),
        scaled=tuple(
            Scaled(clients=each["clients"], rate=each["rate"], factor=each["factor"], curves=_curves(each))
            for each in plain["scaled"]
        ),
        cheats=tuple(_compared(each) for each in plain["cheats"]),
        metric=tuple(_compared(each) for each in plain["metric"]),
    )


def renewed(old: Results, new: Results) -> Results:
    """``old`` with everything in it that was measured anew, and what is new: a call may ask for a part alone."""
    if old.model != new.model:
        return new
    scaled = {(each.factor, each.rate or 0.0, each.clients): each for each in (*old.scaled, *new.scaled)}
    return replace(
        new,
        noise={**old.noise, **new.noise},
        compared=_by_name(old.compared, new.compared),
        scaled=tuple(scaled[key] for key in sorted(scaled)),
        cheats=_by_name(old.cheats, new.cheats),
        metric=_by_name(old.metric, new.metric),
    )


def _by_name(old: Sequence[Compared], new: Sequence[Compared]) -> tuple[Compared, ...]:
    """In the order of the old ones."""
    return tuple({(each.task, each.name): each for each in (*old, *new)}.values())


def _compared_plain(compared: Compared) -> PlainCompared:
    return {
        "task": compared.task,
        "name": compared.name,
        "rate": compared.rate,
        "tried": {str(rate): round(loss, 4) for rate, loss in compared.tried.items()},
        "curves": _curves_plain(compared.curves),
        "cards": _cards(compared.curves),
    }


def _compared(plain: PlainCompared) -> Compared:
    tried = {float(rate): loss for rate, loss in plain["tried"].items()}
    return Compared(task=plain["task"], name=plain["name"], rate=plain["rate"], tried=tried, curves=_curves(plain))


def _curves_plain(curves: Iterable[Curve]) -> PlainCurves:
    return [[[point.step, point.rows, point.accuracy, point.loss] for point in curve] for curve in curves]


def _cards(curves: Iterable[Curve]) -> list[str]:
    return [curve[-1].card for curve in curves]


def _curves(plain: PlainCompared | PlainScaled) -> tuple[tuple[Point, ...], ...]:
    curves, cards = plain["curves"], plain.get("cards") or [""] * len(plain["curves"])
    return tuple(
        tuple(
            Point(step=int(step), rows=int(rows), accuracy=accuracy, loss=loss, card=card)
            for step, rows, accuracy, loss in curve
        )
        for curve, card in zip(curves, cards, strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """When one recipe on one task had what MeZO has at its end.

    Attributes:
        rows: by seed, None where it did not; the median counts those as infinitely many.
        share: median rows / MeZO's rows in all; None where the median seed did not reach it.
    """

    task: str
    name: str
    rows: tuple[int | None, ...]
    share: float | None


def targets(compared: Iterable[Compared]) -> dict[str, float]:
    """Accuracy to reach, by task: MeZO's after its last step, median over the seeds."""
    return {each.task: at_end(each) for each in compared if each.name == MEZO}


def at_end(compared: Compared) -> float:
    """Accuracy after the last step, median over the seeds."""
    return median(curve[-1].accuracy for curve in compared.curves)


def reached(compared: Sequence[Compared]) -> list[Reached]:
    """Every recipe on every task that MeZO ran on."""
    goals = targets(compared)
    spent = {each.task: each.curves[0][-1].rows for each in compared if each.name == MEZO}
    found = []
    for each in compared:
        if each.task not in goals:
            continue
        points = [first_reach(curve, goals[each.task]) for curve in each.curves]
        rows = tuple(None if point is None else point.rows for point in points)
        middle = median(float("inf") if row is None else row for row in rows)
        share = None if middle == float("inf") else middle / spent[each.task]
        found.append(Reached(task=each.task, name=each.name, rows=rows, share=share))
    return found


def median_curve(curves: Sequence[Curve]) -> list[tuple[int, float]]:
    """(rows, accuracy), the median over the seeds at each evaluation."""
    return [(points[0].rows, median(point.accuracy for point in points)) for points in zip(*curves, strict=True)]


def is_first_order(name: str) -> bool:
    """Whether the recipe back-propagates at every step: a ceiling, not a competitor."""
    return isinstance({**REAL_RECIPES, **RECIPES}.get(name), BackPropagation)
