"""``sfnode basis``: a published basis for a new run."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import click

from protocol.bases import encode_basis
from protocol.errors import OperatorError
from sfnode.cli.extras import check_can_train
from sfnode.cli.options import POSITIVE, FilePath, device_options, json_option, task_options
from sfnode.cli.owner import task_of
from sfnode.files import write_durably


@click.group()
def basis() -> None:
    """Directions worth searching, for a new run: better than random ones, and still the same on every node."""


@basis.command()
@click.option("--model", required=True, help="Hub id, local folder, or embedded:tiny-opt.")
@task_options
@click.option("--data", required=True, help="Calibration examples: a JSONL file or embedded:reviews.")
@click.option(
    "--source",
    type=click.Choice(["gradient", "forward"]),
    default="gradient",
    show_default=True,
    help="One back-propagation (memory for gradients), or forward passes only.",
)
@click.option("--examples", type=POSITIVE, default=128, show_default=True, help="How many of the data, from its start.")
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
