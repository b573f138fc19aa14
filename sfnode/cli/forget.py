"""``sfnode forget``: remove a node's data directory, after saying what is in it."""

import sys
from contextlib import suppress

import click

from protocol.errors import OperatorError
from sfnode.cli.option_values import DataFolder
from sfnode.cli.options import is_json, json_option, print_result
from sfnode.model_files import cache_folder
from sfnode.storage import DataDirectory, disk, pasteable


@click.command()
@click.argument("data_dir", metavar="DIR", type=DataFolder)
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask before removing it.")
@json_option
def forget(data_dir: DataDirectory, is_agreed: bool) -> None:
    """Remove a node's data directory for good.

    Its key, its ledger and its snapshots go with it. DIR must be the directory of a node that does not run. Files in it
    that no node writes stay. The run goes on without you, and keeps the updates that you made. Models stay where they
    are: other runs may use them.

    \b
    Example: sfnode forget ~/.sfnode/my-run-0123456789ab
    """
    data_dir.check_is_node()
    run = "with a manifest that this release cannot read"
    with suppress(OperatorError):
        manifest = data_dir.signed_manifest().manifest
        run = f"{manifest.name!r} ({manifest.run_id.hex()[:16]})"
    if data_dir.is_in_use():
        following = pasteable("sfnode stop --data-dir", data_dir)
        raise OperatorError(f"a node runs on {data_dir}. First: {following}", "in_use")
    own, others = data_dir.entries()
    taken = disk.bytes_below(data_dir.path)
    if not is_json():
        click.echo(f"run      {run}, {taken / 1e6:,.1f} MB in {data_dir}")
        backup = pasteable("sfnode id backup FILE --data-dir", data_dir)
        click.echo(f"key      goes, too: first, if you may come back, {backup}")
        for path in others:
            click.echo(f"stays    {path!s}: no node writes that")
    if not is_agreed:
        if is_json() or not sys.stdin.isatty():
            raise OperatorError("--yes is missing: nobody can be asked here, and what is removed cannot be had back")
        click.confirm("Remove it for good?", abort=True)
    data_dir.remove()
    models = cache_folder()
    text = f"removed  {len(own)} files and folders\nmodels   {disk.bytes_below(models) / 1e6:,.0f} MB stay in {models}"
    fields = {"removed": str(data_dir), "bytes": taken, "kept": [str(path) for path in others], "models": str(models)}
    print_result(fields, text)
