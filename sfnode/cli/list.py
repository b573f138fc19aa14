"""``sfnode list``: the nodes of this machine."""

import click

from protocol.errors import OperatorError
from sfnode.cli.options import is_json, json_option, print_json
from sfnode.reporter import printable
from sfnode.run import HOME, default_directory
from sfnode.status import StatusWords, author_names, health_of, last_status, read_status
from sfnode.storage import DataDirectory

_COLUMNS = ("node", "run", "key", "state")


@click.command("list")
@json_option
def list_nodes() -> None:
    """Show the nodes of this machine, and what each is doing.

    They are those that were joined without --data-dir.

    Other commands take such a name, or its beginning, in place of a data directory; without one they take the only
    node. A node whose data directory lies elsewhere is named by that.

    \b
    Example: sfnode list --json
    """
    rows = [_row(node) for node in default_directory.nodes_here()]
    if is_json():
        print_json(rows)
        return
    if not rows:
        click.echo(f"there is no node in {HOME} yet: `sfnode join` makes one from the string that an owner sends you")
        return
    texts = [{name: printable(row[name]) for name in _COLUMNS} for row in rows]
    widths = {name: max(len(name), *(len(row[name]) for row in texts)) for name in _COLUMNS}
    for row in ({name: name for name in _COLUMNS}, *texts):
        click.echo("  ".join(f"{row[name]:<{widths[name]}}" for name in _COLUMNS).rstrip())


def _row(node: DataDirectory) -> dict[str, str]:
    try:
        state, run = _state(node), node.signed_manifest().manifest.name
    except OperatorError as error:
        run, state = "", str(error)
    known = last_status(node)
    who = "" if known is None else f"{known.life.own_name} {author_names.short_key(known.node.author)}".strip()
    return {"node": node.path.name, "data_dir": str(node), "run": run, "key": who, "state": state}


def _state(node: DataDirectory) -> str:
    if node.is_in_use():
        status = read_status(node)
        return ", ".join(text for text in (StatusWords(status).stage, health_of(status)[1]) if text)
    paused = "paused, " if node.control.is_paused() else ""
    return f"{paused}stopped: {node.end.describe() or 'it has not run yet'}"
