"""The measured parts of docs/learning.md: what stands between a pair of marks is written here, the rest by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median

from benchmarks.learn.comparison import Compared, rate_title
from benchmarks.learn.curves import Point, first_reach
from benchmarks.learn.pictures import task_title
from benchmarks.learn.recipes import LORA
from benchmarks.learn.results import Curve, Reached, Results, at_end, is_first_order, median_curve, reached, targets
from benchmarks.learn.scaling import Scaled

Row = Sequence[str]


def fill(page: str, measured: Mapping[str, Sequence[str]]) -> str:
    """``page`` with every measured part renewed; ValueError when it has no place for one."""
    for name, lines in measured.items():
        pattern = re.compile(rf"(<!-- measured: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        body = "\n".join(lines) + "\n"
        page, count = pattern.subn(lambda found, body=body: found[1] + body + found[2], page)  # type: ignore[misc]
        if count != 1:
            raise ValueError(f"the page has {count} places for {name}")
    return page


def parts(results: Results) -> dict[str, list[str]]:
    """Of the small model: lines of Markdown by the name of the mark."""
    return {
        "noise": _noise(results),
        "reach": _reach(results),
        "rates": _rates(results),
        "clients": _clients(results.scaled, targets(results.compared).get("sst2")),
        "cheats": _ends(results.cheats),
        "metric": _ends(results.metric),
    }


def real_parts(results: Results) -> dict[str, list[str]]:
    """The same of a real model."""
    if not results.compared:
        names = ("real courses", "real rates", "real noise", "real clients")
        return {name: ["Not measured yet."] for name in names}
    single = next((each for each in results.scaled if each.clients == 1), None)
    goal = None if single is None else median(curve[-1].accuracy for curve in single.curves)
    return {
        "real courses": _courses(results),
        "real rates": _rates(results),
        "real noise": _noise(results),
        "real clients": [
            *_clients(results.scaled, goal),
            *_measured_on([(f"{each.clients} clients", each.curves) for each in results.scaled], results),
        ],
    }


def _courses(results: Results) -> list[str]:
    lines = [f"Model: {results.model}; seeds: {', '.join(map(str, results.seeds))}; medians, and each seed's end."]
    lines += _measured_on([(f"{task_title(each.task)} {each.name}", each.curves) for each in results.compared], results)
    for task in dict.fromkeys(each.task for each in results.compared):
        compared = [each for each in results.compared if each.task == task]
        alone = [curve[0] for each in compared for curve in each.curves if curve[0].rows == 0]
        rows = [
            (_name(each), rate_title(each.rate), _course(each), _ends_of(each), _share(each, compared))
            for each in compared
        ]
        of_model = f": the model alone has {_percent(alone[0].accuracy)} (loss {alone[0].loss:.2f})" if alone else ""
        lines += ["", f"**{task_title(task)}**{of_model}.", ""]
        lines += table(("", "rate", "forward rows: accuracy in % (loss)", "ends", "of LoRA's best gain"), rows)
        lines += ["", f"![{task_title(task)}: accuracy against forward rows](learning/real-{task}.svg)"]
    return lines


def _measured_on(rows: Sequence[tuple[str, Sequence[Curve]]], results: Results) -> list[str]:
    """A line for each graphics card: which seeds of which rows it computed. CPUs computed the others."""
    found: dict[str, list[str]] = {}
    for title, curves in rows:
        by_card: dict[str, list[str]] = {}
        for seed, curve in zip(results.seeds, curves, strict=False):
            by_card.setdefault(curve[-1].card, []).append(str(seed))
        for card, seeds in by_card.items():
            found.setdefault(card, []).append(f"{title} (seeds {', '.join(seeds)})")
    return [line for card, titles in found.items() if card for line in ("", f"On an {card}: {'; '.join(titles)}.")]


def _course(compared: Compared) -> str:
    """Medians of the seeds at each evaluation for which rows were spent."""
    return ", ".join(
        f"{points[0].rows:,}: {_percent(median(point.accuracy for point in points), '')} "
        f"({median(point.loss for point in points):.3f})"
        for points in zip(*compared.curves, strict=True)
        if points[0].rows
    )


def _ends_of(compared: Compared) -> str:
    return ", ".join(_percent(curve[-1].accuracy, "") for curve in compared.curves)


def _share(compared: Compared, others: Sequence[Compared]) -> str:
    """How much, at its end, of the most that LoRA gains over the model alone at any evaluation; medians."""
    lora = next((each for each in others if each.name == LORA), None)
    if lora is None:
        return "-"
    course = [accuracy for _, accuracy in median_curve(lora.curves)]
    alone, best = course[0], max(course)
    return f"{(at_end(compared) - alone) / (best - alone):.0%}" if best > alone else "-"


def _noise(results: Results) -> list[str]:
    rows = [(task_title(task), f"{noise.all:.1f}", f"{noise.linear:.1f}") for task, noise in results.noise.items()]
    return table(("task", "all parameters", "linear layers' weights"), rows)


def _reach(results: Results) -> list[str]:
    goals = targets(results.compared)
    by_name = {(each.task, each.name): each for each in reached(results.compared)}
    lines: list[str] = []
    for task, goal in goals.items():
        compared = [each for each in results.compared if each.task == task]
        rows = [_reach_row(each, by_name[task, each.name]) for each in compared]
        alone = _percent(_alone(compared[0]))
        lines += [f"**{task_title(task)}**: from {alone} to {_percent(goal)}, MeZO's last accuracy.", ""]
        heads = (
            "",
            f"forward rows to {_percent(goal)}",
            "each seed",
            "all of MeZO's rows / these",
            "at the end",
            "after rows",
        )
        lines += [*table(heads, rows), ""]
    return lines[:-1]


def _reach_row(compared: Compared, found: Reached) -> Row:
    ends = ", ".join(_percent(curve[-1].accuracy, "") for curve in compared.curves)
    middle = median(float("inf") if row is None else row for row in found.rows)
    return (
        _name(compared),
        _rows(None if middle == float("inf") else middle),
        ", ".join(_rows(row) for row in found.rows),
        "-" if not found.share else f"**{1 / found.share:.1f}**",
        f"{_percent(at_end(compared))} ({ends})",
        f"{compared.curves[0][-1].rows:,}",
    )


def _name(compared: Compared) -> str:
    return f"*{compared.name}*" if is_first_order(compared.name) else compared.name


def _rates(results: Results) -> list[str]:
    names = dict.fromkeys(each.name for each in results.compared)
    tasks = dict.fromkeys(each.task for each in results.compared)
    found = {(each.name, each.task): each for each in results.compared}
    rows = [
        (name, *(rates_tried(found[name, task]) if (name, task) in found else "-" for task in tasks)) for name in names
    ]
    return table(("", *map(task_title, tasks)), rows)


def rates_tried(compared: Compared) -> str:
    """Each rate with its loss, the chosen one bold."""
    if not compared.tried:
        return rate_title(compared.rate)
    return ", ".join(
        f"**{rate:g}**: {loss:.3f}" if rate == compared.rate else f"{rate:g}: {loss:.3f}"
        for rate, loss in compared.tried.items()
    )


def _clients(scaled: Sequence[Scaled], goal: float | None) -> list[str]:
    if goal is None or not scaled:
        return ["Not measured."]
    rows = [_clients_row(each, goal) for each in scaled]
    heads = ("clients", "rate", f"steps to {_percent(goal)}", "each seed", "rows of all", "best", "last", "last loss")
    return table(heads, rows)


def _clients_row(scaled: Scaled, goal: float) -> Row:
    points = [first_reach(curve, goal) for curve in scaled.curves]
    lasts = [curve[-1] for curve in scaled.curves]
    bests = [max(point.accuracy for point in curve) for curve in scaled.curves]
    return (
        str(scaled.clients),
        rate_title(scaled.rate, scaled.factor),
        _middle([None if point is None else point.step for point in points]),
        ", ".join(_rows(None if point is None else point.step) for point in points),
        _middle([None if point is None else point.rows for point in points]),
        _percent(median(bests)),
        f"{_percent(median(last.accuracy for last in lasts))} after {lasts[0].step}",
        f"{median(last.loss for last in lasts):.2f}",
    )


def _ends(compared: Sequence[Compared]) -> list[str]:
    rows = [
        (
            task_title(each.task),
            each.name,
            _percent(_alone(each)),
            f"{_percent(at_end(each))} ({', '.join(_percent(curve[-1].accuracy, '') for curve in each.curves)})",
            _losses(each.curves),
            f"{each.curves[0][-1].rows:,}",
        )
        for each in compared
    ]
    if not rows:
        return ["Not measured."]
    return table(("task", "", "before", "after", "loss from - to", "forward rows"), rows)


def _losses(curves: Sequence[Sequence[Point]]) -> str:
    return f"{curves[0][0].loss:.2f} - {median(curve[-1].loss for curve in curves):.2f}"


def _alone(compared: Compared) -> float:
    return compared.curves[0][0].accuracy


def _middle(values: Sequence[int | None]) -> str:
    middle = median(float("inf") if value is None else value for value in values)
    return _rows(None if middle == float("inf") else middle)


def _rows(value: float | None) -> str:
    return "not reached" if value is None else f"{value:,.0f}"


def _percent(share: float, unit: str = " %") -> str:
    return f"{100 * share:.1f}{unit}"


def table(heads: Row, rows: Sequence[Row]) -> list[str]:
    """Lines of Markdown."""
    return [_line(heads), _line(["---"] * len(heads)), *(_line(row) for row in rows)]


def _line(cells: Row) -> str:
    return "| " + " | ".join(cells) + " |"
