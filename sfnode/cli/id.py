"""``sfnode id``: show, make, back up and restore a key."""

import sys
from pathlib import Path

import click

from protocol.crypto import Signer
from protocol.errors import OperatorError
from sfnode.cli.option_values import DataFolder, FilePath, NewFilePath, NodeFolder
from sfnode.cli.options import json_option, print_result
from sfnode.keys import read_backup, write_backup
from sfnode.network import policy
from sfnode.run import default_directory
from sfnode.storage import DataDirectory, KeyFile, disk, pasteable


@click.group("id")
def identity() -> None:
    """Show a node's identity, make one, back it up or restore it.

    \b
    Example: sfnode id show my-run
    """


@identity.command()
@click.argument("node", metavar="[NODE]", required=False, type=NodeFolder)
@click.option("--data-dir", type=NodeFolder, metavar="NODE", help="Show the key of this node, as NODE does.")
@click.option("--key", type=FilePath, help="Show the key in this file, instead of a node's.")
@json_option
def show(node: DataDirectory | None, data_dir: DataDirectory | None, key: Path | None) -> None:
    """Print the public key (author) and the peer id.

    \b
    Example: sfnode id show my-run --json
    """
    if node is not None and data_dir is not None:
        raise OperatorError(f"two nodes are named, NODE {node} and --data-dir {data_dir}: give one of them")
    _print(_held_key(node or data_dir, key))


@identity.command()
@click.option("--out", type=NewFilePath, required=True, help="Write the new key to this file.")
@json_option
def new(out: Path) -> None:
    """Make a new key file.

    \b
    Example: sfnode id new --out owner.key
    """
    file = KeyFile(out)
    file.made_seed()
    _print(file)


_passphrase_option = click.option(
    "--passphrase-file",
    type=FilePath,
    help="Read the passphrase from the first line of this file, which only you can read.  [default: ask for it]",
)


@identity.command()
@click.argument("file", type=NewFilePath)
@click.option(
    "--data-dir",
    type=NodeFolder,
    metavar="NODE",
    help="Encrypt the key of this node, named as in `sfnode list` or by its data directory.  [default: the only node]",
)
@click.option("--key", type=FilePath, help="Encrypt the key in this file, such as a run's owner key.")
@_passphrase_option
@json_option
def backup(file: Path, data_dir: DataDirectory | None, key: Path | None, passphrase_file: Path | None) -> None:
    """Write an encrypted copy of a key to FILE.

    Keep it on another machine. Whoever has the file and the passphrase can sign as you; without the passphrase nobody
    can, and neither can you.

    \b
    Example: sfnode id backup my-node.backup
    """
    seed = _held_key(data_dir, key).seed()
    write_backup(file, seed, _passphrase(passphrase_file, is_new=True))
    author = Signer(seed).author.hex()
    where = "--key FILE" if key else "--data-dir DIR"
    text = f"author   {author}\nbackup   {file}\nrestore  {pasteable('sfnode id restore', file)} {where}"
    print_result({"author": author, "file": str(file)}, text)


@identity.command()
@click.argument("file", type=FilePath)
@click.option("--data-dir", type=DataFolder, help="Make the key that of the node in this data directory.")
@click.option("--key", type=NewFilePath, help="Write the key to this file.")
@_passphrase_option
@json_option
def restore(file: Path, data_dir: DataDirectory | None, key: Path | None, passphrase_file: Path | None) -> None:
    """Restore a key from the encrypted copy in FILE.

    A key that is there is never overwritten. Never let two nodes run with one key: whatever they sign for the same step
    counts for nothing.

    \b
    Example: sfnode id restore my-node.backup --data-dir ~/.sfnode/my-run-0123456789ab
    """
    target = _key_file(data_dir, key)
    if target.path.exists():
        raise OperatorError(f"{target.path} exists: a key is never overwritten. Move it away, or choose another place")
    seed = read_backup(file, _passphrase(passphrase_file, is_new=False))
    if data_dir is not None:
        author, held = Signer(seed).author.hex(), data_dir.author()
        if held not in (None, author):
            raise OperatorError(
                f"the backup is of {author}, but {data_dir} is that of {held}. Restore the backup of that one, or "
                "give a new directory: sfnode join fetches the run's state again"
            )
        data_dir.claim()
    target.store(seed)
    _print(target)


def _held_key(data_dir: DataDirectory | None, key: Path | None) -> KeyFile:
    return _key_file(default_directory.only_node() if data_dir is None and key is None else data_dir, key)


def _key_file(data_dir: DataDirectory | None, key: Path | None) -> KeyFile:
    if data_dir is not None and key is None:
        return data_dir.identity
    if data_dir is None and key is not None:
        return KeyFile(key)
    raise OperatorError("give either --data-dir or --key, to say whose key")


def _passphrase(file: Path | None, *, is_new: bool) -> str:
    """Return the passphrase from a file or the terminal. Raises OperatorError.

    There is no option for it: other programs can read the command line.
    """
    if file is None:
        if not sys.stdin.isatty():
            raise OperatorError("there is no terminal to ask for the passphrase: give --passphrase-file")
        try:
            return str(click.prompt("Passphrase", hide_input=True, confirmation_prompt=is_new, err=True))
        except UnicodeDecodeError:
            text = "the terminal types in another encoding than its locale's (LANG): give --passphrase-file"
            raise OperatorError(text) from None
    data = disk.read_bytes(file, "the passphrase")
    if file.stat().st_mode & 0o077:
        raise OperatorError(f"other users can read the passphrase in {file}: {pasteable('chmod 600', file)}")
    try:
        return next(iter(data.decode("utf-8").splitlines()), "")
    except UnicodeDecodeError:
        raise OperatorError(f"{file} is not UTF-8 text: write the passphrase into its first line") from None


def _print(file: KeyFile) -> None:
    author = file.signer().author
    fields = {"author": author.hex(), "peer": policy.peer_of_author(author), "file": str(file.path)}
    print_result(fields, "\n".join(f"{name:<7} {value}" for name, value in fields.items()))
