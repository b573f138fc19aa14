"""Accuracy against forward rows: when to look, one run from start to end, and what its curve says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.learn.clients import Clients
from benchmarks.learn.plain import Measured, measure, train_back, train_mezo
from benchmarks.learn.problems import SMALL, Folders, ModelChoice, Task, load, read
from benchmarks.learn.trials import BackPropagation, Mezo, NetworkTrial, Recipe
from benchmarks.measures import say

EVALUATED_AT = (0, 6, 12, 25, 50, 75, 100, 150, 200, 250, 350, 500, 700, 1_000, 1_400, 2_000)
_LAST = 3  # evaluations that tell how good it is by now

Training = tuple[Iterator[int], Callable[[int], Measured]]
Begin = Callable[["Job", Folders], Training]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run: everything that its curve depends on, but for the program.

    Attributes:
        task: what is learnt.
        name: of the recipe, for people.
        recipe: how it trains.
        rate: learning rate; None: what is suggested.
        seed: of batches and directions.
        is_test: evaluate on the test file, else on the tuning file.
        evaluated_at: after which steps; after the last one in any case.
        model: what learns it.
    """

    task: Task
    name: str
    recipe: Recipe
    rate: float | None
    seed: int
    is_test: bool
    evaluated_at: tuple[int, ...] = EVALUATED_AT
    model: ModelChoice = SMALL

    @property
    def title(self) -> str:
        """For people, and for a file's name."""
        model = "" if self.model == SMALL else f"{self.model.title} "
        rate = "suggested" if self.rate is None else f"{self.rate:g}"
        return f"{model}{self.task.name} {self.name} {rate} {'test' if self.is_test else 'tune'} seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One evaluation, after ``step`` steps and ``rows`` forward rows.

    ``sent``: as in `Measured`; ``card``: the graphics card that computed it, empty for a CPU.
    """

    step: int
    rows: int
    accuracy: float
    loss: float
    sent: int | None = None
    card: str = ""


def play(job: Job, folders: Folders, begin: Begin | None = None) -> list[Point]:
    """Train from the base model to the end. ``begin`` knows kinds of recipes that are not known here."""
    rows_spent, look = (begin or _begin)(job, folders)
    points = []
    for step, rows in zip(range(job.recipe.steps + 1), rows_spent, strict=False):
        if step in job.evaluated_at or step == job.recipe.steps:
            found = look(job.task.test_rows)
            measured = {"accuracy": round(found.accuracy, 4), "loss": round(found.loss, 4)}
            points.append(Point(step=step, rows=rows, **measured, sent=found.sent, card=folders.card))
            say(f"{job.title}: step {step:5,}, {rows:7,} rows, {100 * found.accuracy:5.1f} %, loss {found.loss:.3f}")
    return points


def _begin(job: Job, folders: Folders) -> Training:
    """The forward rows spent, step by step as they are trained, and a look at the model between the steps."""
    data, model = read(folders, job.model, job.task, is_test=job.is_test), load(folders, job.model)
    match job.recipe:
        case Mezo() as recipe:
            rows_spent = train_mezo(recipe, model, data, _given(job), job.seed)
        case BackPropagation() as recipe:
            rows_spent = train_back(recipe, model, data, _given(job), job.seed)
        case NetworkTrial() as recipe:
            clients = Clients(recipe, job.task, data, model, rate=job.rate, seed=job.seed)
            return clients.train(), clients.measure
    return rows_spent, lambda rows: measure(model, data, rows)


def _given(job: Job) -> float:
    assert job.rate is not None, "only the network suggests a rate"
    return job.rate


def settled(points: Sequence[Point]) -> float:
    """Mean loss of the last evaluations: what a learning rate is chosen by. An accuracy jumps by two points."""
    last = points[-_LAST:]
    return sum(point.loss for point in last) / len(last)


def first_reach(points: Sequence[Point], accuracy: float) -> Point | None:
    """The first evaluation that has ``accuracy``, and so has the next one: a single lucky one does not count.

    The last evaluation has no next one, and counts.
    """
    for point, following in zip(points, (*points[1:], points[-1]), strict=True):
        if min(point.accuracy, following.accuracy) >= accuracy:
            return point
    return None
