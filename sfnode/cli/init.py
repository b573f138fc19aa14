"""``sfnode init``: write and sign the manifest of a new run."""

from __future__ import annotations

import json
from pathlib import Path

import click

from protocol.errors import OperatorError
from protocol.limits import POW_BITS_MAX
from protocol.run import AdmissionKind, AdmissionSpec, Manifest
from sfnode.cli.new_run import NewRun, RunOptions, make_run
from sfnode.cli.options import (
    FilePath,
    choice_option,
    group,
    json_option,
    learning_options,
    model_option,
    number_option,
)
from sfnode.run import DataOptions
from sfnode.storage import write_durably

_data_options = group(
    "data",
    DataOptions,
    click.option(
        "--data",
        help="Train on these public data: a JSONL file or embedded:reviews. Their hash goes into the manifest.",
    ),
    click.option(
        "--private-data",
        "is_private",
        is_flag=True,
        help="Let every node train on a file of its own, which never leaves its machine.",
    ),
)
_admission_options = group(
    "admission",
    AdmissionSpec,
    choice_option(
        "--admission",
        AdmissionKind,
        "Let these contribute: `open` anybody, `allow-list` keys that you admit, `invite` also those whom you invite.",
        AdmissionKind.OPEN,
        key="kind",
    ),
    click.option(
        "--pow-bits",
        type=click.IntRange(0, POW_BITS_MAX),
        default=0,
        show_default=True,
        help="Ask for this many bits of work per key in an open run. Each bit doubles the work; 20 take half a minute.",
    ),
)


@click.command()
@click.option("--out", type=FilePath, required=True, help="Write the run to this file.")
@click.option(
    "--owner-key",
    type=FilePath,
    help="Sign the run with this key, which is made when it is missing.  [default: OUT.key]",
)
@group(
    "options",
    RunOptions,
    click.option("--name", help="Give the run this name, for people to read.  [default: OUT without its ending]"),
    model_option("Train this model"),
    learning_options,
    _data_options,
    number_option("--steps", 500, "Let each node make this many steps."),
    click.option(
        "--basis",
        type=FilePath,
        help="Search in this published basis, from `sfnode basis make`, instead of in random directions.",
    ),
    _admission_options,
    click.option(
        "--settings",
        type=FilePath,
        help="Read fields of the manifest from this TOML file; they replace or complete all other options.",
    ),
)
@json_option
def init(out: Path, owner_key: Path | None, options: RunOptions, is_json: bool) -> None:
    """Write and sign the manifest of a new run.

    \b
    Example: sfnode init --model facebook/opt-1.3b --task sst2 --data train.jsonl --out my.run
    """
    if out.exists():
        raise OperatorError(f"{out} exists: choose another --out, or remove it")
    key_path = owner_key or out.with_suffix(".key")
    run = make_run(options, key_path, default_name=out.stem)
    write_durably(out, run.signed.encode())
    if is_json:
        click.echo(json.dumps(_as_json(run, out)))
    else:
        _say(run, out, key_path, options.basis)


def _as_json(run: NewRun, out: Path) -> dict[str, object]:
    manifest = run.signed.manifest
    return {
        "run_id": manifest.run_id.hex(),
        "name": manifest.name,
        "model": manifest.model.id,
        "tensors": len(manifest.tensors),
        "left_out": dict(run.left_out),
        "admission": manifest.admission.kind.value,
        "record_bytes": run.record_bytes,
        "file": str(out),
    }


def _say(run: NewRun, out: Path, key_path: Path, basis: Path | None) -> None:
    manifest = run.signed.manifest
    with_basis = f" --basis {basis}" if basis else ""
    click.echo(f"run      {manifest.name} ({manifest.run_id.hex()[:16]})")
    click.echo(f"model    {manifest.model.id}, {len(manifest.tensors)} trainable tensors")
    for tensor, why in run.left_out.items():
        click.echo(f"left out {tensor}: {why}")
    click.echo(f"update   {run.record_bytes} bytes per step and node")
    click.echo(f"written  {out}, signed with {key_path}")
    click.echo(f"next     sfnode join --run {out}{with_basis} --listen /ip4/0.0.0.0/tcp/4001")
    if hint := _admission_hint(manifest, key_path, out):
        click.echo(hint)


def _admission_hint(manifest: Manifest, key_path: Path, out: Path) -> str:
    """How the first author, too, gets into a run that is not open."""
    match manifest.admission.kind:
        case AdmissionKind.ALLOW_LIST:
            return f"admit    sfnode run admit AUTHOR --owner-key {key_path} --data-dir DIR: your own node, too"
        case AdmissionKind.INVITE:
            return f"invite   sfnode run invite --owner-key {key_path} --run {out}: then join with --invite, you too"
        case AdmissionKind.OPEN:
            return ""
