"""What a run of the network learns in: its manifest, and the basis of a dense core, as `sfnode init` makes both."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.learn.problems import Task, task_spec
from benchmarks.learn.trials import NetworkTrial
from benchmarks.sample_runs import OWNER
from protocol.errors import OperatorError
from protocol.run import CoreKind, Objective, ScalarKind, ScheduleKind, TaskSpec, TensorSpec, no_model
from protocol.subspace import Bases, basis_file
from sfnode.run import DataOptions, MethodOptions, RunDraft, RunOptions, TaskOptions, manifest_builder
from sfnode.training.calibration import FoundBasis, calibrate
from sfnode.training.model import TensorGroup, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData

_MODEL = "local:learn"  # nothing is loaded by this name


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The bases of a new run, with its manifest, and the forward rows that its owner has spent on them."""

    bases: Bases
    rows: int


def space_of(
    recipe: NetworkTrial, task: Task | TaskSpec, data: TaskData, shared: SharedModel, *, rate: float | None, seed: int
) -> Space:
    """Make a run. ``rate`` None: what is suggested. OperatorError: the model cannot have a dense core.

    ``task``: or the manifest's part about one. ``seed``: which examples the basis of a dense core comes from.
    """
    tensors = trainable_tensors(shared.model, [TensorGroup(name) for name in recipe.trainable.split(",")])
    spec = task
    if isinstance(spec, Task):
        spec = task_spec(spec, rows=recipe.rows, objective=Objective(recipe.objective))
    draft = RunDraft(_options(recipe, rate), OWNER, spec, no_model(_MODEL), tensors)
    if not recipe.is_dense:
        return Space(bases=Bases(draft.manifest()), rows=0)
    found = _found(shared, tensors, data, recipe.rows, seed)
    suggested = found.learning_rate * recipe.rate_factor
    file = draft.take_dense(found.tensors, found.settings, suggested if rate is None else rate, found.content)
    manifest = draft.manifest()
    return Space(bases=Bases(manifest, basis_file.decode_basis_untrusted(manifest, file)), rows=found.rows)


def _found(
    shared: SharedModel, tensors: Sequence[TensorSpec], data: TaskData, batch_rows: int, seed: int
) -> FoundBasis:
    mixed = random.Random(seed).sample(data.examples, len(data.examples))
    found = calibrate(shared, tensors, replace(data, examples=tuple(mixed)), batch_rows, manifest_builder.BITS)
    if found is None:
        raise OperatorError("this model or task can have no dense core: take other recipes")
    return found


def _options(recipe: NetworkTrial, rate: float | None) -> RunOptions:
    drawn = MethodOptions(
        rank=recipe.rank,
        core=CoreKind(recipe.core),
        scalar=ScalarKind(recipe.scalar),
        directions=recipe.directions,
        sides=recipe.sides,
        shares=recipe.shares,
        epoch_steps=recipe.epoch_steps,
        learning_rate=manifest_builder.LEARNING_RATE * recipe.rate_factor if rate is None else rate,
        schedule=ScheduleKind(recipe.schedule),
        epsilon_exp=recipe.epsilon_exp,
    )
    return RunOptions(
        name="learn",
        model=_MODEL,
        trainable=recipe.trainable,
        task=TaskOptions(),
        data=DataOptions(),
        batch_rows=recipe.rows,
        method=MethodOptions(schedule=drawn.schedule) if recipe.is_dense else drawn,
        steps=recipe.steps,
    )
