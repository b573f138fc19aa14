"""``sfnode eval`` and ``sfnode export``: the trained model out of a data directory, with no daemon running."""

from __future__ import annotations

import json
from pathlib import Path

import click
import trio

from protocol.errors import OperatorError
from protocol.run.manifest import SignedManifest
from protocol.state.coefficients import Coefficients
from sfnode.cli.extras import check_can_train
from sfnode.cli.join import model_reference
from sfnode.cli.options import FolderPath, data_dir_option, device_options, dtype_option, json_option
from sfnode.run.data_files import evaluation_file
from sfnode.storage.store import read_manifest, replayed
from sfnode.storage.stored_bases import basis_in, read_bases, renewals_for
from sfnode.worker.evaluation import evaluate_states
from sfnode.worker.messages import RenewedBasis
from sfnode.worker.training_config import TrainingConfig


@click.command("eval")
@data_dir_option
@click.option("--model", help="Model folder, when the run's model is a local one.")
@click.option("--eval-data", help="Held-out data (JSONL).  [default: that of an embedded task]")
@click.option("--compare", is_flag=True, help="Measure the model before training, too.")
@device_options
@json_option
def evaluate(
    data_dir: Path, model: str | None, eval_data: str | None, compare: bool, device: str, dtype: str, is_json: bool
) -> None:
    """Accuracy, F1 (mean over the labels) and loss of the model that a node's ledger describes.

    \b
    Example: sfnode eval --data-dir ~/.sfnode/my-run --eval-data dev.jsonl
    """
    check_can_train()
    signed, after, renewals = _load(data_dir)
    data = evaluation_file(signed.manifest.task, eval_data)
    if data is None:
        raise OperatorError("--eval-data is missing: give a JSONL file of held-out examples")
    config = TrainingConfig(
        model=model_reference(signed.manifest, model),
        data=None,
        eval_data=data,
        device=device,
        dtype=dtype,
        basis=basis_in(data_dir.expanduser(), signed.manifest),
        renewals=renewals,
    )
    states = [Coefficients(signed.manifest), after] if compare else [after]
    results = trio.run(evaluate_states, signed, config, states)
    named = dict(zip(["before", "after"] if compare else ["after"], results, strict=True))
    if is_json:
        fields = {
            name: {"accuracy": r.accuracy, "f1": r.f1, "loss": r.loss, "rows": r.rows} for name, r in named.items()
        }
        click.echo(json.dumps({**fields, "state_digest": after.digest().hex()}))
        return
    for name, result in named.items():
        f1 = "" if result.f1 is None else f"F1 {100 * result.f1:.2f} %, "
        click.echo(f"{name:<7} accuracy {100 * result.accuracy:.2f} %, {f1}loss {result.loss:.4f}, {result.rows} rows")


@click.command()
@data_dir_option
@click.option("--model", help="Model folder, when the run's model is a local one.")
@click.option("--out", type=FolderPath, required=True, help="Folder to write.")
@click.option("--adapter", is_flag=True, help="Write a PEFT LoRA adapter instead of the whole model.")
@dtype_option
@click.option("--force", is_flag=True, help="Replace the folder when it is not empty.")
@json_option
def export(data_dir: Path, model: str | None, out: Path, adapter: bool, dtype: str, force: bool, is_json: bool) -> None:
    """Write the trained model as a Hugging Face folder, or as a LoRA adapter.

    \b
    Example: sfnode export --data-dir ~/.sfnode/my-run --out my-model
    """
    check_can_train()
    from sfnode.training.export.model_folder import export_adapter, export_model  # imports torch
    from sfnode.training.model.loading import choose_dtype, resolve_model

    signed, coefficients, renewals = _load(data_dir)
    manifest = signed.manifest
    bases = read_bases(manifest, basis_in(data_dir.expanduser(), manifest), renewals)
    base = resolve_model(model_reference(manifest, model), manifest.model.revision).path
    if adapter:
        export_adapter(bases, coefficients, base, out, force)
    else:
        export_model(bases, coefficients, base, out, choose_dtype(dtype), force)
    digest = coefficients.digest().hex()
    if is_json:
        click.echo(json.dumps({"folder": str(out), "is_adapter": adapter, "state_digest": digest}))
        return
    click.echo(f"written  {out} (state {digest[:16]})")


def _load(data_dir: Path) -> tuple[SignedManifest, Coefficients, tuple[RenewedBasis, ...]]:
    """Verify and replay the ledger of a data directory: the run, its state, and the renewed bases that this needs."""
    directory = data_dir.expanduser()
    signed = read_manifest(directory)
    with replayed(directory, signed.manifest) as replica:
        return signed, replica.coefficients(), renewals_for(directory, replica)
