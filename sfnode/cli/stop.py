"""``sfnode stop``: ask the node to end, by a file in its data directory, and wait until it has."""

import time

import click

from protocol.errors import OperatorError
from sfnode.cli.options import json_option, node_option, number_option, print_result
from sfnode.storage import DataDirectory, pasteable

_LOOK_S = 0.1


@click.command()
@node_option
@number_option("--wait", 60, "Wait this many seconds for the node to end.")
@json_option
def stop(data_dir: DataDirectory, wait: int) -> None:
    """Stop a node, and wait until everything is on its disk.

    \b
    Example: sfnode stop my-run
    """
    if not data_dir.is_in_use():
        data_dir.check_is_node()
        raise OperatorError(f"no node runs on {data_dir}: there is nothing to stop", "not_running")
    started = time.monotonic()
    data_dir.control.ask_to_stop()
    while data_dir.is_in_use():
        if time.monotonic() - started > wait:
            text = f"the node on {data_dir} has not ended within {wait} s. It is still asked to; look at its log, and"
            raise OperatorError(f"{text} kill the process if it hangs: what it has stored is safe", "in_use")
        time.sleep(_LOOK_S)
    data_dir.control.forget_stop()
    seconds = round(time.monotonic() - started, 1)
    verb, more = ("start", "") if data_dir.node_file.exists() else ("join", " ...")
    text = f"stopped after {seconds} s\nnext     {pasteable(f'sfnode {verb} --data-dir', data_dir)}{more}"
    print_result({"stopped": True, "seconds": seconds}, text)
