"""``sfnode basis``: a published basis for a new run, and a fresh one for a run that has moved."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from protocol.errors import OperatorError
from protocol.ledger import StatementCodec
from protocol.run import BasisKind
from protocol.state import Replica
from protocol.subspace import BasisContent, encode_basis
from sfnode.cli.extras import check_can_train
from sfnode.cli.found_model import found_model
from sfnode.cli.new_run import describe_start, new_model, task_of
from sfnode.cli.options import (
    POSITIVE,
    FilePath,
    choice_option,
    data_dir_option,
    device_options,
    group,
    json_option,
    local_model_option,
    model_option,
    number_option,
    owner_key_option,
    task_options,
    trainable_option,
)
from sfnode.keys import check_owner
from sfnode.reporter import counting
from sfnode.run import DataOptions, TaskOptions, find_model
from sfnode.storage import (
    basis_in,
    read_bases,
    read_manifest,
    renewals_for,
    replayed,
    store_basis,
    submit,
    write_durably,
)
from sfnode.worker_protocol import CalibrationOptions, Source

if TYPE_CHECKING:
    from sfnode.training.calibration import FoundBasis, RenewalTrial  # imports torch

_EPOCHS_AHEAD: Final = 2  # the run goes on while the basis is made and fetched


_calibration_options = group(
    "calibration",
    CalibrationOptions,
    click.option(
        "--data", required=True, help="Calibrate on these examples: a JSONL file with labels, or embedded:reviews."
    ),
    choice_option(
        "--source",
        Source,
        "Make the basis from forward passes alone, from a short run with back-propagation (trajectory), or from one "
        "gradient. The first two find a start for the run, too; the last two need the memory of back-propagation.  "
        "[default: forward where every label word is one token, else trajectory]",
    ),
    number_option(
        "--examples",
        None,
        "Use this many examples, spread over the data.  [default: forward 400 for each label, at most 1,536; "
        "trajectory 960; gradient 128]",
    ),
    device_options,
)


@click.group()
def basis() -> None:
    """Find directions that are better to search than random ones. They are the same on every node."""


@basis.command()
@model_option("Make the basis for this model")
@task_options
@_calibration_options
@number_option(
    "--rank",
    None,
    "Keep this many directions on each side of a tensor, a power of two.  [default: 16 of a gradient, else 1]",
)
@trainable_option
@click.option("--out", type=FilePath, required=True, help="Write the basis to this file.")
@json_option
def make(
    model: str,
    revision: str | None,
    task: TaskOptions,
    calibration: CalibrationOptions,
    rank: int | None,
    trainable: str,
    out: Path,
    is_json: bool,
) -> None:
    """Make the file that `sfnode init --basis` names in a run's manifest.

    The file goes to every node of the run and tells something about the examples: use ones that need not stay private.

    \b
    Example: sfnode basis make --model facebook/opt-125m --task sst2 --data train.jsonl --out sst2.basis
             sfnode init --model facebook/opt-125m --task sst2 --data train.jsonl --basis sst2.basis --out my.run
    """
    if out.exists():
        raise OperatorError(f"{out} exists: choose another --out, or remove it")
    check_can_train()
    from sfnode.training.calibration import calibrate  # imports torch

    folder = new_model(model, revision)
    spec = task_of(task, DataOptions(data=calibration.data), folder=folder)
    with counting("looking at examples", "forward passes") as tell:
        found = calibrate(calibration, folder=folder, trainable=trainable, task=spec, rank=rank, tell=tell)
    data = encode_basis(found.rank, found.content)
    write_durably(out, data)
    if is_json:
        click.echo(json.dumps({**_fields(out, data), **_told(found)}))
        return
    click.echo(f"basis    {_described(data)}, rank {found.rank}")
    for line in describe_start(found):
        click.echo(line)
    click.echo(f"written  {out}")
    click.echo(f"next     sfnode init --basis {out}{_hints(found)} ...  (same model, task and --trainable)")


def _told(found: FoundBasis) -> dict[str, object]:
    return {
        "rank": found.rank,
        "calibration_rows": found.rows,
        "learning_rate": found.learning_rate,
        "epsilon_exp": found.epsilon_exp,
        "start": None if found.of_start is None else asdict(found.of_start),
        "model_alone": None if found.of_model is None else asdict(found.of_model),
    }


def _hints(found: FoundBasis) -> str:
    """The options of `sfnode init` that suit the basis."""
    if found.learning_rate is None:
        return ""
    return f" --learning-rate {found.learning_rate:.3g} --epsilon-exp {found.epsilon_exp}"


@basis.command()
@data_dir_option
@owner_key_option
@local_model_option
@_calibration_options
@click.option(
    "--from-epoch", type=POSITIVE, help="Train in the new basis from this epoch on.  [default: the next but one]"
)
@click.option("--untried", is_flag=True, help="Publish it without a trial.")
@json_option
def renew(
    data_dir: Path,
    owner_key: Path,
    model: str | None,
    revision: str | None,
    calibration: CalibrationOptions,
    from_epoch: int | None,
    untried: bool,
    is_json: bool,
) -> None:
    """Publish a fresh basis for a run of yours, taken at the weights that it has reached.

    First some steps are tried in it. Where they raise the loss on examples held back, nothing is published.
    The file and the signed statement go to the node of --data-dir, whether it runs or not, and from there to all
    others. They train in it from the named epoch on; what was learnt before stays as it is.

    \b
    Example: sfnode basis renew --data-dir ~/.sfnode/my-run-0123456789ab --owner-key my.key --data train.jsonl
    """
    directory = data_dir.expanduser()
    manifest = read_manifest(directory).manifest
    owner = check_owner(owner_key, manifest)
    if manifest.method.basis is BasisKind.RANDOM:
        raise OperatorError(
            "the run's basis is random: every epoch draws it anew. Only a run of `sfnode init --basis` can be renewed"
        )
    check_can_train()
    from sfnode.training.calibration import TrialPlan, recalibrate  # imports torch

    held = basis_in(directory, manifest)
    folder = found_model(find_model(manifest, model, revision), manifest.model.revision)
    with replayed(directory, manifest) as replica:
        epoch = _first_epoch(replica, from_epoch)  # fails now rather than after the work
        bases, reached = read_bases(manifest, held, renewals_for(directory, replica)), replica.coefficients()
        plan = None if untried else TrialPlan(epoch=epoch, authors=max(1, len(replica.ledger.authors())))
    with counting("looking at examples", "forward passes") as tell:
        found = recalibrate(calibration, bases, reached, folder, plan, tell)
    _check(found.trial)
    with replayed(directory, manifest) as replica:  # the run has gone on meanwhile
        first = _first_epoch(replica, from_epoch)
    data = encode_basis(manifest.method.rank, BasisContent(bases=found.bases))
    path = store_basis(manifest, data, origin="the new basis", data_dir=directory, sha256=_sha256(data))
    submit(directory, [StatementCodec(manifest).renew(owner, first, _sha256(data))])
    if is_json:
        tried = None if found.trial is None else asdict(found.trial)
        click.echo(json.dumps({**_fields(path, data), "from_epoch": first, "trial": tried}))
        return
    if not untried:
        click.echo(f"trial    {_described_trial(found.trial)}")
    click.echo(f"basis    {_described(data)}, from epoch {first} (step {first * manifest.method.epoch_steps}) on")
    click.echo(f"written  {path}")
    click.echo(
        f"next     keep the node of {directory} running until its neighbours have the file: it tells them at once"
    )


def _check(trial: RenewalTrial | None) -> None:
    if trial is not None and trial.hurts:
        raise OperatorError(
            f"the new basis would hurt, so it is not published: {_described_trial(trial)}. Try another --source or "
            "more --examples, or end the run here. --untried publishes a basis all the same"
        )


def _described_trial(trial: RenewalTrial | None) -> str:
    if trial is None:
        return "none: too few examples of --data are left beside those that the basis was made from"
    authors = f"{trial.authors} node{'s' if trial.authors > 1 else ''}"
    return (
        f"loss {trial.loss_before:.3f} -> {trial.loss_after:.3f} (+-{trial.error:.3f}) on {trial.examples} examples "
        f"held back, after some steps of {authors}, {trial.rows:,} forward rows"
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _fields(path: Path, data: bytes) -> dict[str, str | int]:
    return {"file": str(path), "bytes": len(data), "sha256": _sha256(data)}


def _described(data: bytes) -> str:
    return f"{len(data):,} bytes, SHA-256 {_sha256(data)[:16]}..."


def _first_epoch(replica: Replica, asked: int | None) -> int:
    """The epoch to renew from: what others train in now stays what it is, and they need time to fetch the file."""
    manifest = replica.manifest
    present = max(replica.ledger.authors().values(), default=0) // manifest.method.epoch_steps
    first, last = asked or present + _EPOCHS_AHEAD, (manifest.steps - 1) // manifest.method.epoch_steps
    if first <= present:
        raise OperatorError(f"--from-epoch {first}: the run is in epoch {present} already; name a later one")
    if first > last:
        raise OperatorError(f"the run is in epoch {present} of 0 ... {last}: no epoch {first} is left to renew it for")
    return first
