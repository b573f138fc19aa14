"""``sfnode basis renew`` and ``basis offer``: make a fresh basis for a run whose model has moved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from protocol.errors import OperatorError
from protocol.ledger import StatementCodec
from protocol.run import BasisKind, Manifest
from protocol.state import Replica
from protocol.subspace import BasisContent, basis_file
from sfnode.cli.basis import calibration_options, describe_bytes, file_fields
from sfnode.cli.extras import check_can_train, found_model
from sfnode.cli.inviting import statements_given
from sfnode.cli.options import data_dir_option, json_option, local_model_option, owner_key_option
from sfnode.cli.value_types import POSITIVE, FilePath, NewFilePath
from sfnode.keys import check_owner
from sfnode.reporter import counting
from sfnode.run import find_model
from sfnode.storage import DataDirectory, disk, stored_bases
from sfnode.worker_protocol import CalibrationOptions

if TYPE_CHECKING:
    from sfnode.training.calibration import Renewal, RenewalTrial, TrialPlan  # imports torch

_EPOCHS_AHEAD: Final = 2  # the run goes on while the basis is made and fetched


_from_epoch_option = click.option(
    "--from-epoch", type=POSITIVE, help="Train in the new basis from this epoch on.  [default: the next but one]"
)


@click.command()
@data_dir_option
@local_model_option
@calibration_options
@_from_epoch_option
@click.option("--out", type=NewFilePath, required=True, help="Write the basis to this file.")
@json_option
def offer(
    data_dir: DataDirectory,
    model: str | None,
    revision: str | None,
    calibration: CalibrationOptions,
    from_epoch: int | None,
    out: Path,
    is_json: bool,
) -> None:
    """Make a fresh basis for somebody else's run, at the weights that it has reached, and try it.

    Any node can. In a run with a start the file holds a further one, which is added to the weights: examples that no
    earlier one was made from help most. The file tells something about them. Send it to the run's owner, who tries it
    on other examples and publishes it with `sfnode basis renew --basis FILE`.

    \b
    Example: sfnode basis offer --data-dir ~/.sfnode/my-run-0123456789ab --data mine.jsonl --out better.basis
    """
    node = _Followed(data_dir, model, revision)
    found = node.recalibrated(calibration, lambda replica: _plan(replica, from_epoch))
    data = basis_file.encode_basis(node.manifest.method.rank, found.content)
    _check(found.trial, "written")
    disk.write_new(out, [data])
    if is_json:
        fields = {"has_start": _has_start(found.content), "trial": _trial_fields(found.trial)}
        click.echo(json.dumps({**file_fields(out, data), **fields}))
        return
    click.echo(f"start    {_described_start(node.manifest, found.content, found)}")
    click.echo(f"trial    {_described_trial(found.trial)}")
    click.echo(f"basis    {describe_bytes(data)}")
    click.echo(f"written  {out}")
    click.echo(f"next     send it to the run's owner, who publishes it: sfnode basis renew --basis {out.name} ...")


@click.command()
@data_dir_option
@owner_key_option
@local_model_option
@calibration_options
@_from_epoch_option
@click.option(
    "--basis",
    "offered",
    type=FilePath,
    help="Publish this file, from `sfnode basis offer`, and only try it on --data.  [default: one is made from --data]",
)
@click.option("--untried", is_flag=True, help="Publish it without a trial.")
@json_option
def renew(
    data_dir: DataDirectory,
    owner_key: Path,
    model: str | None,
    revision: str | None,
    calibration: CalibrationOptions,
    from_epoch: int | None,
    offered: Path | None,
    untried: bool,
    is_json: bool,
) -> None:
    """Publish a fresh basis for a run of yours, taken at the weights that it has reached.

    In a run with a start the file holds a further one, which is added to the weights: give --data that no earlier one
    was made from.
    First it is added, and some steps are tried. Where they raise the loss on examples held back, nothing is published.
    The file and the signed statement go to the node of --data-dir, whether it runs or not, and from there to all
    others. They train in it from the named epoch on; what was learnt before stays as it is.

    \b
    Example: sfnode basis renew --data-dir ~/.sfnode/my-run-0123456789ab --owner-key my.key --data train.jsonl
    """
    node = _Followed(data_dir, model, revision)
    manifest = node.manifest
    owner = check_owner(owner_key, manifest)
    if from_epoch is not None:
        statements_given.check_epoch_is_free(statements_given.held_roster(data_dir, manifest), from_epoch)
    data, content = (None, None) if offered is None else stored_bases.read_renewal(manifest, offered)
    found = None
    if data is None or content is None or not untried:
        found = node.recalibrated(
            calibration, lambda replica: _plan(replica, from_epoch, content, is_tried=not untried)
        )  # the plan fails now rather than after the work
        content = found.content
        data = data or basis_file.encode_basis(manifest.method.rank, content)
    trial = None if found is None else found.trial
    _check(trial, "published", ", or end the run here. --untried publishes a basis all the same")
    with data_dir.replayed(manifest) as replica:  # the run has gone on since
        first = _first_epoch(replica, from_epoch)
    statements_given.check_epoch_is_free(statements_given.held_roster(data_dir, manifest), first)
    sha256 = hashlib.sha256(data).hexdigest()
    path = data_dir.bases.store(manifest, data, origin="the new basis", sha256=sha256)
    data_dir.statements.submit([StatementCodec(manifest).renew(owner, first, sha256)])
    if is_json:
        fields = {"from_epoch": first, "has_start": _has_start(content), "trial": _trial_fields(trial)}
        click.echo(json.dumps({**file_fields(path, data), **fields}))
        return
    click.echo(f"start    {_described_start(manifest, content, found)}")
    if not untried:
        click.echo(f"trial    {_described_trial(trial)}")
    click.echo(f"basis    {describe_bytes(data)}, from epoch {first} (step {first * manifest.method.epoch_steps}) on")
    click.echo(f"written  {path}")
    click.echo(
        f"next     keep the node of {data_dir} running until its neighbours have the file: it tells them at once"
    )


class _Followed:
    """Calibrates at the state of a node's run. OperatorError: its basis cannot be renewed, or no model is found."""

    def __init__(self, data_dir: DataDirectory, model: str | None, revision: str | None) -> None:
        self._data_dir = data_dir
        self.manifest = manifest = data_dir.signed_manifest().manifest
        if manifest.method.basis is BasisKind.RANDOM:
            raise OperatorError(
                "the run's basis is random: every epoch draws it anew. Only a run of `sfnode init --basis` can be "
                "renewed"
            )
        if manifest.method.is_dense:
            raise OperatorError(
                "the run has a dense core, whose basis came from examples without their labels: other examples give "
                "nearly the same one, and a renewal would gain nothing"
            )
        check_can_train()
        self._folder = found_model(find_model(manifest, model, revision), manifest.model.revision)

    def recalibrated(self, calibration: CalibrationOptions, plan_of: Callable[[Replica], TrialPlan]) -> Renewal:
        """Return a fresh basis, made at the weights that the run has reached, and its trial."""
        from sfnode.training.calibration import sources  # imports torch

        bases_here = self._data_dir.bases
        with self._data_dir.replayed(self.manifest) as replica:
            plan = plan_of(replica)
            renewals = bases_here.renewals_of(replica)
            _check_here(replica, {each.from_epoch for each in renewals}, plan.epoch)
            bases = stored_bases.read_bases(self.manifest, bases_here.first(self.manifest), renewals)
            reached = replica.coefficients()
        with counting("looking at examples", "forward passes") as report:
            return sources.recalibrate(calibration, bases, reached, self._folder, plan, report)


