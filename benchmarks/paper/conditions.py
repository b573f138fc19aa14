"""Where SeedFlood holds and where it breaks: rank and refresh, late delivery, more clients, uneven or few examples, and
a network that was split.

    python -m benchmarks.paper.conditions --write docs

Sixteen clients teach SST-2 to a model of four million parameters. Curves are kept on disk as soon as they are computed,
so the command can be stopped and called again. Half an hour on two cores.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import mean

import click

from benchmarks import places
from benchmarks.command_line import Benchmark, Numbers, write_option
from benchmarks.learn.comparison import Compared, compare
from benchmarks.learn.curves import Point
from benchmarks.learn.jobs import Curves
from benchmarks.learn.page import fill
from benchmarks.learn.problems import SMALL, TASKS, Folders
from benchmarks.learn.recipes import SMALL_STUDY, Study
from benchmarks.measures import report, say
from benchmarks.paper.agreement import agreement
from benchmarks.paper.conditions_page import draw, tables
from benchmarks.paper.contest import shortened
from benchmarks.paper.flooding import FloodTrial, play_flood
from protocol.errors import OperatorError

_QUICK_ROWS, _QUICK_STEPS, _QUICK_CLIENTS = 16, 1, 3

Recipes = Mapping[str, FloodTrial]
Found = Mapping[str, Sequence[Compared]]

PAPERS = FloodTrial(  # SubCGE as the paper has it
    steps=24,
    tune_steps=24,
    rates=(1e-4, 3e-4, 1e-3),
    rows=8,
    rank=32,
    core="canonical",
    scalar="raw",
    directions=1,
    schedule="constant",
    clients=16,
)
# What an owner gets who says nothing, but for the rows
OURS = FloodTrial(steps=24, tune_steps=24, rates=(), rows=8, core="dense", clients=16)

BASE = "rank 32"
_RATES = {1: (3e-4, 1e-3, 3e-3)}  # a higher grid for the lowest rank: no best rate lies at the end of its grid
RANKS: Recipes = {
    **{f"rank {rank}": replace(PAPERS, rank=rank, rates=_RATES.get(rank, PAPERS.rates)) for rank in (1, 8, 32, 128)},
    "rank 32, a new basis every 8 steps": replace(PAPERS, epoch_steps=8),
}
_LOOKS = (0, 12, 18)  # and the end: a rate is chosen by the mean loss of the last three
MANY = frozenset({"64 clients", "64 clients, a quarter of the rate"})


def delays(rate: float) -> Recipes:
    """Updates that travel so many hops in a step."""
    base = replace(PAPERS, rates=(rate,))
    return {
        **{f"k = {hops}, ring": replace(base, hops=hops) for hops in (1, 2, 4)},
        "k = 8, ring": base,  # a ring of sixteen is eight wide: all is there by the next step
        "k = 1, grid": replace(base, hops=1, graph="torus"),
        "k = 1, ring, sfnode's default": replace(OURS, hops=1),
        "k = 8, ring, sfnode's default": OURS,
    }


def clients(rate: float) -> Recipes:
    """More and fewer of them, at the rate that is best for sixteen, and at one that keeps the sum as long."""
    one = {f"{count} clients": replace(PAPERS, clients=count, rates=(rate,)) for count in (4, 16, 64)}
    return {
        **one,
        "64 clients, a quarter of the rate": replace(one["64 clients"], rates=(rate / 4,)),
        "4 clients, four times the rate": replace(one["4 clients"], rates=(4 * rate,)),
    }


def breaks(rate: float) -> Recipes:
    """One condition is made worse at a time; the rate stays."""
    base = replace(PAPERS, rates=(rate,))
    return {
        "shards alike": replace(base, alpha=1_000.0),
        "shards skewed": replace(base, alpha=0.1),
        "shards skewed, k = 1": replace(base, alpha=0.1, hops=1),
        "1 example a step": replace(base, rows=1),
        "2 clients": replace(base, clients=2),
        "a tenth of the deliveries lost": replace(base, lost=0.1),
        "a third of the clients away": replace(base, away=1 / 3),
        "shards skewed, sfnode's default": replace(OURS, alpha=0.1),
        "2 clients, sfnode's default": replace(OURS, clients=2),
    }


def cures(rate: float) -> Recipes:
    """What nodes have beside the paper's method."""
    several = replace(PAPERS, core="rademacher", scalar="normalised", directions=8)
    return {
        "one canonical direction": replace(PAPERS, rates=(rate,)),
        "8 raw canonical directions": replace(PAPERS, directions=8),
        "8 normalised Rademacher directions": replace(several, rates=(1e-3, 3e-3, 1e-2)),
        "sfnode's default, a dense core": OURS,
    }


