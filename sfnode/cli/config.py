"""``sfnode config``: show and change the options that a node remembers."""

import os
from pathlib import Path

import click

from protocol.errors import OperatorError
from protocol.run import Manifest
from sfnode.cli import remembered_options as remembered
from sfnode.cli.option_values import NodeFolder
from sfnode.cli.options import NODE_HELP, address_words, json_option, node_option, print_result
from sfnode.reporter import printable
from sfnode.run import FieldValue, default_directory, find_model, node_toml, run_address
from sfnode.storage import DataDirectory, example_files, pasteable


@click.group()
def config() -> None:
    """Show and change what a node remembers.

    `sfnode join` writes its options into the node.toml of the data directory, and the next start reads them there. KEY
    is the name of such an option, without the dashes. You can also edit the file; a running node does not look at it.
    """


@config.command()
@node_option
@json_option
def show(data_dir: DataDirectory, **_typed: object) -> None:
    """Show what a start would use: each option, its value, and whether you, node.toml or a default says so.

    The options of `sfnode join` can be given here, too, to see what would hold with them. Nothing is changed.

    \b
    Example: sfnode config show my-run
    """
    data_dir.signed_manifest()
    settings = remembered.recall(*remembered.typed_options(click.get_current_context()), data_dir).settings
    rows = {key: {"value": each.value, "origin": each.origin.value} for key, each in settings.items()}
    shown = {key: "-" if each.value is None else node_toml.toml_of(each.value) for key, each in settings.items()}
    lines = [f"{key:<18} {each.origin:<13} {printable(shown[key])}" for key, each in settings.items()]
    print_result({"file": str(data_dir.node_file), "settings": rows}, "\n".join(lines))


show.params.extend(remembered.SETTINGS.values())


@config.command("set")
@click.argument("key")
@click.argument("values", metavar="VALUE... [NODE]", nargs=-1, required=True)
@click.option("--data-dir", type=NodeFolder, metavar="NODE", help=NODE_HELP)
@json_option
def set_value(key: str, values: tuple[str, ...], data_dir: DataDirectory | None) -> None:
    """Let a node remember another value for an option; a switch takes `true` or `false`.

    \b
    Example: sfnode config set listen /ip4/0.0.0.0/tcp/4001
    """
    is_several = remembered.SETTINGS[remembered.check_key(key, "sfnode config set")].multiple
    if data_dir is None and len(values) > 1:  # the last may be a node; one of several programs could begin its name
        places = (Path(os.path.expanduser(values[-1])), default_directory.HOME.expanduser() / values[-1])
        begun = None if is_several else default_directory.node_called(values[-1])
        data_dir = next((node for node in map(DataDirectory, places) if node.is_node), begun)
        values = values if data_dir is None else values[:-1]
    manifest = (data_dir := data_dir or default_directory.only_node()).signed_manifest().manifest
    if len(values) > 1 and not is_several:
        advice = "Quote one with spaces; a node stands last, or after --data-dir"
        raise OperatorError(f"sfnode config set: {key} takes one value, not {len(values)}. {advice}")
    if key == remembered.BOOTSTRAP:
        value = remembered.as_kept(key, _address(manifest, values, data_dir).nodes)
    else:
        typed = values if is_several else values[0]
        value = remembered.as_kept(key, remembered.converted(key, typed, f"sfnode config set: {key}"))
    assert value is not None
    _check(manifest, key, value)
    with data_dir.changing():
        node_toml.write_node_file(data_dir, {**remembered.other_fields(data_dir, key), key: value})
    _say(f"{key} = {node_toml.toml_of(value)}", data_dir)


@config.command()
@click.argument("key")
@node_option
@json_option
def unset(key: str, data_dir: DataDirectory) -> None:
    """Let a node forget an option, so that the default holds again.

    \b
    Example: sfnode config unset upnp
    """
    data_dir.signed_manifest()
    if key not in (node_toml.read_node_file(data_dir) or {}):
        remembered.check_key(key, "sfnode config unset")
    with data_dir.changing():
        node_toml.write_node_file(data_dir, remembered.other_fields(data_dir, key))
    _say(f"{key} is forgotten", data_dir)


def _address(manifest: Manifest, typed: tuple[str, ...], data_dir: DataDirectory) -> run_address.RunAddress:
    """Return the address that was typed; say what becomes of an invitation. OperatorError: it is of another run."""
    address, own = run_address.parse_run_addresses(address_words(typed)), manifest.run_id
    if address.run_id not in (None, own):
        raise OperatorError(
            f"the address is of another run, {address.run_id.hex()[:16]}: this node is in {own.hex()[:16]}. "
            "Give the address of a node of that one"
        )
    if address.invitation:
        command = pasteable("sfnode join - --data-dir", data_dir)
        click.echo(f"Note: the invitation in it is left out: `{command}`, and the string again, uses it", err=True)
    return address


def _check(manifest: Manifest, key: str, value: FieldValue) -> None:
    """Refuse a value that does not fit the run, before the next start. Raises OperatorError."""
    match key, value:
        case "model", str():
            find_model(manifest, value)
        case "data", str():
            example_files.training_file(manifest.task, value)
        case "eval-data", str():
            example_files.evaluation_file(manifest.task, value)


def _say(what: str, data_dir: DataDirectory) -> None:
    path, is_running = data_dir.node_file, data_dir.is_in_use()
    following = "stop the node and start it again" if is_running else "start the node"
    text = f"{printable(what)}\nwritten  {path}\nnext     {following}: {pasteable('sfnode start --data-dir', data_dir)}"
    print_result({"file": str(path), "is_running": is_running}, text)
