"""``sfnode init``: write and sign the manifest of a new run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from protocol.envelope import EnvelopeCodec
from protocol.errors import OperatorError
from protocol.keys import Signer
from protocol.manifest import TaskSpec, sign_manifest
from sfnode import demo
from sfnode.cli.extras import check_can_train
from sfnode.cli.options import POSITIVE, FilePath, json_option, method_options
from sfnode.data import data_spec
from sfnode.files import write_durably
from sfnode.identity import load_or_create_seed
from sfnode.run_builder import MethodChoice, build_manifest, method_plain, read_toml

_DEFAULTS = MethodChoice()
# Tasks known by name: template and label words.
TASKS = {
    "sst2": ("{sentence} It was", (" terrible", " great")),
    "embedded:reviews": (demo.TEMPLATE, demo.LABEL_WORDS),
}


@click.command()
@click.option("--model", required=True, help="Hub id, local folder, or embedded:tiny-opt.")
@click.option("--task", type=click.Choice(sorted(TASKS)), help="A task known by name.")
@click.option("--template", help='Prompt with the data\'s fields in braces, e.g. "{sentence} It was".')
@click.option("--labels", help='Label words, comma-separated, spaces kept: " no, yes" are " no" and " yes".')
@click.option("--data", help="Public training data: a JSONL file or embedded:reviews. Its hash goes into the manifest.")
@click.option("--private-data", is_flag=True, help="Every node trains on its own file, which never leaves its machine.")
@click.option("--out", type=FilePath, required=True, help="Run file to write.")
@click.option("--owner-key", type=FilePath, help="Key that signs the run; made when missing.  [default: OUT.key]")
@click.option("--name", help="Name of the run, for people.  [default: OUT without its ending]")
@click.option("--steps", type=POSITIVE, default=500, show_default=True, help="Length of the run.")
@method_options
@click.option("--settings", type=FilePath, help="TOML file whose fields replace or complete all of the above.")
@json_option
def init(out: Path, owner_key: Path | None, is_json: bool, **choices: Any) -> None:
    """Write and sign the manifest of a new run.

    \b
    Example: sfnode init --model facebook/opt-1.3b --task sst2 --data train.jsonl --out my.run
    """
    if out.exists():
        raise OperatorError(f"{out} exists: choose another --out, or remove it")
    key_path = owner_key or out.with_suffix(".key")
    signed_bytes, fields = make_run(choices, key_path=key_path, default_name=out.stem)
    write_durably(out, signed_bytes)
    fields["file"] = str(out)
    if is_json:
        click.echo(json.dumps(fields))
        return
    click.echo(
        f"run      {fields['name']} ({fields['run_id'][:16]})\n"
        f"model    {fields['model']}, {fields['tensors']} trainable tensors\n"
        f"update   {fields['record_bytes']} bytes per step and node\n"
        f"written  {out}, signed with {key_path}\n"
        f"next     sfnode join --run {out} --listen /ip4/0.0.0.0/tcp/4001"
    )


def make_run(choices: dict[str, Any], *, key_path: Path, default_name: str) -> tuple[bytes, dict[str, Any]]:
    """Content of a run file, and what to say about it. ``choices``: the options of ``sfnode init`` by name."""
    check_can_train()
    from sfnode.training.describe import default_max_tokens, describe_run  # imports torch

    choices["max_tokens"] = choices["max_tokens"] or default_max_tokens(choices["model"])
    task = _task_of(choices)
    settings = _settings_of(choices)
    model, tensors = describe_run(choices["model"], choices["trainable"], task, choices["data"])
    signer = Signer(load_or_create_seed(key_path))
    name = choices.get("name") or default_name
    manifest = build_manifest(
        name=name, owner=signer.author, model=model, tensors=tensors, task=task, settings=settings
    )
    described = {
        "run_id": manifest.run_id.hex(),
        "name": name,
        "model": model.id,
        "tensors": len(tensors),
        "record_bytes": EnvelopeCodec(manifest).record_bytes,
    }
    return sign_manifest(manifest, signer).encode(), described


def _settings_of(choices: dict[str, Any]) -> dict[str, Any]:
    """Method, schedule and steps as the options say, completed by the TOML file."""
    fields = ("rank", "core", "scalar", "directions", "local_steps", "learning_rate", "schedule")
    method, schedule = method_plain(MethodChoice(**{name: choices[name] for name in fields}))
    settings: dict[str, Any] = {"method": method, "schedule": schedule, "steps": choices["steps"]}
    for section, value in (read_toml(choices["settings"]) if choices.get("settings") else {}).items():
        held = settings.get(section)
        settings[section] = {**held, **value} if isinstance(held, dict) and isinstance(value, dict) else value
    return settings


def _task_of(choices: dict[str, Any]) -> TaskSpec:
    known = choices["task"]
    template, labels = TASKS[known] if known else (None, None)
    template = choices["template"] or template
    words = tuple(choices["labels"].split(",")) if choices["labels"] else labels
    if template is None or words is None:
        raise OperatorError('say what to learn: --task sst2, or --template "{sentence} It was" --labels " no, yes"')
    if len(words) < 2 or len(set(words)) < len(words):
        raise OperatorError(f'--labels {",".join(words)!r}: give two or more different words, such as " no, yes"')
    if choices["data"] is None and known and known.startswith("embedded:"):
        choices["data"] = known
    data, sha256 = data_spec(choices["data"], is_private=choices["private_data"])
    return TaskSpec(
        template=template,
        label_words=words,
        data=data,
        data_sha256=sha256,
        max_tokens=choices["max_tokens"],
        batch_rows=choices["batch_rows"],
    )
