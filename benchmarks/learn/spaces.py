"""The space that a run searches: its basis, as its owner makes it before the run, and the manifest that names it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks.learn.problems import Task, task_spec
from benchmarks.learn.trials import NetworkTrial
from benchmarks.sample_runs import OWNER
from protocol.run import (
    FORMAT,
    BasisKind,
    CoreKind,
    Manifest,
    Method,
    Objective,
    ScalarKind,
    Schedule,
    ScheduleKind,
    TensorSpec,
    no_model,
)
from protocol.subspace import Bases, basis_file
from sfnode.run import MethodOptions, builder
from sfnode.storage import BasisSpec
from sfnode.training.calibration import Calibration, FoundBasis, sources
from sfnode.training.model import TensorGroup, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData
from sfnode.worker_protocol import CalibrationOptions, Source

_SEEDS_APART = 1_600  # rows of the training file: more than a calibration takes


def tensors_of(recipe: NetworkTrial, shared: SharedModel) -> tuple[TensorSpec, ...]:
    """What the recipe trains."""
    return trainable_tensors(shared.model, [TensorGroup(name) for name in recipe.trainable.split(",")])


def calibrated(
    recipe: NetworkTrial, data: TaskData, shared: SharedModel, tensors: Sequence[TensorSpec], seed: int
) -> FoundBasis | None:
    """What the owner makes before the run; None for a random basis."""
    if recipe.basis == "random":
        return None
    first = seed * _SEEDS_APART % len(data.examples)
    others = replace(data, examples=(data.examples[first:] + data.examples[:first])[:_SEEDS_APART])
    options = CalibrationOptions(data="", source=Source(recipe.basis), examples=recipe.calibration_rows)
    found = sources.new_basis(Calibration(shared=shared, tensors=tensors, data=others), options, recipe.rank)
    return found if recipe.has_start else replace(found, start=None)


def bases_of(
    recipe: NetworkTrial, task: Task, tensors: Sequence[TensorSpec], found: FoundBasis | None, rate: float | None
) -> Bases:
    """The bases of a new run, and with them its manifest. ``rate`` None: what is suggested."""
    if found is None:
        return Bases(_manifest(recipe, task, tensors, builder.method_of(_options(recipe, found, rate))))
    file = basis_file.encode_basis(found.rank, found.content)
    manifest = _manifest(recipe, task, tensors, builder.method_of(_options(recipe, found, rate), BasisSpec.of(file)))
    return Bases(manifest, basis_file.decode_basis_untrusted(manifest, file))


def _options(recipe: NetworkTrial, found: FoundBasis | None, rate: float | None) -> MethodOptions:
    return MethodOptions(
        rank=recipe.rank if found is None else None,
        core=CoreKind(recipe.core),
        scalar=ScalarKind(recipe.scalar),
        directions=recipe.directions,
        sides=recipe.sides,
        shares=recipe.shares,
        epoch_steps=recipe.epoch_steps,
        learning_rate=suggested_rate(found) * recipe.rate_factor if rate is None else rate,
        schedule=ScheduleKind(recipe.schedule),
        epsilon_exp=_epsilon_exp(recipe, found),
    )


def suggested_rate(found: FoundBasis | None) -> float:
    """The calibration's learning rate, or that of `sfnode init`."""
    if found is None or found.learning_rate is None:
        return builder.BEST[BasisKind.RANDOM if found is None else BasisKind.PUBLISHED].learning_rate
    return found.learning_rate


def _epsilon_exp(recipe: NetworkTrial, found: FoundBasis | None) -> int | None:
    if recipe.epsilon_exp is not None:
        return recipe.epsilon_exp
    return None if found is None else found.epsilon_exp


def _manifest(
    recipe: NetworkTrial, task: Task, tensors: Sequence[TensorSpec], method: tuple[Method, Schedule]
) -> Manifest:
    manifest = Manifest(
        format=FORMAT,
        name="learn",
        owner=OWNER.author.hex(),
        model=no_model("local:learn"),  # nothing is loaded by this manifest
        tensors=tuple(tensors),
        task=task_spec(task, rows=recipe.rows, objective=Objective(recipe.objective)),
        method=method[0],
        schedule=method[1],
        steps=recipe.steps,
        staleness=builder.STALENESS,
        admission=builder.OPEN,
        authors_max=builder.AUTHORS_MAX,
    )
    return builder.build_manifest(manifest)
