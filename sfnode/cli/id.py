"""``sfnode id``: the node's key."""

from __future__ import annotations

import json
from pathlib import Path

import click

from protocol.errors import OperatorError
from sfnode.cli.options import FilePath, FolderPath, json_option
from sfnode.network import peer_of_author
from sfnode.storage import IDENTITY_FILE, load_identity, load_or_create_seed


@click.group("id")
def identity() -> None:
    """Show or make a node's identity.

    \b
    Example: sfnode id show --data-dir ~/.sfnode/my-run
    """


@identity.command()
@click.option("--data-dir", type=FolderPath, help="Show the key of the node whose state is in this data directory.")
@click.option("--key", type=FilePath, help="Show the key in this file, instead of a node's.")
@json_option
def show(data_dir: Path | None, key: Path | None, is_json: bool) -> None:
    """Print the public key (author) and the peer id.

    \b
    Example: sfnode id show --data-dir ~/.sfnode/my-run --json
    """
    if (data_dir is None) == (key is None):
        raise OperatorError("give either --data-dir or --key, to say whose key to show")
    _print(key or Path(data_dir or "") / IDENTITY_FILE, is_json)


@identity.command()
@click.option("--out", type=FilePath, required=True, help="Write the new key to this file.")
@json_option
def new(out: Path, is_json: bool) -> None:
    """Make a new key file.

    \b
    Example: sfnode id new --out owner.key
    """
    if out.exists():
        raise OperatorError(f"{out} exists: a key is never overwritten. Choose another --out")
    load_or_create_seed(out)
    _print(out, is_json)


def _print(path: Path, is_json: bool) -> None:
    author = load_identity(path).author
    fields = {"author": author.hex(), "peer": peer_of_author(author), "file": str(path)}
    if is_json:
        click.echo(json.dumps(fields))
        return
    click.echo(f"author  {fields['author']}\npeer    {fields['peer']}\nfile    {path}")