def quiet(rate: float) -> Recipes:
    """Slopes below a threshold are not told; and half of the clients, at a rate to match."""
    base = replace(PAPERS, rates=(rate,))
    return {
        "all is told": base,
        **{f"slopes from {threshold:g}": replace(base, threshold=threshold) for threshold in (4.0, 8.0, 16.0)},
        "8 clients, twice the rate": replace(base, clients=8, rates=(2 * rate,)),
    }


def cut(rate: float) -> Recipes:
    """Some clients go on alone for half of the run; what they measured comes late, and counts in full, half or not."""
    base = replace(PAPERS, rates=(rate,))
    whole = replace(base, cut_off=4, cut_steps=(6, 18))
    return {
        "all together": base,
        "4 clients alone for 12 steps": whole,
        "4 clients alone for 12 steps, at half weight": replace(whole, cut_weight=0.5),
        "4 clients alone for 12 steps, left out": replace(whole, cut_weight=0.0),
    }


_OTHERS: Mapping[str, Callable[[float], Recipes]] = {  # no two rows have one name; the longest runs come first
    "clients": clients,
    "delay": delays,
    "breaks": breaks,
    "cures": cures,
    "quiet": quiet,
    "cut": cut,
}
PARTS = ("rank", *_OTHERS)


def measure_all(
    study: Study, curves: Curves, parts: Sequence[str], rate: float | None, *, rows: str = "", is_quick: bool = False
) -> Found:
    """The conditions of these parts. ``rate``: that of `BASE`; None: the part `rank` is measured too, and says it.

    ``rows``: only those whose name has this text, and none of the part `rank`.
    """
    tasks = [*study.tasks.values()]

    def compared(recipes: Recipes) -> list[Compared]:
        chosen = {name: _short(each) for name, each in recipes.items()} if is_quick else recipes
        return compare(chosen, tasks, study, curves)

    found: dict[str, Sequence[Compared]] = {}
    if rate is None or ("rank" in parts and not rows):
        found["rank"] = compared(RANKS)
        rate = next(each.rate for each in found["rank"] if each.name == BASE)
        assert rate is not None, "it has a grid"
    chosen = {name: part(rate) for name, part in _OTHERS.items() if name in parts}
    recipes = {row: recipe for part in chosen.values() for row, recipe in part.items() if rows in row}
    played = {each.name: each for each in compared(recipes)}  # all at once: no process waits for the end of a part
    measured = {name: [played[row] for row in part if row in played] for name, part in chosen.items()}
    return found | {name: part for name, part in measured.items() if part}


def kept_rate(docs: Path) -> float | None:
    """The rate of `BASE` in docs/paper/conditions.json; None where the part `rank` is not in it."""
    try:
        ranks = json.loads((docs / "paper" / "conditions.json").read_text("utf-8"))["rank"]
        return float(next(each["rate"] for each in ranks if each["name"] == BASE))
    except (OSError, ValueError, LookupError, StopIteration):
        return None


def _short(recipe: FloodTrial) -> FloodTrial:
    return replace(
        recipe,
        steps=_QUICK_STEPS,
        tune_steps=_QUICK_STEPS,
        rates=recipe.rates[:1],
        clients=min(recipe.clients, _QUICK_CLIENTS),
    )