def _plan(
    replica: Replica, from_epoch: int | None, offered: BasisContent | None = None, *, is_tried: bool = True
) -> TrialPlan:
    from sfnode.training.calibration import TrialPlan  # imports torch

    authors = max(1, len(replica.ledger.authors())) if is_tried else 0
    return TrialPlan(epoch=_first_epoch(replica, from_epoch), authors=authors, offered=offered)


def _check_here(replica: Replica, here: Collection[int], first: int) -> None:
    """Raise OperatorError where the file of a renewal before ``first`` is missing: the weights need its start."""
    for epoch in replica.ledger.roster.renewals():
        if epoch < first and epoch not in here:
            text = "is not here yet, and the new one comes after it"
            raise OperatorError(f"the basis from epoch {epoch} on {text}: start the node, it fetches the file")


def _check(trial: RenewalTrial | None, what: str, otherwise: str = "") -> None:
    if trial is not None and trial.hurts:
        raise OperatorError(
            f"the new basis would hurt, so it is not {what}: {_described_trial(trial)}. Try another --source or more "
            f"--examples{otherwise}"
        )


def _has_start(content: BasisContent) -> bool:
    return content.start is not None and content.start.moves_any


def _described_start(manifest: Manifest, content: BasisContent, found: Renewal | None) -> str:
    if _has_start(content):
        return "a further one, added to the weights from the basis's first epoch on"
    if not manifest.method.start_rank:
        return "none: this run's files hold none"
    if found is not None and found.is_start_left_out:
        return f"none: what was found does not fit into this run's files (rank {manifest.method.start_rank})"
    return "none: it would not lower the loss on examples held back, or the source makes none"


def _trial_fields(trial: RenewalTrial | None) -> dict[str, object] | None:
    return None if trial is None else asdict(trial)


def _described_trial(trial: RenewalTrial | None) -> str:
    if trial is None:
        return "none: too few examples of --data are left beside those that the basis was made from"
    authors = f"{trial.authors} node{'s' if trial.authors > 1 else ''}"
    return (
        f"loss {trial.loss_before:.3f} -> {trial.loss_after:.3f} (+-{trial.error:.3f}) on {trial.examples} examples "
        f"held back, after some steps of {authors}, {trial.rows:,} forward rows"
    )


def _first_epoch(replica: Replica, asked: int | None) -> int:
    """Return the epoch to renew from.

    It lies after the present one, whose basis may not change, and by default leaves others time to fetch the file.
    """
    manifest = replica.manifest
    present = max(replica.ledger.authors().values(), default=0) // manifest.method.epoch_steps
    renewed = max(replica.ledger.roster.renewals(), default=0)  # where one epoch has two renewals, the hash decides
    last = (manifest.steps - 1) // manifest.method.epoch_steps
    first = asked or max(present + _EPOCHS_AHEAD, renewed + 1)
    if first <= present:
        raise OperatorError(f"--from-epoch {first}: the run is in epoch {present} already; name a later one")
    if first > last:
        raise OperatorError(f"the run is in epoch {present} of 0 ... {last}: no epoch {first} is left to renew it for")
    return first
