"""``sfnode status``: print the status of a running node."""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Final

import click

from sfnode.cli.exits import ExitCode, warn
from sfnode.cli.options import data_dir_option, json_option
from sfnode.reporter import counted, format_rate, printable
from sfnode.status import (
    PeerState,
    Status,
    describe_directions,
    describe_evaluations,
    describe_learning,
    describe_memory,
    describe_own,
    describe_pace,
    describe_peers,
    describe_slips,
    describe_stage,
    describe_time_left,
    judge_status,
    own_admission,
    read_status,
    short_peer,
    sparkline,
)
from sfnode.storage import DataDirectory

_CURVE_COLUMNS: Final = 48


@click.command()
@data_dir_option
@click.option(
    "--running",
    "is_running_enough",
    is_flag=True,
    help="Check no more than whether the node runs and reports, as a container's health check does.",
)
@json_option
def status(data_dir: DataDirectory, is_running_enough: bool, is_json: bool) -> None:
    """Show how a running node is doing.

    The exit code is 0 if all is well, 1 if no node runs there or it does not report, 3 if it has no peers although it
    knows of some, 4 if it may not contribute, 5 if the owner has excluded it, 6 if it is paused or cannot measure.

    \b
    Example: sfnode status --data-dir ~/.sfnode/my-run-0123456789ab
    """
    current = read_status(data_dir)
    if is_json:
        click.echo(json.dumps(dataclasses.asdict(current)))
    else:
        _show(current)
    if complaint := describe_learning(current):
        click.echo(f"Warning: {complaint}", err=True)
    code, trouble = judge_status(current)
    if code:
        warn(ExitCode(code), trouble, f"sfnode doctor --data-dir {shlex.quote(str(data_dir))}")
        raise SystemExit(ExitCode.DONE if is_running_enough else code)


def _show(current: Status) -> None:
    for name, value in _rows(current).items():
        if value:
            click.echo(f"{name:<8} {printable(value)}")
    if current.detail is not None:
        for peer in current.detail.peers:
            click.echo(f"{'':<8} {printable(_describe_peer(peer))}")


def _rows(current: Status) -> dict[str, str]:
    return {
        "run": f"{current.run} ({current.run_id[:16]})",
        "stage": ", ".join(
            part
            for part in (
                describe_stage(current),
                describe_directions(current),
                describe_pace(current),
                describe_time_left(current),
            )
            if part
        ),
        "lag": _describe_lag(current),
        "updates": f"{counted(current.updates, 'update')} of {counted(current.authors, 'author')}, "
        f"{counted(current.void_slots, 'void slot')}",
        "own": describe_own(current),
        "paused": current.paused,
        "admitted": f"{own_admission(current)} ({current.admission}; "
        f"{counted(current.authors_excluded, 'author')} excluded)",
        "loss": _describe_loss(current),
        "held-out": describe_evaluations(current),
        "": _curve(current),
        "speed": _describe_speed(current),
        "memory": _describe_memory(current),
        "disk": _describe_disk(current),
        "moved": f"{current.bytes_in:,} bytes in, {current.bytes_out:,} out",
        "ledger": current.ledger_root or "catching up",
        "state": current.state_digest or "catching up",
        "slips": describe_slips(current),
        "model": current.model.text if current.model is not None else "",
        "join": f"sfnode join {current.join}" if current.join else "",
        "peers": describe_peers(current),
    }


def _describe_lag(current: Status) -> str:
    lag = current.detail.lag_steps if current.detail is not None else 0
    return f"{counted(lag, 'step')} behind the median of the others" if lag else ""


def _describe_loss(current: Status) -> str:
    return "none yet" if current.loss is None else f"{current.loss:.4f} on the last training batch"


def _curve(current: Status) -> str:
    """Return a curve of the held-out losses, or else of the training losses, from the first step to the last."""
    detail = current.detail
    if detail is None:
        return ""
    losses = [each.loss for each in detail.evaluations] or [each.loss for each in detail.losses]
    what = "held-out loss" if detail.evaluations else "training loss"
    return f"{sparkline(losses, _CURVE_COLUMNS)} {what}" if len(losses) > 1 else ""


def _describe_speed(current: Status) -> str:
    detail = current.detail
    if detail is None:
        return ""
    return (
        f"{detail.rows_per_s:,.1f} forward rows a second, {format_rate(detail.bytes_in_per_s)} in, "
        f"{format_rate(detail.bytes_out_per_s)} out"
    )


def _describe_memory(current: Status) -> str:
    workers = current.detail.processes_bytes if current.detail is not None else None
    return describe_memory(current.memory) + (f", its worker {workers >> 20} MiB" if workers else "")


def _describe_disk(current: Status) -> str:
    free = current.disk_free_bytes
    return "" if free is None else f"{free / 1e9:,.1f} GB free"


def _describe_peer(peer: PeerState) -> str:
    delay = "" if peer.rtt_ms is None else f"{peer.rtt_ms:.0f} ms"
    way = "to" if peer.is_outbound else "from"
    score = f" score {peer.score:.0f}" if peer.score <= -1 else ""
    return f"{short_peer(peer.peer)} {way:<4} {peer.address:<36} {delay:>7}{' equal' if peer.is_equal else ''}{score}"
