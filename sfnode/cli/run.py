"""``sfnode run``: the owner says who may contribute to a run."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from protocol.crypto.hashing import Author
from protocol.crypto.keys import KEY_BYTES, Signer, is_author_key
from protocol.errors import OperatorError
from protocol.ledger.statements import Statement, StatementCodec, StatementKind
from protocol.run.admission import AdmissionKind
from protocol.run.manifest import Manifest
from protocol.schema import is_hex
from sfnode.cli.options import NOT_NEGATIVE, POSITIVE, FilePath, FolderPath, data_dir_option, json_option
from sfnode.storage.identity import load_identity
from sfnode.storage.statement_files import read_statements_file, submit, write_statements
from sfnode.storage.store import decode_run_file, read_manifest, read_statements

F = TypeVar("F", bound=Callable[..., Any])


@click.group("run")
def run_group() -> None:
    """Say who may contribute to a run of yours: admit, exclude, invite.

    Each command signs a statement with the owner's key. It goes to the node of --data-dir, whether that runs or not,
    and from there to all others; or into a file (--out), which any node of the run takes (`sfnode run submit`).
    """


def _owner_options(command: F) -> F:
    options = (
        click.option("--owner-key", type=FilePath, required=True, help="Key that signed the run (`sfnode init`)."),
        click.option("--data-dir", type=FolderPath, help="Data directory of a node of the run on this machine."),
        click.option("--run", "run_file", type=FilePath, help="Run file, where there is no such node."),
    )
    for option in reversed(options):
        command = option(command)
    return command


_out_option = click.option("--out", type=FilePath, help="Write the statement to this file instead.")


@run_group.command()
@click.argument("authors", nargs=-1, required=True)
@_owner_options
@_out_option
@json_option
def admit(authors: tuple[str, ...], is_json: bool, **options: Any) -> None:
    """Let authors contribute to a run that is not open. AUTHOR: 64 hex digits, as `sfnode id show` prints them.

    \b
    Example: sfnode run admit 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29 \\
                 --owner-key my.key --data-dir ~/.sfnode/my-run-0123456789ab
    """
    manifest, owner = _run_and_owner(options)
    if manifest.admission.kind is AdmissionKind.OPEN:
        raise OperatorError("the run is open: everybody may contribute. `sfnode run exclude` keeps somebody out")
    codec = StatementCodec(manifest)
    statements = [codec.admit(owner, author) for author in map(_author, authors)]
    _hand_over(statements, f"admitted {len(statements)}", options, is_json)


@run_group.command()
@click.argument("author")
@click.option("--from-step", type=NOT_NEGATIVE, required=True, help="First step that does not count. 0: none counts.")
@_owner_options
@_out_option
@json_option
def exclude(author: str, from_step: int, is_json: bool, **options: Any) -> None:
    """Exclude an author from a step on, past or future, for good: what it sent since is subtracted on every node.

    \b
    Example: sfnode run exclude 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29 --from-step 120 \\
                 --owner-key my.key --data-dir ~/.sfnode/my-run-0123456789ab
    """
    manifest, owner = _run_and_owner(options)
    if from_step >= manifest.steps:
        raise OperatorError(f"--from-step {from_step}: the run has steps 0 to {manifest.steps - 1}")
    statement = StatementCodec(manifest).exclude(owner, _author(author), from_step)
    _hand_over([statement], f"excluded {author[:16]} from step {from_step} on", options, is_json)


@run_group.command()
@click.option("--count", type=POSITIVE, default=1, show_default=True, help="How many invitations.")
@_owner_options
@json_option
def invite(count: int, is_json: bool, **options: Any) -> None:
    """Print one-use invitations: whoever has one joins with `sfnode join --invite`. Send each to one person only.

    \b
    Example: sfnode run invite --count 3 --owner-key my.key --run my.run
    """
    manifest, owner = _run_and_owner(options)
    if manifest.admission.kind is not AdmissionKind.INVITE:
        raise OperatorError(
            f"the run's admission is {manifest.admission.kind.value}: only an invite run has invitations"
        )
    codec = StatementCodec(manifest)
    texts = [codec.invite(owner, secrets.token_bytes(KEY_BYTES)).text for _ in range(count)]
    click.echo(json.dumps({"invitations": texts}) if is_json else "\n".join(texts))


@run_group.command("submit")
@click.argument("file", type=FilePath)
@data_dir_option
@json_option
def submit_file(file: Path, data_dir: Path, is_json: bool) -> None:
    """Give a file of statements to the node of --data-dir, whether it runs or not. Anybody may: they are signed.

    \b
    Example: sfnode run submit admitted.statements --data-dir ~/.sfnode/my-run-0123456789ab
    """
    directory = data_dir.expanduser()
    found = read_statements_file(read_manifest(directory).manifest, file)
    _submit(directory, [statement.data for statement in found], f"{len(found)} statements", is_json)


@run_group.command()
@data_dir_option
@json_option
def show(data_dir: Path, is_json: bool) -> None:
    """Show the owner's statements that a node holds.

    \b
    Example: sfnode run show --data-dir ~/.sfnode/my-run-0123456789ab
    """
    directory = data_dir.expanduser()
    manifest = read_manifest(directory).manifest
    codec = StatementCodec(manifest)
    for data in read_statements(directory):
        statement = codec.decode_untrusted(data)
        if statement.kind is StatementKind.RENEW:
            _show_renewal(statement, is_json)
            continue
        kind, author = statement.kind.name.lower(), statement.author.hex()
        if is_json:
            click.echo(json.dumps({"kind": kind, "author": author, "from_step": statement.from_step}))
            continue
        from_step = f"  from step {statement.from_step}" if statement.kind is StatementKind.EXCLUDE else ""
        click.echo(f"{kind:<8} {author}{from_step}")


def _show_renewal(statement: Statement, is_json: bool) -> None:
    if is_json:
        fields = {"kind": "renew", "from_epoch": statement.from_epoch, "sha256": statement.sha256}
        click.echo(json.dumps(fields))
        return
    click.echo(f"renew    basis {statement.sha256}  from epoch {statement.from_epoch}")


def _run_and_owner(options: dict[str, Any]) -> tuple[Manifest, Signer]:
    """The run, and the key that signed it."""
    if options["run_file"] is not None:
        manifest = decode_run_file(options["run_file"]).manifest
    elif options["data_dir"] is not None:
        manifest = read_manifest(options["data_dir"].expanduser()).manifest
    else:
        raise OperatorError("say which run: --data-dir of a node on this machine, or --run FILE")
    return manifest, check_owner(options["owner_key"], manifest)


def check_owner(path: Path, manifest: Manifest) -> Signer:
    """The key in ``path``, which must be the one that signed the run; OperatorError for any other."""
    owner = load_identity(path)
    if owner.author != manifest.owner_key:
        raise OperatorError(
            f"--owner-key {path} is {owner.author.hex()[:16]}, but run {manifest.name!r} was signed by "
            f"{manifest.owner[:16]}: only its owner's statements count. Give the key that `sfnode init` wrote"
        )
    return owner


def _author(text: str) -> Author:
    if not is_hex(text, 2 * KEY_BYTES) or not is_author_key(bytes.fromhex(text)):
        raise OperatorError(
            f"AUTHOR {text[:80]!r}: give an author's key as 64 lower-case hex digits (`sfnode id show`)"
        )
    return Author(bytes.fromhex(text))


def _hand_over(statements: Sequence[bytes], what: str, options: dict[str, Any], is_json: bool) -> None:
    out: Path | None = options["out"]
    if out is None and options["data_dir"] is None:
        raise OperatorError("say where it goes: --data-dir of a node on this machine, or --out FILE")
    if out is None:
        _submit(options["data_dir"].expanduser(), statements, what, is_json)
        return
    if out.exists():
        raise OperatorError(f"{out} exists: choose another --out, or remove it")
    write_statements(out, statements)
    _say(what, out, f"`sfnode run submit {out} --data-dir ...` on any machine with a node of the run", is_json)


def _submit(directory: Path, statements: Sequence[bytes], what: str, is_json: bool) -> None:
    path = submit(directory, statements)
    _say(what, path, "the node takes it now if it runs, else at its next start", is_json)


def _say(what: str, path: Path, following: str, is_json: bool) -> None:
    if is_json:
        click.echo(json.dumps({"file": str(path)}))
        return
    click.echo(f"{what}\nwritten  {path}\nnext     {following}")
