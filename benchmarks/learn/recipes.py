"""What takes part in the comparison, by name, and with which model. To add a configuration: one entry in NETWORKS, or
in REAL_RECIPES.

Every recipe has a list of learning rates. With more than one, the best is chosen for each task on its tuning file with
a seed of its own, by the mean loss of the last three evaluations, before the reported seeds run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from benchmarks.learn.curves import EVALUATED_AT, Job
from benchmarks.learn.problems import REAL_TASKS, SMALL, SMOLLM2, TASKS, Folders, ModelChoice, Task
from benchmarks.learn.scaling import Scaling
from benchmarks.learn.trials import BackPropagation, Mezo, NetworkTrial, Recipe
from protocol.errors import OperatorError

T = TypeVar("T")

QUICK_STEPS = 4
QUICK_ROWS = 32

TUNING_SEED = 100  # none of those reported
EXTRAS_TASK = "sst2"
MEZO = "MeZO"
MEZO_STEPS = 1_000
LORA = "LoRA"

REFERENCES: dict[str, Recipe] = {
    MEZO: Mezo(steps=MEZO_STEPS, tune_steps=400, rates=(1e-4, 2e-4, 3e-4)),
    "SubCGE": NetworkTrial(
        steps=500,
        tune_steps=400,
        rates=(3e-4, 1e-3),
        rank=32,
        core="canonical",
        scalar="raw",
        directions=1,
        schedule="constant",
    ),
    "AdamW": BackPropagation(steps=150, tune_steps=75, rates=(1e-4, 3e-4), is_lora=False),
    LORA: BackPropagation(steps=150, tune_steps=75, rates=(1e-3, 3e-3), is_lora=True),
}


# What an owner gets who says nothing, and eight nodes in step
DENSE_CORE = "dense core"
_DENSE = NetworkTrial(steps=24, tune_steps=24, rates=(), core="dense", clients=8)
_DENSE_LOOKS = (0, 4, 8, 16, 24)

NETWORKS: dict[str, NetworkTrial] = {
    "random basis": NetworkTrial(steps=300, tune_steps=150, rates=(1e-3, 3e-3), rank=32, directions=16),
    DENSE_CORE: _DENSE,
}

RECIPES: dict[str, Recipe] = {**REFERENCES, **NETWORKS}

# Ten clients, some of which send the opposite of what they measured.
CHEATS: dict[str, Recipe] = {f"{cheats} of 10 cheat": replace(_DENSE, clients=10, cheats=cheats) for cheats in range(4)}

# The objective is the accuracy on the step's rows itself. At the model alone every row is far on one side: a difference
# of accuracies is other than zero only with a wide step and many rows, so all directions share one batch of 32.
METRICS: dict[str, Recipe] = {
    "accuracy itself": NetworkTrial(
        steps=80,
        tune_steps=80,
        rates=(1e-3, 3e-3, 1e-2),
        rows=32,
        rank=32,
        core="canonical",
        scalar="raw",
        directions=8,
        shares=8,
        epsilon_exp=-3,
        objective="accuracy",
    ),
}

# A step of a real model takes the better part of a second on one core, so the runs are short.
REAL_RECIPES: dict[str, Recipe] = {
    MEZO: Mezo(steps=MEZO_STEPS, tune_steps=100, rates=(3e-7, 1e-6, 3e-6, 1e-5, 3e-5)),
    LORA: BackPropagation(steps=100, tune_steps=100, rates=(3e-4, 1e-3), is_lora=True, lora_targets="all-linear"),
    DENSE_CORE: _DENSE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A model, and what is measured with it.

    Attributes:
        tasks, recipes: what is compared, by name.
        seeds: to report.
        evaluated_at: after which steps, but for `DENSE_CORE`.
        first_task: recipes on the first task alone, for they take long.
        first_seed: recipes with the first seed alone.
        noise_rows: examples from which noise is measured.
        scaling: more clients.
        cheats, metrics: further recipes, on EXTRAS_TASK alone.
    """

    model: ModelChoice
    tasks: Mapping[str, Task]
    recipes: Mapping[str, Recipe]
    seeds: tuple[int, ...]
    first_task: frozenset[str]
    first_seed: frozenset[str]
    evaluated_at: tuple[int, ...]
    noise_rows: int
    scaling: Scaling
    cheats: Mapping[str, Recipe]
    metrics: Mapping[str, Recipe]

    def job(self, task: Task, name: str, recipe: Recipe, rate: float | None) -> Job:
        """A run to choose the rate by."""
        return Job(
            task=task,
            name=name,
            recipe=recipe,
            rate=rate,
            seed=TUNING_SEED,
            is_test=False,
            evaluated_at=_DENSE_LOOKS if name == DENSE_CORE else self.evaluated_at,
            model=self.model,
        )

    def seeds_of(self, task: Task, recipe: str) -> tuple[int, ...]:
        """With which the recipe runs on this task; none where it does not."""
        if recipe in self.first_task and task != next(iter(self.tasks.values())):
            return ()
        return self.seeds[:1] if recipe in self.first_seed else self.seeds

    def only(self, tasks: str | None, recipes: str | None, clients: str | None) -> Study:
        """What is named, separated by commas; None: all. OperatorError for a name that is not known."""
        by_name = {str(number): steps for number, steps in self.scaling.steps.items()}
        steps = {int(number): count for number, count in _named("clients", clients, by_name).items()}
        return replace(
            self,
            tasks=_named("tasks", tasks, self.tasks),
            recipes=_named("recipes", recipes, self.recipes),
            scaling=replace(self.scaling, steps=steps),
        )

    def quick(self) -> Study:
        """So short that only the program is tried: nothing is learnt. One task, one seed."""
        name, task = next(iter(self.tasks.items()))
        return replace(
            self,
            tasks={name: replace(task, test_rows=QUICK_ROWS)},
            recipes=_shortened(self.recipes),
            seeds=(0,),
            noise_rows=QUICK_ROWS,
            scaling=replace(self.scaling, steps=dict.fromkeys([*self.scaling.steps][:2], QUICK_STEPS)),
            cheats=_shortened(self.cheats),
            metrics=_shortened(self.metrics),
        )


