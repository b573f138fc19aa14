"""Make a published basis from an owner's examples, before a run (`sfnode basis make`, `sfnode init`) or when its model
has moved (`sfnode basis renew`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from torch import Tensor, nn
from transformers import PreTrainedModel

from protocol import limits
from protocol.errors import OperatorError
from protocol.run import TaskSpec, TensorSpec
from protocol.state import Coefficients
from protocol.subspace import Bases, BasisContent
from sfnode.model_files import ModelFolder
from sfnode.storage import UNIT_EXP, locate
from sfnode.training.calibration.expectation import HELD_MIN, RateTrial, rows_of, set_apart, try_rates
from sfnode.training.calibration.forward import LABELS_MAX, forward_basis, held_rows
from sfnode.training.calibration.found_basis import FoundBasis
from sfnode.training.calibration.gradient import gradient_basis
from sfnode.training.calibration.renewal_content import renewal_of
from sfnode.training.calibration.renewal_trial import RenewalTrial, TrialPlan, try_renewal
from sfnode.training.calibration.residual_stream import writers_of
from sfnode.training.calibration.trajectory import LENGTHS, apart, trajectory_basis
from sfnode.training.describe import RunModel, chosen_groups
from sfnode.training.model import (
    check_model,
    check_positions,
    choose_device,
    choose_dtype,
    fold_weights,
    load_causal_lm,
    load_tokenizer,
    trainable_tensors,
)
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, TaskData, read_task
from sfnode.worker_protocol import CalibrationOptions, DeviceOptions, Source

_BATCH_EXAMPLES: Final = 16  # as many as in a step
_GRADIENT_RANK: Final = 16
_BACKWARD_ROWS: Final = 2  # a backward pass costs about two forward passes
# Per label for forward passes; in total for the other sources, whose rows cost three times as much
_EXAMPLES: Final = {Source.FORWARD: 400, Source.GRADIENT: 128, Source.TRAJECTORY: 960}
_EXAMPLES_MAX: Final = 1_536
_TRAJECTORY_ROWS_MAX: Final = 1_920  # an example of four choices has four rows


Tell: TypeAlias = Callable[[int, int], None]  # forward passes of a row that are done, and about how many there will be


def _untold(_done: int, _total: int) -> None:
    pass


def calibrate(
    options: CalibrationOptions,
    *,
    folder: ModelFolder,
    trainable: str,
    task: TaskSpec,
    rank: int | None = None,
    tell: Tell = _untold,
) -> FoundBasis:
    """Find the basis of every tensor of the groups ``trainable``, in the order in which a manifest lists them.

    ``rank`` is the run's number of columns of each side, a power of two; None: the source's own.

    Raises:
        OperatorError: rank, model, data, device or groups cannot be used, or there is not enough memory.
    """
    if rank is not None and (rank & (rank - 1) or rank > limits.RANK_MAX):
        raise OperatorError(f"--rank {rank}: must be a power of two, at most {limits.RANK_MAX}")
    check_positions(folder.path, task.max_tokens)
    data = read_task(load_tokenizer(folder.path), task, locate(options.data), None)
    loaded = _load(folder.path, options.devices)
    tensors = trainable_tensors(loaded, chosen_groups(trainable))
    return new_basis(SharedModel(loaded), tensors, data, options, rank, tell)


def calibrate_described(described: RunModel, tell: Tell = _untold) -> FoundBasis:
    """Find the basis of a new run from its loaded model and data, with the defaults of `calibrate`.

    Moves the model to the device. Raises OperatorError as `calibrate` does.
    """
    module: nn.Module = described.model  # the base class's `to` has types
    module.to(choose_device(DeviceOptions().device))
    shared, options = SharedModel(described.model), CalibrationOptions(data="")
    return new_basis(shared, described.tensors, described.data, options, None, tell)


def try_described(
    described: RunModel,
    calibration_rows: int,
    bases_at: Callable[[float], Bases],
    rates: Sequence[float],
    tell: Tell = _untold,
) -> tuple[RateTrial, ...]:
    """Try the first steps of a new run (`try_rates`), after `calibrate_described` and on examples it has not used.

    Returns nothing where there are too few such examples. ``calibration_rows`` is what the calibration took.
    """
    shared, data = SharedModel(described.model), described.data
    data = set_apart(data, _chosen(_source(shared, described.tensors, data), data, None))
    if len(data.evaluation_examples) < HELD_MIN:
        return ()
    with _counted(shared, rows_of(bases_at(rates[0]).manifest, data, calibration_rows), tell):
        return try_rates(shared, bases_at, rates, data, calibration_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """Result of `recalibrate`.

    Attributes:
        content: of the renewal's file.
        trial: result of its trial; None: there was none.
        is_start_left_out: a start was found, but the run's files cannot hold it.
    """

    content: BasisContent
    trial: RenewalTrial | None
    is_start_left_out: bool = False


def recalibrate(
    options: CalibrationOptions,
    bases: Bases,
    coefficients: Coefficients,
    folder: ModelFolder,
    plan: TrialPlan,
    tell: Tell = _untold,
) -> Renewal:
    """Make basis and start of a run at the weights that it has reached, within its bounds.

    These are the weights of the plan's epoch without the renewal, but with all that earlier ones add by then.

    Args:
        folder: of the run's model.
        plan: the first epoch, how to try the renewal (`try_renewal`), and perhaps a renewal that exists already.

    Raises:
        OperatorError: as `calibrate`; or the run's basis has other units than `sfnode basis make` gives.
    """
    manifest = bases.manifest
    if manifest.method.basis_unit_exp != UNIT_EXP:
        raise OperatorError(f"the run's basis has units of 2^-{manifest.method.basis_unit_exp}, not 2^-{UNIT_EXP}")
    check_model(folder.path, manifest.model)
    data = read_task(load_tokenizer(folder.path), manifest.task, locate(options.data), None)
    shared = SharedModel(_load(folder.path, options.devices))
    move_before(shared, bases, coefficients, plan.epoch)
    others, renewed, is_left_out = data, plan.offered, False
    if renewed is None:
        found = new_basis(shared, manifest.tensors, data, options, manifest.method.rank, tell)
        renewed = renewal_of(manifest, found)
        is_left_out = found.start is not None and renewed.start is None
        used = set(map(id, _chosen(options.source or _source(shared, manifest.tensors, data), data, options.examples)))
        others = replace(data, examples=tuple(each for each in data.examples if id(each) not in used))
    if not plan.authors:
        return Renewal(content=renewed, trial=None, is_start_left_out=is_left_out)
    with _counted(shared, plan.rows(manifest), tell):
        trial = try_renewal(shared, manifest, renewed, others, plan)
    return Renewal(content=renewed, trial=trial, is_start_left_out=is_left_out)


def move_before(shared: SharedModel, bases: Bases, coefficients: Coefficients, epoch: int) -> None:
    """Fold all that was learnt, and all that renewals before ``epoch`` add, into the model's own weights."""
    held = {each: coefficients.flat(each) for each in coefficients.epochs()}
    for name, weight in fold_weights(bases, held, shared.switch.base, epoch - 1).items():
        shared.switch.base[name].copy_(weight)


