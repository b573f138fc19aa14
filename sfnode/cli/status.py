"""``sfnode status``: look at a running node."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import click

from sfnode.cli.exits import ExitCode, warn
from sfnode.cli.options import data_dir_option, json_option
from sfnode.node import Status, describe_memory, own_admission, read_status
from sfnode.reporter import printable


@click.command()
@data_dir_option
@click.option(
    "--running",
    "is_running_enough",
    is_flag=True,
    help="Check no more than whether the node runs and reports, as a container's health check does.",
)
@json_option
def status(data_dir: Path, is_running_enough: bool, is_json: bool) -> None:
    """Show how a running node is doing.

    The exit code is 0 if all is well, 1 if no node runs there or it does not report, 3 if it has no peers although it
    knows of some, 4 if it may not contribute, 5 if the owner has excluded it.

    \b
    Example: sfnode status --data-dir ~/.sfnode/my-run-0123456789ab
    """
    current = read_status(data_dir)
    if is_json:
        click.echo(json.dumps(dataclasses.asdict(current)))
    else:
        _show(current)
    code, trouble = _judge(current)
    if code:
        warn(code, trouble, f"sfnode doctor --data-dir {shlex.quote(str(data_dir))}")
        raise SystemExit(ExitCode.DONE if is_running_enough else code)


def _judge(current: Status) -> tuple[ExitCode, str]:
    """Exit code, and what is wrong; a node whose run is over needs no peers, and a relay no admission."""
    if current.excluded_from is not None:
        return ExitCode.EXCLUDED, own_admission(current)
    if not current.peers and current.expects_peers and not current.is_over:
        return ExitCode.NO_PEERS, "this node knows of others, and none is connected"
    if current.is_training and not current.is_admitted:
        return ExitCode.NOT_ADMITTED, own_admission(current)
    return ExitCode.DONE, ""


def _show(current: Status) -> None:
    rows = {
        "run": f"{current.run} ({current.run_id[:16]})",
        "step": f"{current.step} of {current.steps}",
        "updates": f"{current.updates} of {current.authors} authors, {current.own_updates} own, "
        f"{current.void_slots} void slots",
        "peers": current.peers,
        "admitted": f"{own_admission(current)} ({current.admission}; {current.authors_excluded} authors excluded)",
        "loss": "none yet" if current.loss is None else f"{current.loss:.4f}",
        "memory": describe_memory(current.memory),
        "moved": f"{current.bytes_in:,} bytes in, {current.bytes_out:,} out",
        "ledger": current.ledger_root or "catching up",
        "state": current.state_digest or "catching up",
    }
    if current.paused:
        rows["paused"] = current.paused
    if current.model is not None:
        rows["model"] = current.model.text
    if current.join:
        rows["join"] = f"sfnode join {current.join}"
    for name, value in rows.items():
        click.echo(f"{name:<8} {printable(str(value))}")
