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
from protocol.run import TaskSpec
from protocol.state import Coefficients
from protocol.subspace import Bases, BasisContent
from sfnode.model_files import ModelFolder
from sfnode.storage import data_files, stored_bases
from sfnode.training.calibration import dense
from sfnode.training.calibration.calibration import Calibration, hold_back, rows_in
from sfnode.training.calibration.expectation import HELD_MIN, RateTrial, rows_of, set_apart, try_rates
from sfnode.training.calibration.forward import LABELS_MAX, forward_basis, held_rows
from sfnode.training.calibration.found_basis import FoundBasis
from sfnode.training.calibration.gradient import gradient_basis
from sfnode.training.calibration.renewal_content import renewal_of
from sfnode.training.calibration.renewal_trial import RenewalTrial, TrialPlan, try_renewal
from sfnode.training.calibration.residual_stream import writers_of
from sfnode.training.calibration.trajectory import LENGTHS, apart, trajectory_basis
from sfnode.training.describe import RunModel, chosen_groups
from sfnode.training.devices import choose_device
from sfnode.training.model import check_model, fold_weights, loading, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, read_task
from sfnode.worker_protocol import CalibrationOptions, DeviceOptions, Source

_BATCH_EXAMPLES: Final = 16  # as many as in a step
_GRADIENT_RANK: Final = 16
_BACKWARD_ROWS: Final = 2  # a backward pass costs about two forward passes
# Per label for forward passes; in total for the other sources, whose rows cost three times as much
_EXAMPLES: Final = {Source.FORWARD: 400, Source.GRADIENT: 128, Source.TRAJECTORY: 960}
_EXAMPLES_MAX: Final = 1_536
_TRAJECTORY_ROWS_MAX: Final = 1_920  # an example of four choices has four rows


# Called with the forward passes of a row that are done, and about how many there will be
Progress: TypeAlias = Callable[[int, int], None]


def _unheard(_done: int, _total: int) -> None:
    pass


def calibrate(
    options: CalibrationOptions,
    *,
    folder: ModelFolder,
    trainable: str,
    task: TaskSpec,
    rank: int | None = None,
    on_progress: Progress = _unheard,
) -> FoundBasis:
    """Find the basis of every tensor of the groups ``trainable``, in the order in which a manifest lists them.

    ``rank`` is the run's number of columns of each side, a power of two; None: the source's own.

    Raises:
        OperatorError: rank, model, data, device or groups cannot be used, or there is not enough memory.
    """
    if rank is not None and (rank & (rank - 1) or rank > limits.RANK_MAX):
        raise OperatorError(f"--rank {rank}: must be a power of two, at most {limits.RANK_MAX}")
    loading.check_positions(folder.path, task.max_tokens)
    data = read_task(loading.load_tokenizer(folder.path), task, data_files.locate(options.data), None)
    loaded = _load(folder.path, options.devices)
    tensors = trainable_tensors(loaded, chosen_groups(trainable))
    return new_basis(Calibration(shared=SharedModel(loaded), tensors=tensors, data=data), options, rank, on_progress)


def calibrate_described(described: RunModel, on_progress: Progress = _unheard, dense_batch_rows: int = 0) -> FoundBasis:
    """Find the basis of a new run from its loaded model and data: a dense one where it can have one.

    Else with the defaults of `calibrate`. Moves the model to the device. Raises OperatorError as `calibrate` does.

    Args:
        dense_batch_rows: rows of a dense message; 0: make no dense basis.
    """
    module: nn.Module = described.model  # the base class's `to` has types
    module.to(choose_device(DeviceOptions().device))
    calibration = _described(described)
    used = calibration.only(hold_back(calibration.data.examples, most=dense.EXAMPLES)[1])
    if not dense_batch_rows or used.rows < dense.EXAMPLES_MIN or not dense.dense_rank(calibration):
        return new_basis(calibration, CalibrationOptions(data=""), None, on_progress)
    with _counted(used.shared, used.rows, on_progress):
        return dense.dense_basis(used, dense_batch_rows)


def try_described(
    described: RunModel,
    calibration_rows: int,
    bases_at: Callable[[float], Bases],
    rates: Sequence[float],
    on_progress: Progress = _unheard,
) -> tuple[RateTrial, ...]:
    """Try the first steps of a new run (`try_rates`), after `calibrate_described` and on examples it has not used.

    Returns nothing where there are too few such examples. ``calibration_rows`` is what the calibration took.
    """
    whole = _described(described)
    _, used, _ = _choice(whole, CalibrationOptions(data=""))
    calibration = replace(whole, data=set_apart(whole.data, used.data.examples))
    if len(calibration.data.evaluation_examples) < HELD_MIN:
        return ()
    with _counted(
        calibration.shared, rows_of(bases_at(rates[0]).manifest, calibration.data, calibration_rows), on_progress
    ):
        return try_rates(calibration, bases_at, rates, calibration_rows)


