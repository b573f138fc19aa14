"""``sfnode run``: decide, as the owner, who may contribute to a run."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from protocol.crypto import KEY_BYTES, Author, Signer, is_author_key
from protocol.errors import OperatorError
from protocol.ledger import StatementCodec, StatementKind
from protocol.run import AdmissionKind, Manifest
from protocol.schema import is_hex
from sfnode.cli import inviting
from sfnode.cli.interactive_questions import can_ask
from sfnode.cli.option_values import NOT_NEGATIVE, FilePath, NewFilePath, NodeFolder
from sfnode.cli.options import data_dir_option, group_of_fields, is_json, json_option, owner_key_option, print_result
from sfnode.cli.show import show
from sfnode.keys import check_owner, new_invitation
from sfnode.reporter import counted
from sfnode.run import default_directory, find_data_directory, option_field
from sfnode.status import author_names
from sfnode.storage import DataDirectory, KeyFile, decode_run_file, pasteable, read_statements_file, write_statements


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerOptions:
    """Holds the owner's key and the run to sign for: that of a node on this machine, or of a run file."""

    owner_key: Path
    data_dir: DataDirectory | None = None
    run_file: Path | None = option_field.given(
        None, "Read the run from this file, where this machine has no node of it.", name="--run"
    )


_owner_options = group_of_fields(
    "owner",
    OwnerOptions,
    owner_key=owner_key_option,
    data_dir=click.option(
        "--data-dir",
        type=NodeFolder,
        metavar="NODE",
        help="Use this node of the run, named as in `sfnode list` or by its data directory.  [default: the only node "
        "here of a run that the key has signed]",
    ),
)
_out_option = click.option(
    "--out", type=NewFilePath, help="Write the statement to this file, instead of giving it to a node."
)


@click.group("run")
def run_group() -> None:
    """Say who may contribute to a run of yours.

    Each command signs a statement with the owner's key. It goes to the node of --data-dir, whether that runs or not,
    and from there to all others; or into a file (--out), which any node of the run takes (`sfnode run submit`).
    """


@run_group.command()
@click.argument("authors", nargs=-1, required=True)
@_owner_options
@_out_option
@json_option
def admit(authors: tuple[str, ...], owner: OwnerOptions, out: Path | None) -> None:
    """Let authors contribute to a run that is not open. AUTHOR is a key of 64 hex digits: see `sfnode id show`.

    A name, or the first 16 digits of the key, will do if the node of --data-dir has heard of the author.

    \b
    Example: sfnode run admit 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29 \\
                 --owner-key my.key
    """
    manifest, signer, node = _run_and_signer(owner)
    if manifest.admission.kind is AdmissionKind.OPEN:
        raise OperatorError("the run is open: everybody may contribute. `sfnode run exclude` keeps somebody out")
    codec = StatementCodec(manifest)
    statements = [codec.admit(signer, _author(author, manifest, node)) for author in authors]
    _hand_over(manifest, statements, node, out)


@run_group.command()
@click.argument("author")
@click.option(
    "--from-step",
    type=NOT_NEGATIVE,
    required=True,
    help="Count nothing of theirs from this step on; 0 takes out everything.",
)
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask first. Without a terminal it never asks.")
@_owner_options
@_out_option
@json_option
def exclude(author: str, from_step: int, is_sure: bool, owner: OwnerOptions, out: Path | None) -> None:
    """Exclude an author for good, from some step on. What they sent since is subtracted on every node.

    AUTHOR is a name that the node of --data-dir knows, or a key, whole or its first 16 digits.

    Nobody can take this back: to contribute again, the person needs a new key, and you admit that one. On a terminal
    it asks first.

    \b
    Example: sfnode run exclude Ann --from-step 120 --owner-key my.key
    """
    manifest, signer, node = _run_and_signer(owner)
    if from_step >= manifest.steps:
        raise OperatorError(f"--from-step {from_step}: the run has steps 0 to {manifest.steps - 1}; give one of them")
    found = _author(author, manifest, node)
    if not is_sure and can_ask():
        called = "" if found.hex().startswith(author) else f"{author} "
        who = f"{called}{author_names.short_key(found.hex())}"
        question = f"Exclude {who} from step {from_step} on, for good? To come back, they need a new key"
        click.confirm(question, abort=True)
    statement = StatementCodec(manifest).exclude(signer, found, from_step)
    _hand_over(manifest, [statement], node, out)


@run_group.command()
@inviting.invite_options
@_owner_options
@json_option
def invite(options: inviting.InviteOptions, owner: OwnerOptions) -> None:
    """Print strings to join, each with an invitation that one person can use: send each to one person only.

    For a class, --uses 30 makes one string that thirty people can use.

    With the --data-dir of a node that runs, or with --at, a string holds all that a joiner needs, and `sfnode join
    STRING` is all that they type. Else only the invitations are printed, for `sfnode join --invite`.

    \b
    Example: sfnode run invite --owner-key my.key --for Ann
    """
    manifest, signer, node = _run_and_signer(owner)
    if options.svg is not None and options.count != 1:
        raise OperatorError("--svg takes one QR code: leave --count out, and call this again for each person")
    is_needed = manifest.admission.kind is AdmissionKind.INVITE
    if options.name is not None and (not is_needed or options.count * options.uses != 1 or node is None):
        text = "--for notes who gets an invitation: it takes the --data-dir of your node in an invite run"
        raise OperatorError(f"{text}, and one invitation for one person")
    if options.uses > 1 and not is_needed:
        raise OperatorError(f"--uses is for invitations, and the run's admission is {manifest.admission.kind.value}")
    made = [new_invitation(manifest, signer, options.uses) for _ in range(options.count)] if is_needed else []
    texts = [each.text for each in made] or [""] * options.count
    if options.name is not None and node is not None:
        node.invited.note(made[0].token, options.name)
    strings = inviting.strings_for(manifest, texts, options, node)
    if not is_needed and not strings:
        raise OperatorError(
            f"the run's admission is {manifest.admission.kind.value}: only an invite run has invitations, which "
            "`sfnode init` makes unless told otherwise. With --at, or a node that runs, this prints a string to join"
        )
    if options.svg is not None:
        inviting.write_svg(strings[0], options.svg)
    if is_json():
        click.echo(json.dumps({"invitations": texts if is_needed else [], "strings": strings}))
        return
    if not strings:
        click.echo("Note: no node is known that runs, so this is not a string to join, but for --invite", err=True)
    for text in strings or texts:
        click.echo(text)
        if strings and (inviting.is_qr_shown() if options.is_qr is None else options.is_qr):
            click.echo("\n".join(inviting.qr_lines(text)))


