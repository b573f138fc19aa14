"""``sfnode eval``: measure the trained model from a data directory; no node needs to run."""

from __future__ import annotations

import json

import click
import trio

from protocol.errors import OperatorError
from protocol.state import Coefficients
from sfnode.cli.extras import check_can_train
from sfnode.cli.options import at_step_option, data_dir_option, device_options, json_option, local_model_option
from sfnode.run import find_model
from sfnode.storage import AtStep, DataDirectory, data_files
from sfnode.worker import evaluate_states
from sfnode.worker_protocol import DeviceOptions, TrainingConfig


@click.command("eval")
@data_dir_option
@local_model_option
@click.option(
    "--eval-data",
    help="Measure on this JSONL file of held-out examples.  [default: the data that come with an embedded task]",
)
@at_step_option
@click.option("--compare", is_flag=True, help="Measure the model alone, too.")
@device_options
@json_option
def evaluate(
    data_dir: DataDirectory,
    model: str | None,
    revision: str | None,
    eval_data: str | None,
    at_step: AtStep | None,
    compare: bool,
    devices: DeviceOptions,
    is_json: bool,
) -> None:
    """Measure how good a trained model is: accuracy, F1 (mean over the labels) and loss on held-out data.

    With --compare, "before" is the model alone, and "after" the model now, or at --at-step.

    \b
    Example: sfnode eval --data-dir ~/.sfnode/my-run --eval-data dev.jsonl
    """
    check_can_train()
    state = data_dir.state(at_step)
    manifest = state.signed.manifest
    data = data_files.evaluation_file(manifest.task, eval_data)
    if data is None:
        raise OperatorError("--eval-data is missing: give a JSONL file of held-out examples")
    config = TrainingConfig(
        model=find_model(manifest, model, revision),
        data=None,
        eval_data=data,
        devices=devices,
        basis=state.basis,
    )
    states = [Coefficients(manifest), state.coefficients] if compare else [state.coefficients]
    results = trio.run(evaluate_states, state.signed, config, states)
    named = dict(zip(("before", "after")[-len(states) :], results, strict=True))
    if is_json:
        fields = {
            name: {"accuracy": r.accuracy, "f1": r.f1, "loss": r.loss, "rows": r.rows} for name, r in named.items()
        }
        click.echo(json.dumps({**fields, "state_digest": state.coefficients.digest().hex()}))
        return
    for name, result in named.items():
        f1 = "" if result.f1 is None else f"F1 {100 * result.f1:.2f} %, "
        click.echo(f"{name:<7} accuracy {100 * result.accuracy:.2f} %, {f1}loss {result.loss:.4f}, {result.rows} rows")