def _load(folder: Path, devices: DeviceOptions) -> PreTrainedModel:
    return load_causal_lm(folder, choose_device(devices.device), choose_dtype(devices.dtype))


def new_basis(
    shared: SharedModel,
    tensors: Sequence[TensorSpec],
    data: TaskData,
    options: CalibrationOptions,
    rank: int | None,
    tell: Tell = _untold,
) -> FoundBasis:
    """Find the basis of a loaded model, from ``options.examples`` examples that are spread over ``data``."""
    source = options.source or _source(shared, tensors, data)
    examples = _chosen(source, data, options.examples)
    with _counted(shared, _passes(source, examples, data), tell):
        return _found(source, shared, tensors, examples, data, rank)


def _chosen(source: Source, data: TaskData, count: int | None) -> Sequence[Example]:
    return _spread(data.examples, count or _examples(source, data))


def _passes(source: Source, examples: Sequence[Example], data: TaskData) -> int:
    rows = _rows(examples)
    match source:
        case Source.FORWARD:
            return rows + held_rows(len(examples))
        case Source.TRAJECTORY:
            return rows + _rows(apart(examples)[1]) * (len(LENGTHS) - 1)
        case Source.GRADIENT if data.label_tokens:
            return 2 * rows  # the first pass balances the labels
        case _:
            return rows


@contextmanager
def _counted(shared: SharedModel, total: int, tell: Tell) -> Iterator[None]:
    done = 0

    def count(_module: nn.Module, _arguments: tuple[object, ...], given: dict[str, Tensor]) -> None:
        nonlocal done
        done += len(given["input_ids"])
        tell(done, max(done, total))

    hook = shared.model.base_model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def _found(
    source: Source,
    shared: SharedModel,
    tensors: Sequence[TensorSpec],
    examples: Sequence[Example],
    data: TaskData,
    rank: int | None,
) -> FoundBasis:
    if source is Source.FORWARD:
        if not data.label_tokens:
            raise OperatorError("--source forward needs label words of one token each; use --source trajectory")
        return forward_basis(shared, tensors, examples, data, rank or 1)
    if source is Source.TRAJECTORY:
        kept, held = apart(examples)
        found = trajectory_basis(shared, tensors, _batches(kept), held, data, rank or 1)
        return replace(found, rows=_rows(kept) * (1 + _BACKWARD_ROWS) + _rows(held) * len(LENGTHS))
    bases = gradient_basis(shared, tensors, _batches(examples), data, rank or _GRADIENT_RANK)
    looks = 2 if data.label_tokens else 1  # the first one balances the labels
    return FoundBasis(bases=bases, rows=_rows(examples) * (looks + _BACKWARD_ROWS))


def _batches(examples: Sequence[Example]) -> list[Sequence[Example]]:
    """Split examples into batches, each from all over the file."""
    count = -(-len(examples) // _BATCH_EXAMPLES)
    return [examples[number::count] for number in range(count)]


def _rows(examples: Sequence[Example]) -> int:
    return sum(example.rows for example in examples)


def _source(shared: SharedModel, tensors: Sequence[TensorSpec], data: TaskData) -> Source:
    """Choose forward passes where they are enough."""
    is_in_bounds = 1 < len(data.label_tokens) <= LABELS_MAX
    return Source.FORWARD if is_in_bounds and writers_of(shared, tensors) else Source.TRAJECTORY


def _spread(examples: Sequence[Example], count: int) -> Sequence[Example]:
    """Return ``count`` examples spread evenly over all: files are often sorted by label."""
    count = min(count, len(examples))
    return [examples[number * len(examples) // count] for number in range(count)]


def _examples(source: Source, data: TaskData) -> int:
    labels = len(data.label_tokens) if source is Source.FORWARD else 1
    if source is Source.TRAJECTORY and data.examples:
        return min(_EXAMPLES[source], _TRAJECTORY_ROWS_MAX * len(data.examples) // _rows(data.examples))
    return min(_EXAMPLES[source] * labels, _EXAMPLES_MAX)
