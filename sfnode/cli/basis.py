"""``sfnode basis``: make a basis for a new run. The commands that renew the basis of a run are in `renew`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from protocol.subspace import basis_file
from sfnode.cli.extras import check_can_train
from sfnode.cli.new_run import describe_start, new_model, task_of
from sfnode.cli.options import (
    choice_option,
    device_options,
    group,
    json_option,
    model_option,
    number_option,
    task_options,
    trainable_option,
)
from sfnode.cli.value_types import NewFilePath
from sfnode.reporter import counting
from sfnode.run import DataOptions, TaskOptions
from sfnode.storage import disk
from sfnode.worker_protocol import CalibrationOptions, Source

if TYPE_CHECKING:
    from sfnode.training.calibration import FoundBasis  # imports torch


calibration_options = group(
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
@calibration_options
@number_option(
    "--rank",
    None,
    "Keep this many directions on each side of a tensor, a power of two.  [default: 16 of a gradient, else 1]",
)
@trainable_option
@click.option("--out", type=NewFilePath, required=True, help="Write the basis to this file.")
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
    check_can_train()
    from sfnode.training.calibration import sources  # imports torch

    folder = new_model(model, revision)
    spec = task_of(task, DataOptions(data=calibration.data), folder=folder)
    with counting("looking at examples", "forward passes") as report:
        found = sources.calibrate(
            calibration, folder=folder, trainable=trainable, task=spec, rank=rank, on_progress=report
        )
    data = basis_file.encode_basis(found.rank, found.content)
    disk.write_new(out, [data])
    if is_json:
        click.echo(json.dumps({**file_fields(out, data), **_told(found)}))
        return
    click.echo(f"basis    {describe_bytes(data)}, rank {found.rank}")
    for line in describe_start(found):
        click.echo(line)
    suiting = ""
    if found.learning_rate is not None:
        suiting = f" --learning-rate {found.learning_rate:.3g} --epsilon-exp {found.epsilon_exp}"
    click.echo(f"written  {out}")
    click.echo(f"next     sfnode init --basis {out}{suiting} ...  (same model, task and --trainable)")


def _told(found: FoundBasis) -> dict[str, object]:
    return {
        "rank": found.rank,
        "calibration_rows": found.rows,
        "learning_rate": found.learning_rate,
        "epsilon_exp": found.epsilon_exp,
        "start": None if found.of_start is None else asdict(found.of_start),
        "model_alone": None if found.of_model is None else asdict(found.of_model),
    }


def file_fields(path: Path, data: bytes) -> dict[str, str | int]:
    """Return the JSON fields that describe a written basis file."""
    return {"file": str(path), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def describe_bytes(data: bytes) -> str:
    """Return the size and the start of the hash of a basis as text."""
    return f"{len(data):,} bytes, SHA-256 {hashlib.sha256(data).hexdigest()[:16]}..."