def _named(option: str, names: str | None, known: Mapping[str, T]) -> dict[str, T]:
    chosen = [*known] if names is None else [name for name in names.split(",") if name]
    if unknown := [name for name in chosen if name not in known]:
        raise OperatorError(f"--{option} {unknown[0]!r}: known are {', '.join(known)}")
    return {name: known[name] for name in chosen}


def real_tasks(names: str, folders: Folders) -> list[Task]:
    """The real tasks of these names, separated by commas. OperatorError: an unknown one, or a missing file or model."""
    chosen = [*_named("tasks", names, REAL_TASKS).values()]
    folders.check(SMOLLM2, chosen)
    return chosen


def _shortened(recipes: Mapping[str, Recipe]) -> dict[str, Recipe]:
    return {name: _short(recipe) for name, recipe in recipes.items()}


def _short(recipe: Recipe) -> Recipe:
    return replace(recipe, steps=QUICK_STEPS, rates=recipe.rates[:1])


_STEPS_BY_CLIENTS = {1: 128, 4: 64, 16: 16, 64: 8, 256: 4}  # 2,048 to 16,384 rows

SMALL_STUDY = Study(
    model=SMALL,
    tasks=TASKS,
    recipes=RECIPES,
    seeds=(0, 1, 2),
    first_task=frozenset(),
    first_seed=frozenset(),
    evaluated_at=EVALUATED_AT,
    noise_rows=256,
    scaling=Scaling(
        recipe=DENSE_CORE,
        task=EXTRAS_TASK,
        steps=_STEPS_BY_CLIENTS,
        factors=(1,),
        evaluated_at=(0, 1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 80, 96, 128),
    ),
    cheats=CHEATS,
    metrics=METRICS,
)
REAL_STUDY = Study(
    model=SMOLLM2,
    tasks=REAL_TASKS,
    recipes=REAL_RECIPES,
    seeds=(0, 1, 2),
    first_task=frozenset({MEZO}),
    first_seed=frozenset({MEZO}),
    evaluated_at=(0, 25, 50, 100, 250, 500, 750, 1_000),
    noise_rows=64,
    scaling=Scaling(
        recipe=DENSE_CORE,
        task=None,
        steps=_STEPS_BY_CLIENTS,
        factors=(1,),
        evaluated_at=(1, 2, 4, 8, 16, 32, 64, 128),
    ),
    cheats={},
    metrics={},
)
