"""``sfnode pause`` and ``sfnode resume``: write or remove a file that the node looks at every second."""

import math
import time
from contextlib import suppress

import click

from protocol.errors import OperatorError
from sfnode.cli.options import CheckedText, json_option, node_option, print_result
from sfnode.reporter import printable
from sfnode.run import parse_time
from sfnode.status import read_status
from sfnode.storage import DataDirectory, pasteable

_LOOK_S = 0.1
_HEARD_S = 5.0  # the node looks every second; on a busy machine later


@click.command()
@node_option
@click.option(
    "--for",
    "duration",
    type=CheckedText(parse_time),
    metavar="TIME",
    help="Let it go on by itself after this time: 4h, 90min or 2d.  [default: at `sfnode resume`]",
)
@json_option
def pause(data_dir: DataDirectory, duration: str | None) -> None:
    """Pause a node: it measures nothing, but still stores and serves.

    It stays so over restarts, until `sfnode resume`. The step that is being measured is finished. The model stays in
    memory; `sfnode stop` frees it. A node that does not run is paused for its next start.

    \b
    Example: sfnode pause my-run --for 4h
    """
    data_dir.check_is_node()
    until_s = math.inf if duration is None else time.time() + parse_time(duration)
    is_same, before = math.isinf(data_dir.control.paused_until_s()) and math.isinf(until_s), _paused_now(data_dir)
    data_dir.control.pause(until_s)
    reason = before if is_same else _heard(data_dir, before)
    text = f"paused: {printable(reason)}" if reason else _unheard(data_dir)
    if not (is_running := data_dir.is_in_use()):
        text = f"{data_dir} is paused from its next start on: no node runs there now"
    until = None if math.isinf(until_s) else round(until_s)
    print_result({"paused": True, "is_running": is_running, "until": until, "reason": reason or ""}, text)


@click.command()
@node_option
@json_option
def resume(data_dir: DataDirectory) -> None:
    """Let a paused node measure again.

    Other reasons not to work stay: --hours, --only-when-idle, --on-battery, --max-memory.

    \b
    Example: sfnode resume my-run
    """
    data_dir.check_is_node()
    was_paused, before = data_dir.control.is_paused(), _paused_now(data_dir)
    data_dir.control.resume()
    reason = _heard(data_dir, before) if was_paused else before
    text = f"still paused: {printable(reason)}" if reason else "the node measures again"
    if not (is_running := data_dir.is_in_use()):
        text = f"{data_dir} is not paused any more; no node runs there now"
    elif reason is None or (was_paused and reason == before):
        text = _unheard(data_dir)
    print_result({"paused": bool(reason), "is_running": is_running, "reason": reason or ""}, text)


def _paused_now(data_dir: DataDirectory) -> str | None:
    """Return why the node does not measure; empty while it does; None where no node runs or reports."""
    with suppress(OperatorError):
        return read_status(data_dir).life.paused
    return None


def _heard(data_dir: DataDirectory, before: str | None) -> str | None:
    """Wait until `_paused_now` differs from ``before``, at most `_HEARD_S` seconds, and return it."""
    deadline = time.monotonic() + _HEARD_S
    while (paused := _paused_now(data_dir)) is not None and paused == before:
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_S)
    return paused


def _unheard(data_dir: DataDirectory) -> str:
    return (
        "written, but the node has not said that it follows: a relay measures nothing anyway, and one that still reads "
        f"its disk needs longer. Look again with: {pasteable('sfnode status --data-dir', data_dir)}"
    )