def write(found: Found, docs: Path) -> None:
    """The tables of docs/paper.md, the pictures, and docs/paper/conditions.json, which keeps what is not measured now.

    OperatorError if a table has no place.
    """
    page, kept = docs / "paper.md", docs / "paper" / "conditions.json"
    measured_ends = _ends(found)
    before = read_conditions(kept)
    found = {name: _renewed(before.get(name, ()), part) for name, part in found.items()}
    try:
        text = fill(page.read_text("utf-8"), tables(found))
    except (OSError, ValueError) as error:
        raise OperatorError(f"{page}: {error}; it needs the marks {', '.join(found)}") from None
    folder = docs / "paper"
    folder.mkdir(parents=True, exist_ok=True)
    draw(found, folder)
    for line in agreement(_ends(before), measured_ends):
        say(line)
    results = {name: [asdict(each) for each in part] for name, part in {**before, **found}.items()}
    rows = [
        f'"{name}":[' + ",\n".join(json.dumps(each, separators=(",", ":")) for each in part) + "]"
        for name, part in sorted(results.items())
    ]
    kept.write_text("{" + ",\n".join(rows) + "}\n", "utf-8")
    page.write_text(text, "utf-8")


def _ends(found: Found) -> dict[str, float]:
    """Accuracy at the end by row, the mean of the seeds."""
    return {
        f"{part}, {each.name}": mean(curve[-1].accuracy for curve in each.curves)
        for part, compared in found.items()
        for each in compared
    }


def read_conditions(kept: Path) -> Found:
    """What a committed file says; nothing where there is none."""
    if not kept.exists():
        return {}
    found: dict[str, list[Compared]] = {}
    for name, part in json.loads(kept.read_text("utf-8")).items():
        for plain in part:
            curves = tuple(tuple(Point(**point) for point in curve) for curve in plain["curves"])
            tried = {float(rate): loss for rate, loss in plain["tried"].items()}
            found.setdefault(name, []).append(Compared(**{**plain, "tried": tried, "curves": curves}))
    return found


def _renewed(before: Sequence[Compared], now: Sequence[Compared]) -> list[Compared]:
    """In the order of the earlier ones."""
    return [*{each.name: each for each in (*before, *now)}.values()]


@click.command(cls=Benchmark)
@places.data_option
@click.option("--models", type=click.Path(path_type=Path), default=places.MODELS, help="Folder of the model.")
@click.option("--work", type=click.Path(path_type=Path), default=Path("build/paper/conditions"), show_default=True)
@click.option(
    "--seeds", type=Numbers(), default="0,1,2", show_default=True, help="Seeds to report; with 64 clients the first."
)
@click.option("--parts", default=",".join(PARTS), show_default=True, help="Which tables; the others stay.")
@click.option("--rows", default="", help="Only the rows whose name has this text; the others stay.")
@click.option("--jobs", default=2, show_default=True, help="Processes, of one thread each.")
@click.option("--quick", "is_quick", is_flag=True, help="A minute, to try the program; learns nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@write_option
def main(
    data: Path,
    models: Path,
    work: Path,
    seeds: tuple[int, ...],
    parts: str,
    rows: str,
    jobs: int,
    is_quick: bool,
    as_json: bool,
    docs: Path | None,
) -> None:
    """SeedFlood by rank, refresh, late delivery, number of clients, unevenness of their examples, and in a split."""
    folders, task = Folders(data=data, models=models), shortened(TASKS["sst2"])
    study = replace(
        SMALL_STUDY,
        tasks={task.name: replace(task, test_rows=_QUICK_ROWS) if is_quick else task},
        seeds=seeds[:1] if is_quick else seeds,
        first_seed=MANY,
        evaluated_at=_LOOKS,
    )
    folders.check(SMALL, [task])
    rate = None if docs is None else kept_rate(docs)
    curves = Curves(folders, work, jobs, play_flood)
    found = measure_all(study, curves, _parts(parts), rate, rows=rows, is_quick=is_quick)
    if docs:
        write(found, docs)
    lines = [line for name, part in tables(found).items() for line in ("", name, "", *part)]
    report(found, as_json=as_json, lines=lines)


def _parts(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - {*PARTS}:
        raise click.BadParameter(f"{min(unknown)!r} is not one of {', '.join(PARTS)}")
    return names


if __name__ == "__main__":
    main()
