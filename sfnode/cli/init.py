"""``sfnode init``: write and sign the manifest of a new run."""

import json
import re
from pathlib import Path

import click

from protocol.errors import OperatorError
from protocol.limits import POW_BITS_MAX
from protocol.run import DATA_PRIVATE, AdmissionKind, AdmissionSpec, Manifest, TaskKind, parse_reward
from sfnode.cli.interactive_questions import AskingCommand, check_is_new, command_with_answers
from sfnode.cli.new_run import NewRun, make_run
from sfnode.cli.option_values import FilePath, NewRunPath
from sfnode.cli.options import choice_option, group, group_of_fields, is_json, json_option, model_option, task_options
from sfnode.keys import INVITATION_ENDING, KEY_ENDING, check_owner, new_invitation
from sfnode.reporter import counted, printable
from sfnode.run import RunOptions, find_data_directory, rule_in_words
from sfnode.storage import disk, example_files, pasteable, stored_basis

_LISTEN = "/ip4/0.0.0.0/tcp/4001"

_admission_options = group(
    "admission",
    AdmissionSpec,
    choice_option(
        "--admission",
        AdmissionKind,
        "Let these contribute: `open` anybody, `allow-list` keys that you admit, `invite` also those whom you invite.",
        AdmissionKind.INVITE,
        key="kind",
    ),
    click.option(
        "--pow-bits",
        type=click.IntRange(0, POW_BITS_MAX),
        default=0,
        show_default=True,
        help="Ask for this many bits of work per key in an open run. Each bit doubles the work. 20 take a node about "
        "20 s of one core, and a program written for that alone less than a second.",
    ),
)


@click.command(cls=AskingCommand)
@click.option("--out", type=NewRunPath, required=True, help="Write the run to this file.")
@click.option(
    "--owner-key",
    type=FilePath,
    help="Sign the run with this key, which is made when it is missing.  [default: OUT.key]",
)
@group_of_fields("options", RunOptions, model=model_option(), task=task_options, admission=_admission_options)
@json_option
@click.pass_context
def init(context: click.Context, out: Path, owner_key: Path | None, options: RunOptions) -> None:
    """Write and sign the manifest of a new run. On a terminal it asks for model, task, data and file if not given.

    \b
    Example: sfnode init --model facebook/opt-1.3b --task sst2 --data train.jsonl --out my.run
    """
    check_is_new(out, owner_key)
    if options.admission.pow_bits and options.admission.kind is not AdmissionKind.OPEN:
        raise OperatorError("--pow-bits is the price of a key in an open run: add --admission open, or leave it out")
    key_path = owner_key or out.with_suffix(KEY_ENDING)
    try:
        basis_out = out.with_suffix(stored_basis.BASIS_ENDING)
        name = out.stem.encode("utf-8", "replace").decode("utf-8")  # which a file's name need not be
        run = make_run(options, key_path, default_name=name, basis_out=basis_out)
    except OperatorError:
        _say_unasked(context)
        raise
    manifest = run.signed.manifest
    disk.write_new(out, [run.signed.encode()])
    invitation = _write_invitation(run, key_path, out)
    first = _first_start(options, run, out, invitation, key_path)
    if is_json():
        click.echo(json.dumps(_as_json(run, out, invitation) | {"owner_key": str(key_path), "next": first}))
    else:
        if run.data != options.data.named(options.task):
            what = "has the same rows in the form that every node reads: publish this one"
            click.echo(f"data     {run.data} {what}")
        _say(run, out, key_path)
        click.echo(f"next     {pasteable(*first)}")
        if manifest.task.data == DATA_PRIVATE and "--data" not in first:
            click.echo("data     add --data FILE to that: every node trains on a file of its own")
        click.echo(_admission_hint(manifest, key_path, out))
        _say_unasked(context)


def _say_unasked(context: click.Context) -> None:
    """Print the command that repeats the answers without asking, so that a wrong answer does not lose the others."""
    if unasked := command_with_answers(context):
        click.echo(f"unasked  {unasked}\n         asks nothing, and makes the same run")


def _write_invitation(run: NewRun, key_path: Path, out: Path) -> Path | None:
    """Write an invitation for the first node, the owner's own, into a private file; None if the run has none.

    The next command names the file, because every user of the machine can read a command line.
    """
    manifest = run.signed.manifest
    if manifest.admission.kind is not AdmissionKind.INVITE:
        return None
    path = out.with_suffix(INVITATION_ENDING)
    disk.write_new(path, [new_invitation(manifest, check_owner(key_path, manifest)).text.encode() + b"\n"], mode=0o600)
    return path


