"""Make a signed manifest from an owner's options, for every command that makes a run. Imports torch lazily."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from protocol.crypto import Signer
from protocol.errors import OperatorError
from protocol.ledger import EnvelopeCodec
from protocol.run import AdmissionSpec, Manifest, Sharing, SignedManifest, TaskSpec, sign_manifest
from protocol.subspace import Bases, encode_basis
from sfnode.cli.extras import check_can_train, found_model
from sfnode.model_files import ModelFolder
from sfnode.reporter import counting, printable
from sfnode.run import (
    OPEN,
    STALENESS,
    DataOptions,
    MethodOptions,
    RunDraft,
    TaskOptions,
    build_manifest,
    label_warning,
    method_of,
    read_toml,
    renewable,
    task_texts,
)
from sfnode.storage import BasisSpec, KeyFile, data_spec, read_bases, write_new

if TYPE_CHECKING:  # both import torch
    from sfnode.training.calibration import FoundBasis, Judged, RateTrial
    from sfnode.training.describe import RunModel

_BATCH_ROWS = 16  # for commands that do not train and so have no --batch-rows
_LOWER = 1 / 2  # the share of the suggested rate to try where that rate hurts


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Holds an owner's options for a new run.

    Attributes:
        name: for people; None: the name of the run file.
        model: hub id, folder, GGUF file, "pypi:PACKAGE" or "embedded:NAME".
        revision: hub commit or version of the package; None: the newest.
        sharing: whether nodes give the model's files to each other.
        trainable: groups of tensors, separated by commas.
        basis: file of a published basis; None: `make_run` may make one, else the bases are random.
        is_plain: never make a basis.
        settings: TOML file with fields of the manifest, which override all other options.
    """

    name: str | None = None
    model: str
    revision: str | None = None
    sharing: Sharing = Sharing.PEERS
    trainable: str
    task: TaskOptions
    data: DataOptions
    batch_rows: int
    method: MethodOptions
    steps: int
    staleness: int = STALENESS
    admission: AdmissionSpec = OPEN
    basis: Path | None = None
    is_plain: bool = False
    settings: Path | None = None


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
    from sfnode.training.describe import describe_run  # imports torch

    folder = new_model(options.model, options.revision)
    task = task_of(options.task, options.data, folder=folder, batch_rows=options.batch_rows)
    described = describe_run(folder, options.trainable, task, options.data.named(options.task), options.sharing)
    signer = Signer(KeyFile(key_path).made_seed())

    def manifest_of(options: RunOptions) -> Manifest:
        basis = None if options.basis is None else BasisSpec.read(options.basis)
        chosen = options.method if basis is None else renewable(options.method, options.steps)
        method, schedule = method_of(chosen, basis)
        draft = RunDraft(
            name=options.name or default_name,
            owner=signer.author,
            model=described.spec,
            tensors=described.tensors,
            task=task,
            method=method,
            schedule=schedule,
            steps=options.steps,
            staleness=options.staleness,
            admission=options.admission,
        )
        return build_manifest(draft, None if options.settings is None else read_toml(options.settings))

    manifest, found = manifest_of(options), None
    tried: tuple[RateTrial, ...] = ()
    if basis_out is not None and _makes_basis(options):
        suited, found = _made_basis(options, described, basis_out)
        tried = _tried(options, suited, described, found, manifest_of) if is_tried else ()
        options = _at(suited, tried[-1].rate) if tried else suited
        manifest = manifest_of(options)
    if options.basis is not None:
        read_bases(manifest, options.basis)  # raises where the file is not made for these tensors
    signed = sign_manifest(manifest, signer)
    return NewRun(signed=signed, left_out=described.left_out, basis=options.basis, found=found, tried=tried)


def _makes_basis(options: RunOptions) -> bool:
    """Return whether there are data to make a basis from and no option of the owner rules one out."""
    method = options.method
    chosen = (options.basis, method.rank, method.core, method.scalar, options.settings)
    return (
        options.data.named(options.task) is not None and not options.is_plain and all(each is None for each in chosen)
    )


def _made_basis(options: RunOptions, described: RunModel, out: Path) -> tuple[RunOptions, FoundBasis]:
    """Make a basis and write it to ``out``; return the options with it, and the basis."""
    from sfnode.training.calibration import calibrate_described  # imports torch

    if os.path.lexists(out):
        raise OperatorError(f"{out} exists: give it with --basis, choose another --out, or remove it")
    with counting("making a start and a basis from some of the data", "forward passes") as tell:
        found = calibrate_described(described, tell)
    write_new(out, [encode_basis(found.rank, found.content)])
    method = options.method
    suited = replace(
        method,
        learning_rate=found.learning_rate if method.learning_rate is None else method.learning_rate,
        epsilon_exp=found.epsilon_exp if method.epsilon_exp is None else method.epsilon_exp,
    )
    return replace(options, basis=out, method=suited), found


def _tried(
    given: RunOptions,
    suited: RunOptions,
    described: RunModel,
    found: FoundBasis,
    manifest_of: Callable[[RunOptions], Manifest],
) -> tuple[RateTrial, ...]:
    """Try some steps of the run at its learning rate.

    Where that rate hurts and the owner gave none, try half of it, too.
    """
    from sfnode.training.calibration import try_described  # imports torch

    rate = suited.method.learning_rate
    assert rate is not None, "the sources that a new run's basis comes from suggest one"
    rates = (rate,) if given.method.learning_rate is not None else (rate, rate * _LOWER)

    def bases_at(rate: float) -> Bases:
        return read_bases(manifest_of(_at(suited, rate)), suited.basis)

    with counting("trying some steps of the run", "forward passes") as tell:
        return try_described(described, found.rows, bases_at, rates, tell)


def _at(options: RunOptions, rate: float) -> RunOptions:
    return replace(options, method=replace(options.method, learning_rate=rate))


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
    if warning := label_warning(texts):
        click.echo(f"Warning: {printable(warning)}", err=True)
    name, sha256 = data_spec(data.named(task), is_private=data.is_private)
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
    before, after, steps = _first(chosen.before), _second(chosen.after), f"{chosen.step_rows:,}"
    if found.start is None:
        text = f"{before} at the model as it is, {after} after {steps} forward rows"
    else:
        text = f"{before} after {found.rows:,} forward rows (the start), {after} after {steps} more"
    error = f"{chosen.error:.2g}" if chosen.after.accuracy is None else f"{100 * chosen.error:.1f} points"
    text += f"; measured on {chosen.change.examples} held-back examples (standard error {error})"
    return [f"expects  {text}", *_said_of_rate(tried)]


def _first(judged: Judged) -> str:
    return f"loss {judged.loss:.2f}" if judged.accuracy is None else f"{judged.accuracy:.0%} right"


def _second(judged: Judged) -> str:
    return f"{judged.loss:.2f}" if judged.accuracy is None else f"{judged.accuracy:.0%}"


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
