"""Accuracy against forward rows: when to look, one run from start to end, and what its curve says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.learn.clients import Clients, NetworkTrial
from benchmarks.learn.plain import BackPropagation, Measured, Mezo, measure, train_back, train_mezo
from benchmarks.learn.problems import Folders, Task, load, read
from benchmarks.learn.recipes import Recipe
from benchmarks.measures import say

EVALUATED_AT = (0, 6, 12, 25, 50, 75, 100, 150, 200, 250, 350, 500, 700, 1_000, 1_400, 2_000)
_LAST = 3  # evaluations that tell how good it is by now

Training = tuple[Iterator[int], Callable[[int], Measured]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run: everything that its curve depends on, but for the program.

    Attributes:
        task: what is learnt.
        name: of the recipe, for people.
        recipe: how it trains.
        rate: learning rate.
        seed: of batches and directions.
        is_test: evaluate on the test file, else on the tuning file.
        evaluated_at: after which steps; after the last one in any case.
    """

    task: Task
    name: str
    recipe: Recipe
    rate: float
    seed: int
    is_test: bool
    evaluated_at: tuple[int, ...] = EVALUATED_AT

    @property
    def title(self) -> str:
        """For people, and for a file's name."""
        return f"{self.task.name} {self.name} {self.rate:g} {'test' if self.is_test else 'tune'} seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One evaluation, after ``step`` steps and ``rows`` forward rows."""

    step: int
    rows: int
    accuracy: float
    loss: float


def play(job: Job, folders: Folders) -> list[Point]:
    """Train from the base model to the end."""
    rows_spent, look = _begin(job, folders)
    points = []
    for step, rows in zip(range(job.recipe.steps + 1), rows_spent, strict=False):
        if step in job.evaluated_at or step == job.recipe.steps:
            found = look(job.task.test_rows)
            points.append(Point(step=step, rows=rows, accuracy=round(found.accuracy, 4), loss=round(found.loss, 4)))
            say(f"{job.title}: step {step:5,}, {rows:7,} rows, {100 * found.accuracy:5.1f} %, loss {found.loss:.3f}")
    return points


def _begin(job: Job, folders: Folders) -> Training:
    """The forward rows spent, step by step as they are trained, and a look at the model between the steps."""
    data, model = read(folders, job.task, is_test=job.is_test), load(folders)
    match job.recipe:
        case Mezo() as recipe:
            rows_spent = train_mezo(recipe, model, data, job.rate, job.seed)
        case BackPropagation() as recipe:
            rows_spent = train_back(recipe, model, data, job.rate, job.seed)
        case NetworkTrial() as recipe:
            clients = Clients(recipe, job.task, data, model, rate=job.rate, seed=job.seed)
            return clients.train(), clients.measure
    return rows_spent, lambda rows: measure(model, data, rows)


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