@run_group.command("submit")
@click.argument("file", type=FilePath)
@data_dir_option
@json_option
def submit_file(file: Path, data_dir: DataDirectory) -> None:
    """Give a file of statements to a node, whether it runs or not. Anybody may do this: the owner has signed them.

    \b
    Example: sfnode run submit admitted.statements
    """
    manifest = data_dir.signed_manifest().manifest
    found = read_statements_file(manifest, file)
    _submit(data_dir, manifest, [statement.data for statement in found], is_asked=False)


run_group.add_command(show)


def _run_and_signer(owner: OwnerOptions) -> tuple[Manifest, Signer, DataDirectory | None]:
    """Return the run, the key that signed it, and the node of --data-dir, or the only one of a run of that key.

    With --run alone, the node in the run's usual folder if it runs, else none.
    """
    if owner.run_file is not None:
        signed = decode_run_file(owner.run_file)
        node = find_data_directory(signed.manifest, owner.data_dir)
        is_known = owner.data_dir is not None or node.is_locked()
        if is_known:
            node.check_run(signed)
        return signed.manifest, check_owner(owner.owner_key, signed.manifest), node if is_known else None
    node = owner.data_dir or _own_node(owner.owner_key)
    manifest = node.signed_manifest().manifest
    return manifest, check_owner(owner.owner_key, manifest), node


def _own_node(owner_key: Path) -> DataDirectory:
    author = KeyFile(owner_key).signer().author
    found = []
    for node in default_directory.nodes_here():
        with suppress(OperatorError):  # a damaged manifest is none of this key
            found += [node] if node.signed_manifest().manifest.owner_key == author else []
    if len(found) == 1:
        return found[0]
    raise OperatorError(
        f"say which run: --data-dir of a node on this machine, or --run FILE ({len(found)} nodes of `sfnode list` are "
        "of a run of this key)"
    )


def _author(text: str, manifest: Manifest, node: DataDirectory | None) -> Author:
    """Return the author of a key, or of a name that the node of --data-dir knows. Raises OperatorError."""
    if is_hex(text, 2 * KEY_BYTES) and is_author_key(bytes.fromhex(text)):
        return Author(bytes.fromhex(text))
    if node is None or not node.ledger_file.exists() or is_hex(text, 2 * KEY_BYTES):
        raise OperatorError(
            f"AUTHOR {text[:80]!r}: give an author's key as 64 lower-case hex digits (`sfnode id show`), or a name "
            "with the --data-dir of a node that knows it"
        )
    roster = inviting.held_roster(node, manifest)
    with node.reading() as stored:
        names = author_names.stored_names(node, stored, roster)
        authors = {author.hex() for author in stored.authors()} | {each.hex() for each in roster.authors()}
    return Author(bytes.fromhex(names.find(text, frozenset(authors))))


def _hand_over(
    manifest: Manifest, statements: Sequence[bytes], data_dir: DataDirectory | None, out: Path | None
) -> None:
    if out is not None:
        write_statements(out, statements)
        following = f"`{pasteable('sfnode run submit', out)} --data-dir ...` on any machine with a node of the run"
        _say(_what(manifest, statements), out, following)
    elif data_dir is not None:
        _submit(data_dir, manifest, statements, is_asked=True)
    else:
        raise OperatorError("say where it goes: --data-dir of a node on this machine, or --out FILE")


def _submit(data_dir: DataDirectory, manifest: Manifest, statements: Sequence[bytes], *, is_asked: bool) -> None:
    path, fresh = inviting.hand_to_node(data_dir, manifest, statements, is_asked=is_asked)
    what = _what(manifest, statements)
    if path is None:
        print_result({"file": None, "held_already": len(statements)}, f"{what}: held already")
        return
    if held := len(statements) - fresh:
        what += f", {held} of them held already"
    _say(what, path, "the node takes it now if it runs, else at its next start")


def _what(manifest: Manifest, statements: Sequence[bytes]) -> str:
    found = [StatementCodec(manifest).decode_untrusted(data) for data in statements]
    if len(found) == 1 and found[0].kind is StatementKind.EXCLUDE:
        author, step = found[0].author.hex()[:16], found[0].from_step
        return f"excluded {author} from step {step} on, for good: to come back, they need a new key"
    if all(statement.kind is StatementKind.ADMIT for statement in found):
        return f"admitted {len(found)}"
    return counted(len(found), "statement")


def _say(what: str, path: Path, following: str) -> None:
    print_result({"file": str(path)}, f"{what}\nwritten  {path}\nnext     {following}")