def _as_json(run: NewRun, out: Path, invitation: Path | None) -> dict[str, object]:
    manifest = run.signed.manifest
    return {
        "run_id": manifest.run_id.hex(),
        "name": manifest.name,
        "model": manifest.model.id,
        "tensors": len(manifest.tensors),
        "left_out": dict(run.left_out),
        "admission": manifest.admission.kind.value,
        "invitation": "" if invitation is None else invitation.read_text().strip(),
        "invitation_file": None if invitation is None else str(invitation),
        "record_bytes": run.record_bytes,
        "basis": None if run.basis is None else str(run.basis),
        "calibration_rows": None if run.found is None else run.found.rows,
        "calibration_backward_rows": None if run.found is None else run.found.backward_rows,
        "drawn_answers": [
            {"text": text, "reward": reward, "has_ended": has_ended}
            for text, reward, has_ended in (() if run.found is None else run.found.drawn)
        ],
        "file": str(out),
        "data": run.data,
    }


def _first_start(options: RunOptions, run: NewRun, out: Path, invitation: Path | None, key_path: Path) -> list[str]:
    """Return the command that starts the run's first node.

    It gives the local files that the manifest only names, and in an invite run the key that signs for those who come.
    Without ``--data`` in the options it has no ``--data`` either, although a run of private data needs one.
    """
    manifest, data = run.signed.manifest, run.data
    given: dict[str, object] = {"--run": out, "--basis": run.basis}
    if options.model != manifest.model.id:
        given["--model"] = options.model
    if not manifest.task.data.startswith(example_files.EMBEDDED):
        given["--data"] = data
    if invitation is not None:
        given |= {"--invite": f"@{invitation}", "--owner-key": key_path}
    given["--listen"] = _LISTEN
    said = [(option, str(value)) for option, value in given.items() if value is not None]
    return ["sfnode", "join", *(word for pair in said for word in pair)]


def _say(run: NewRun, out: Path, key_path: Path) -> None:
    manifest = run.signed.manifest
    click.echo(printable(f"run      {manifest.name} ({manifest.run_id.hex()[:16]})"))
    click.echo(f"model    {manifest.model.id}, {len(manifest.tensors)} trainable tensors")
    if run.words:
        click.echo(printable(run.words))
    kinds: dict[str, list[str]] = {}
    for tensor, why in run.left_out.items():
        kinds.setdefault(re.sub("[0-9]+", "*", tensor), []).append(why)
    for kind, reasons in kinds.items():  # a large model has hundreds that differ in the number of their layer
        why = reasons[0].partition("cannot be trained: ")[2].partition("; leave")[0]
        click.echo(f"left out {kind} ({counted(len(reasons), 'tensor')}): {why}")
    method = f"slopes along {manifest.method.directions} random directions a step"
    if run.found is not None:
        numbers = f"{manifest.numbers - 1:,} numbers of {manifest.method.number_bits} bits from one forward pass a row"
        back = f" and {run.found.backward_rows} backward" if run.found.backward_rows else ""
        method = f"the gradient by {numbers}; the basis took {run.found.rows:,} forward{back} rows"
    click.echo(f"method   {method}")
    if manifest.task.kind is TaskKind.REWARD:
        click.echo(f"reward   {rule_in_words(parse_reward(manifest.task.completion))}")
    click.echo(f"update   {run.record_bytes:,} bytes per step and node")
    click.echo(f"written  {out}, signed with {key_path}")


def _admission_hint(manifest: Manifest, key_path: Path, out: Path) -> str:
    match manifest.admission.kind:
        case AdmissionKind.ALLOW_LIST:
            directory = find_data_directory(manifest, None)
            return (
                f"admit    {pasteable('sfnode run admit AUTHOR --owner-key', key_path, '--data-dir', directory)}\n"
                "         for each who joins, your own node, too: `sfnode id show` says to them who AUTHOR is"
            )
        case AdmissionKind.INVITE:
            return (
                f"invite   {pasteable('sfnode run invite --owner-key', key_path, '--run', out)}\n"
                "         makes an invitation for each who joins; the node above signs for them with that key\n"
                "open     sfnode init --admission open makes a run to which anybody may contribute"
            )
        case AdmissionKind.OPEN:
            return "open     anybody may contribute, with as many keys as they like: see docs/threat-model.md"
