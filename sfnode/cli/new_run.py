"""Make a signed manifest from an owner's options, for every command that makes a run. Imports torch lazily."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from protocol.crypto import Signer
from protocol.errors import OperatorError
from protocol.ledger import EnvelopeCodec
from protocol.run import CoreKind, SignedManifest, TaskSpec
from protocol.subspace import basis_file
from sfnode.cli.extras import check_can_train, found_model
from sfnode.model_files import ModelFolder
from sfnode.reporter import counting, printable
from sfnode.run import DataOptions, RunDraft, RunOptions, TaskOptions, task_texts
from sfnode.storage import KeyFile, data_files, disk

if TYPE_CHECKING:  # both import torch
    from sfnode.training.calibration import FoundBasis, RateTrial

_BATCH_ROWS = 16  # for commands that do not train and so have no --batch-rows


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """Holds a signed run and the by-products of making it.

    Attributes:
        left_out: tensors of the model that no choice of --trainable could train, with the reasons.
        basis: file of its basis; None: random bases.
        found: the basis, where it was made for this run; else None.
        tried: trials of some steps on held-back examples; the run has the learning rate of the last one.
    """

    signed: SignedManifest
    left_out: Mapping[str, str]
    basis: Path | None = None
    found: FoundBasis | None = None
    tried: tuple[RateTrial, ...] = ()

    @property
    def record_bytes(self) -> int:
        """Return the size of one update's record."""
        return EnvelopeCodec(self.signed.manifest).record_bytes


def make_run(
    options: RunOptions, key_path: Path, *, default_name: str, basis_out: Path | None = None, is_tried: bool = False
) -> NewRun:
    """Sign a new run with the key in ``key_path``; make the key if it is missing.

    Args:
        basis_out: make a basis and write it here, unless the owner has chosen the directions (`RunOptions`). None:
            make none.
        is_tried: where a basis is made, also try some steps of the run, if there are enough data.

    Raises:
        OperatorError: an option is wrong; raised before a basis is made.
    """
    check_can_train()
    from sfnode.training.calibration import sources  # imports torch
    from sfnode.training.describe import describe_run

    folder = new_model(options.model, options.revision)
    task = task_of(options.task, options.data, folder=folder, batch_rows=options.batch_rows)
    described = describe_run(folder, options.trainable, task, options.data.named(options.task), options.sharing)
    named, signer = replace(options, name=options.name or default_name), Signer(KeyFile(key_path).made_seed())
    draft = RunDraft(named, signer, task, described.spec, described.tensors)
    draft.manifest()  # raises
    found: FoundBasis | None = None
    tried: tuple[RateTrial, ...] = ()
    if basis_out is not None and options.wants_basis:
        if os.path.lexists(basis_out):
            raise OperatorError(f"{basis_out} exists: give it with --basis, choose another --out, or remove it")
        with counting("making a start and a basis from some of the data", "forward passes") as report:
            found = sources.calibrate_described(described, report, options.dense_batch_rows)
        disk.write_new(basis_out, [basis_file.encode_basis(found.rank, found.content)])
        draft.take_basis(basis_out, found.learning_rate, found.epsilon_exp)
        if found.dense is not None:
            draft.take_dense(found.dense, found.tensors)
    if options.method.core is CoreKind.DENSE and (found is None or found.dense is None):
        raise OperatorError(
            "--core dense: needs 32 examples, label words of one token, the loss as objective, layers known to write "
            "to the residual stream, and no option on how directions are drawn. Leave it out to take what there can be"
        )
    if found is not None and found.dense is None and is_tried:
        with counting("trying some steps of the run", "forward passes") as report:
            tried = sources.try_described(described, found.rows, draft.bases_at, draft.rates_to_try(), report)
        if tried:
            draft.take_rate(tried[-1].rate)
    return NewRun(signed=draft.signed(), left_out=described.left_out, basis=draft.basis, found=found, tried=tried)


def new_model(reference: str, revision: str | None) -> ModelFolder:
    """Return the model of a new run. OperatorError: there is no such model, or it has no revisions."""
    folder = found_model(reference, revision)
    if revision and not folder.revision:
        raise OperatorError(f"--revision {revision}: {reference} has none; only models of the hub and of packages do")
    return folder


def task_of(task: TaskOptions, data: DataOptions, *, folder: ModelFolder, batch_rows: int = _BATCH_ROWS) -> TaskSpec:
    """Return the task for a manifest; warn about odd label words. OperatorError: texts or data do not make a task."""
    from sfnode.training.describe import default_max_tokens  # imports torch

    texts = task_texts(task)
    if warning := texts.label_warning:
        click.echo(f"Warning: {printable(warning)}", err=True)
    name, sha256 = data_files.data_spec(data.named(task), is_private=data.is_private)
    return TaskSpec(
        kind=texts.kind,
        template=texts.template,
        completion=texts.completion,
        label_words=texts.label_words,
        objective=task.objective,
        data=name,
        data_sha256=sha256,
        max_tokens=task.max_tokens or default_max_tokens(folder),
        batch_rows=batch_rows,
    )


def describe_start(found: FoundBasis) -> list[str]:
    """Return lines on what a calibration found and what it cost; each begins with a name padded to nine characters."""
    rows = f"rows     the calibration took {found.rows:,} forward rows; a backward pass counts as two"
    model, start = found.of_model, found.of_start
    if model is None:
        return [rows]
    if start is None:
        alone = f"loss {model.loss:.2f}" if model.accuracy is None else f"{model.accuracy:.0%} of them right"
        text = f"the start does not help on held-back examples; the run begins at the model as it is, {alone}"
    elif start.accuracy is None or model.accuracy is None:
        text = f"loss {start.loss:.2f} on held-back examples before any training; the model alone {model.loss:.2f}"
    else:
        text = f"{start.accuracy:.0%} of held-back examples right before any training"
        text += f"; the model alone {model.accuracy:.0%}"
    return [f"start    {text}", rows]


def describe_expectation(found: FoundBasis, tried: Sequence[RateTrial]) -> list[str]:
    """Return lines, as `describe_start` does, on what the tried steps did on held-back examples; none if untried."""
    if not tried:
        return []
    chosen = tried[-1]
    first, last, steps = chosen.before, chosen.after, f"{chosen.step_rows:,}"
    before = f"loss {first.loss:.2f}" if first.accuracy is None else f"{first.accuracy:.0%} right"
    after = f"{last.loss:.2f}" if last.accuracy is None else f"{last.accuracy:.0%}"
    if found.start is None:
        text = f"{before} at the model as it is, {after} after {steps} forward rows"
    else:
        text = f"{before} after {found.rows:,} forward rows (the start), {after} after {steps} more"
    error = f"{chosen.error:.2g}" if chosen.after.accuracy is None else f"{100 * chosen.error:.1f} points"
    text += f"; measured on {chosen.change.examples} held-back examples (standard error {error})"
    return [f"expects  {text}", *_said_of_rate(tried)]


def _said_of_rate(tried: Sequence[RateTrial]) -> list[str]:
    """Return a line on the learning rate where the first one tried hurts; else none."""
    rise, (first, last) = "raised the loss by more than twice its standard error", (tried[0], tried[-1])
    if not first.hurts:
        return []
    if not last.hurts:
        return [f"rate     {last.rate:.2g}, for {first.rate:.2g} {rise} in these steps"]
    if len(tried) == 1:
        return [f"rate     {last.rate:.2g}, as given, {rise} in these steps: a lower --learning-rate may not"]
    return [f"rate     {last.rate:.2g}, the lowest of those tried, which all {rise}: the run may not learn"]