def _described(run: RunModel) -> Calibration:
    return Calibration(shared=SharedModel(run.model), tensors=run.tensors, data=run.data)


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
    on_progress: Progress = _unheard,
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
    if manifest.method.basis_unit_exp != stored_bases.UNIT_EXP:
        raise OperatorError(
            f"the run's basis has units of 2^-{manifest.method.basis_unit_exp}, not 2^-{stored_bases.UNIT_EXP}"
        )
    check_model(folder.path, manifest.model)
    data = read_task(loading.load_tokenizer(folder.path), manifest.task, data_files.locate(options.data), None)
    calibration = Calibration(
        shared=SharedModel(_load(folder.path, options.devices)), tensors=manifest.tensors, data=data
    )
    move_before(calibration.shared, bases, coefficients, plan.epoch)
    renewed, is_left_out = plan.offered, False
    if renewed is None:
        found = new_basis(calibration, options, manifest.method.rank, on_progress)
        renewed = renewal_of(manifest, found)
        is_left_out = found.start is not None and renewed.start is None
        _, _, calibration = _choice(calibration, options)
    if not plan.authors:
        return Renewal(content=renewed, trial=None, is_start_left_out=is_left_out)
    with _counted(calibration.shared, plan.rows(manifest), on_progress):
        trial = try_renewal(calibration, manifest, renewed, plan)
    return Renewal(content=renewed, trial=trial, is_start_left_out=is_left_out)


def move_before(shared: SharedModel, bases: Bases, coefficients: Coefficients, epoch: int) -> None:
    """Fold all that was learnt, and all that renewals before ``epoch`` add, into the model's own weights."""
    held = {each: coefficients.core(each) for each in coefficients.epochs()}
    for name, weight in fold_weights(bases, held, shared.switch.base, epoch - 1).items():
        shared.switch.base[name].copy_(weight)


def _load(folder: Path, devices: DeviceOptions) -> PreTrainedModel:
    return loading.load_causal_lm(folder, choose_device(devices.device), loading.choose_dtype(devices.dtype))


def new_basis(
    calibration: Calibration, options: CalibrationOptions, rank: int | None, on_progress: Progress = _unheard
) -> FoundBasis:
    """Find the basis of a loaded model, from ``options.examples`` examples that are spread over all."""
    source, used, _ = _choice(calibration, options)
    with _counted(used.shared, _passes(source, used), on_progress):
        return _found(source, used, rank)


def _choice(calibration: Calibration, options: CalibrationOptions) -> tuple[Source, Calibration, Calibration]:
    """Choose source and examples; return also the calibration with the examples that are left."""
    data, source = calibration.data, options.source
    labels = len(data.label_tokens)
    if source is None:  # forward passes where they are enough
        is_enough = 1 < labels <= LABELS_MAX and writers_of(calibration)
        source = Source.FORWARD if is_enough else Source.TRAJECTORY
    count = min(_EXAMPLES[source] * (labels if source is Source.FORWARD else 1), _EXAMPLES_MAX)
    if source is Source.TRAJECTORY and data.examples:
        count = min(_EXAMPLES[source], _TRAJECTORY_ROWS_MAX * len(data.examples) // calibration.rows)
    others, used = hold_back(data.examples, most=options.examples or count)
    return source, calibration.only(used), calibration.only(others)


def _passes(source: Source, calibration: Calibration) -> int:
    """Estimate how many forward passes of a row a source takes."""
    rows, examples = calibration.rows, calibration.data.examples
    match source:
        case Source.FORWARD:
            return rows + held_rows(len(examples))
        case Source.TRAJECTORY:
            return rows + rows_in(apart(examples)[1]) * (len(LENGTHS) - 1)
        case Source.GRADIENT if calibration.data.label_tokens:
            return 2 * rows  # the first pass balances the labels
        case _:
            return rows


@contextmanager
def _counted(shared: SharedModel, total: int, on_progress: Progress) -> Iterator[None]:
    done = 0

    def count(_module: nn.Module, _arguments: tuple[object, ...], given: dict[str, Tensor]) -> None:
        nonlocal done
        done += len(given["input_ids"])
        on_progress(done, max(done, total))

    hook = shared.model.base_model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def _found(source: Source, calibration: Calibration, rank: int | None) -> FoundBasis:
    examples, has_words = calibration.data.examples, bool(calibration.data.label_tokens)
    if source is Source.FORWARD:
        if not has_words:
            raise OperatorError("--source forward needs label words of one token each; use --source trajectory")
        return forward_basis(calibration, rank or 1)
    if source is Source.TRAJECTORY:
        kept, held = apart(examples)
        found = trajectory_basis(calibration, _batches(kept), held, rank or 1)
        return replace(found, rows=rows_in(kept) * (1 + _BACKWARD_ROWS) + rows_in(held) * len(LENGTHS))
    bases = gradient_basis(calibration, _batches(examples), rank or _GRADIENT_RANK)
    looks = 2 if has_words else 1  # the first one balances the labels
    return FoundBasis(bases=bases, rows=calibration.rows * (looks + _BACKWARD_ROWS))


def _batches(examples: Sequence[Example]) -> list[Sequence[Example]]:
    """Split examples into batches, each from all over the file."""
    count = -(-len(examples) // _BATCH_EXAMPLES)
    return [examples[number::count] for number in range(count)]
