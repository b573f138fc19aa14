"""``sfnode init``: write and sign the manifest of a new run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError
from protocol.ledger.envelope import EnvelopeCodec
from protocol.limits import POW_BITS_MAX
from protocol.run.admission import AdmissionKind
from protocol.run.manifest import sign_manifest
from protocol.run.task import Objective, TaskKind, TaskSpec
from sfnode.cli.extras import check_can_train
from sfnode.cli.options import POSITIVE, FilePath, json_option, method_options, task_options
from sfnode.run.builder import MethodChoice, build_manifest, method_plain, read_toml
from sfnode.run.builtin_tasks import BUILTIN_TASKS, kind_of
from sfnode.storage.data_files import data_spec
from sfnode.storage.files import write_durably
from sfnode.storage.identity import load_or_create_seed
from sfnode.storage.stored_bases import basis_settings, read_bases

_WITH_BASIS = {"core": "rademacher", "scalar": "normalised", "learning_rate": 3e-3}  # docs/learning.md
_ADMISSIONS = click.Choice([kind.value for kind in AdmissionKind])
_BATCH_ROWS = 16  # where a command does not train, and so has no such option


@click.command()
@click.option("--model", required=True, help="Hub id, local folder, or embedded:tiny-opt.")
@task_options
@click.option("--data", help="Public training data: a JSONL file or embedded:reviews. Its hash goes into the manifest.")
@click.option("--private-data", is_flag=True, help="Every node trains on its own file, which never leaves its machine.")
@click.option("--out", type=FilePath, required=True, help="Run file to write.")
@click.option("--owner-key", type=FilePath, help="Key that signs the run; made when missing.  [default: OUT.key]")
@click.option("--name", help="Name of the run, for people.  [default: OUT without its ending]")
@click.option("--steps", type=POSITIVE, default=500, show_default=True, help="Length of the run.")
@click.option("--basis", type=FilePath, help="Published basis (`sfnode basis make`) instead of random ones.")
@click.option("--admission", type=_ADMISSIONS, default="open", show_default=True, help="Who may contribute.")
@click.option(
    "--pow-bits",
    type=click.IntRange(0, POW_BITS_MAX),
    default=0,
    show_default=True,
    help="Of an open run: work that each key must cost. 20: half a minute.",
)
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
    basis = f" --basis {choices['basis']}" if choices["basis"] else ""
    if is_json:
        click.echo(json.dumps(fields))
        return
    left_out = [f"left out {name}: {why}" for name, why in fields["left_out"].items()]
    click.echo(
        f"run      {fields['name']} ({fields['run_id'][:16]})\n"
        f"model    {fields['model']}, {fields['tensors']} trainable tensors\n"
        + "".join(f"{line}\n" for line in left_out)
        + f"update   {fields['record_bytes']} bytes per step and node\n"
        f"written  {out}, signed with {key_path}\n"
        f"next     sfnode join --run {out}{basis} --listen /ip4/0.0.0.0/tcp/4001"
        + _admission_hint(fields["admission"], key_path, out)
    )


def _admission_hint(admission: str, key_path: Path, out: Path) -> str:
    """How the first author, too, gets into a run that is not open."""
    match admission:
        case AdmissionKind.ALLOW_LIST:
            return f"\nadmit    sfnode run admit AUTHOR --owner-key {key_path} --data-dir DIR: your own node, too"
        case AdmissionKind.INVITE:
            return f"\ninvite   sfnode run invite --owner-key {key_path} --run {out}: then join with --invite, you too"
        case _:
            return ""


def make_run(choices: dict[str, Any], *, key_path: Path, default_name: str) -> tuple[bytes, dict[str, Any]]:
    """Content of a run file, and what to say about it. ``choices``: the options of ``sfnode init`` by name."""
    check_can_train()
    from sfnode.training.describe import describe_run  # imports torch

    task = task_of(choices)
    settings = _settings_of(choices)
    model = describe_run(choices["model"], choices["trainable"], task, choices["data"])
    signer = Signer(load_or_create_seed(key_path))
    name = choices.get("name") or default_name
    manifest = build_manifest(
        name=name, owner=signer.author, model=model.spec, tensors=model.tensors, task=task, settings=settings
    )
    if choices.get("basis"):
        read_bases(manifest, choices["basis"])  # made for these tensors?
    described = {
        "run_id": manifest.run_id.hex(),
        "name": name,
        "model": model.spec.id,
        "tensors": len(model.tensors),
        "left_out": model.left_out,
        "admission": manifest.admission.kind.value,
        "record_bytes": EnvelopeCodec(manifest).record_bytes,
    }
    return sign_manifest(manifest, signer).encode(), described


def _settings_of(choices: dict[str, Any]) -> dict[str, Any]:
    """Method, schedule and steps as the options say, completed by the TOML file."""
    fields = ("rank", "core", "scalar", "directions", "sides", "shares", "local_steps", "learning_rate", "schedule")
    chosen = {name: choices[name] for name in fields} | _published_settings(choices)
    method, schedule = method_plain(MethodChoice(**chosen))
    admission = {"kind": choices.get("admission", AdmissionKind.OPEN.value), "pow_bits": choices.get("pow_bits", 0)}
    settings: dict[str, Any] = {"method": method, "schedule": schedule, "steps": choices["steps"]}
    settings["admission"] = admission
    for section, value in (read_toml(choices["settings"]) if choices.get("settings") else {}).items():
        held = settings.get(section)
        settings[section] = {**held, **value} if isinstance(held, dict) and isinstance(value, dict) else value
    return settings


def _published_settings(choices: dict[str, Any]) -> dict[str, Any]:
    """With --basis: its rank, hash and bounds, and what learns best with it wherever the owner says nothing."""
    if not choices.get("basis"):
        return {}
    source = click.get_current_context().get_parameter_source
    found = basis_settings(choices["basis"])
    if source("rank") is not ParameterSource.DEFAULT and choices["rank"] != found["rank"]:
        raise OperatorError(f"--rank {choices['rank']}: the basis {choices['basis']} has rank {found['rank']}")
    unsaid = {name: value for name, value in _WITH_BASIS.items() if source(name) is ParameterSource.DEFAULT}
    return unsaid | found


def task_of(choices: dict[str, Any]) -> TaskSpec:
    """The task that the options of `task_options` and --data, --private-data, --batch-rows describe."""
    from sfnode.training.describe import default_max_tokens  # imports torch

    template, completion, words = _texts_of(choices)
    if choices["data"] is None and choices["task"] and choices["task"].startswith("embedded:"):
        choices["data"] = choices["task"]
    data, sha256 = data_spec(choices["data"], is_private=choices.get("private_data", False))
    return TaskSpec(
        kind=kind_of(completion),
        template=template,
        completion=completion,
        label_words=words,
        objective=Objective(choices["objective"]),
        data=data,
        data_sha256=sha256,
        max_tokens=choices["max_tokens"] or default_max_tokens(choices["model"]),
        batch_rows=choices.get("batch_rows", _BATCH_ROWS),
    )


def _texts_of(choices: dict[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    """Template, completion and label words: those given, else those of the known task."""
    known = BUILTIN_TASKS.get(choices["task"])
    completion = choices["completion"] if choices["completion"] is not None else known.completion if known else ""
    template = choices["template"] if choices["template"] is not None else known.template if known else None
    given = tuple(choices["labels"].split(",")) if choices["labels"] else None
    if kind_of(completion) is not TaskKind.CLASSIFICATION:
        if given is not None:
            raise OperatorError("--labels: a task with a --completion has no label words; leave one of them out")
        return template or "", completion, ()
    words = given or (known.label_words if known else ())
    if template is None or not words:
        raise OperatorError(
            'say what to learn: --task sst2 (--task list shows all), or --template "{sentence} It was" '
            '--labels " no, yes", or --completion "{text}"'
        )
    if len(words) < 2 or len(set(words)) < len(words):
        raise OperatorError(f'--labels {",".join(words)!r}: give two or more different words, such as " no, yes"')
    return template, completion, words
