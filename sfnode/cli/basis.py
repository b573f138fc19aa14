"""``sfnode basis``: a published basis for a new run, and a fresh one for a run that has moved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from protocol.errors import OperatorError
from protocol.ledger.statements import StatementCodec
from protocol.run.method import BasisKind
from protocol.state.replica import Replica
from protocol.subspace.basis_file import encode_basis
from sfnode.cli.extras import check_can_train
from sfnode.cli.init import task_of
from sfnode.cli.join import model_reference
from sfnode.cli.options import POSITIVE, FilePath, data_dir_option, device_options, json_option, task_options
from sfnode.cli.run import check_owner
from sfnode.storage.files import write_durably
from sfnode.storage.statement_files import submit
from sfnode.storage.store import read_manifest, replayed
from sfnode.storage.stored_bases import basis_in, read_bases, renewals_for, store_basis

F = TypeVar("F", bound=Callable[..., Any])

_EPOCHS_AHEAD: Final = 2  # the run goes on while the basis is made and fetched


@click.group()
def basis() -> None:
    """Directions worth searching: better than random ones, and still the same on every node."""


def _calibration_options(command: F) -> F:
    options = (
        click.option("--data", required=True, help="Calibration examples: a JSONL file or embedded:reviews."),
        click.option(
            "--source",
            type=click.Choice(["gradient", "forward"]),
            default="gradient",
            show_default=True,
            help="One back-propagation (memory for gradients), or forward passes only.",
        ),
        click.option(
            "--examples", type=POSITIVE, default=128, show_default=True, help="How many of the data, from its start."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@basis.command()
@click.option("--model", required=True, help="Hub id, local folder, or embedded:tiny-opt.")
@task_options
@_calibration_options
@click.option("--rank", type=POSITIVE, default=16, show_default=True, help="Columns of each side; a power of two.")
@click.option("--trainable", default="linear", show_default=True, help="Of linear,embedding,norm,bias.")
@click.option("--out", type=FilePath, required=True, help="File to write.")
@device_options
@json_option
def make(out: Path, is_json: bool, **choices: Any) -> None:
    """Make the file that `sfnode init --basis` names in a run's manifest.

    The file goes to every node of the run, and tells something of the examples: take ones that may be known.

    \b
    Example: sfnode basis make --model facebook/opt-125m --task sst2 --data train.jsonl --out sst2.basis
             sfnode init --model facebook/opt-125m --task sst2 --data train.jsonl --basis sst2.basis --out my.run
    """
    if out.exists():
        raise OperatorError(f"{out} exists: choose another --out, or remove it")
    check_can_train()
    from sfnode.training.calibration import CalibrationChoice, calibrate  # imports torch

    names = ("model", "trainable", "data", "source", "examples", "rank", "device", "dtype")
    choice = CalibrationChoice(task=task_of(choices), **{name: choices[name] for name in names})
    data = encode_basis(choice.rank, calibrate(choice))
    write_durably(out, data)
    digest = hashlib.sha256(data).hexdigest()
    fields = {"file": str(out), "bytes": len(data), "sha256": digest, "rank": choice.rank}
    if is_json:
        click.echo(json.dumps(fields))
        return
    click.echo(
        f"basis    {len(data):,} bytes, SHA-256 {digest[:16]}..., rank {choice.rank}\n"
        f"written  {out}\n"
        f"next     sfnode init --basis {out} ...  (same model, task and --trainable)"
    )


@basis.command()
@data_dir_option
@click.option("--owner-key", type=FilePath, required=True, help="Key that signed the run (`sfnode init`).")
@click.option("--model", help="Model folder, when the run's model is a local one.")
@_calibration_options
@click.option("--from-epoch", type=POSITIVE, help="First epoch that has it.  [default: the next but one]")
@device_options
@json_option
def renew(data_dir: Path, owner_key: Path, from_epoch: int | None, is_json: bool, **choices: Any) -> None:
    """Publish a fresh basis for a run of yours, taken at the weights that it has reached.

    The file and the signed statement go to the node of --data-dir, whether it runs or not, and from there to all
    others. They train in it from the named epoch on; what was learnt before stays as it is.

    \b
    Example: sfnode basis renew --data-dir ~/.sfnode/my-run-0123456789ab --owner-key my.key --data train.jsonl
    """
    directory = data_dir.expanduser()
    manifest = read_manifest(directory).manifest
    owner = check_owner(owner_key, manifest)
    if manifest.method.basis is BasisKind.RANDOM:
        raise OperatorError("the run's basis is random: it is drawn anew in every epoch, and nobody can renew it")
    check_can_train()
    from sfnode.training.calibration import RenewalChoice, recalibrate  # imports torch

    held, model = basis_in(directory, manifest), model_reference(manifest, choices.pop("model"))
    with replayed(directory, manifest) as replica:
        _first_epoch(replica, from_epoch)  # fails now rather than after the work
        bases, reached = read_bases(manifest, held, renewals_for(directory, replica)), replica.coefficients()
    found = recalibrate(bases, reached, RenewalChoice(model=model, **choices))
    with replayed(directory, manifest) as replica:  # the run has gone on meanwhile
        first = _first_epoch(replica, from_epoch)
    data = encode_basis(manifest.method.rank, found)
    digest = hashlib.sha256(data).hexdigest()
    path = store_basis(manifest, data, origin="the new basis", data_dir=directory, sha256=digest)
    submit(directory, [StatementCodec(manifest).renew(owner, first, digest)])
    fields = {"file": str(path), "bytes": len(data), "sha256": digest, "from_epoch": first}
    if is_json:
        click.echo(json.dumps(fields))
        return
    click.echo(
        f"basis    {len(data):,} bytes, SHA-256 {digest[:16]}..., from epoch {first} "
        f"(step {first * manifest.method.epoch_steps}) on\n"
        f"written  {path}\n"
        f"next     keep the node of {directory} running until its neighbours have the file: it tells them at once"
    )


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
