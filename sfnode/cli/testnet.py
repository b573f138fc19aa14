"""``sfnode testnet``: a whole network on this machine, to see it work."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import trio
from rich.console import Console
from rich.live import Live
from rich.table import Table

from protocol.errors import OperatorError, SfnodeError
from protocol.run.manifest import decode_run_untrusted
from sfnode import demo
from sfnode.cli.init import make_run
from sfnode.cli.options import (
    NOT_NEGATIVE,
    POSITIVE,
    FolderPath,
    device_options,
    json_option,
    method_options,
    task_options,
)
from sfnode.run.builder import MethodChoice
from sfnode.storage.data_files import evaluation_file, training_file
from sfnode.testnet.local_network import LocalNetwork, LocalNetworkConfig, LocalNetworkResult, NodeProcess
from sfnode.worker.training_config import TrainingConfig

_DEFAULTS = MethodChoice()
_PRINT_S = 2.0


@click.command()
@click.option("--nodes", type=POSITIVE, default=4, show_default=True, help="Node processes.")
@click.option("--late", type=NOT_NEGATIVE, default=0, show_default=True, help="Nodes that join half-way.")
@click.option("--steps", type=POSITIVE, help=f"Length of the run.  [default: {demo.STEPS}]")
@click.option("--model", default="embedded:tiny-opt", show_default=True, help="Folder, hub id or embedded:tiny-opt.")
@task_options
@click.option("--data", help="Training data (JSONL).  [default: that of the demo]")
@click.option("--eval-data", help="Held-out data (JSONL).  [default: that of the demo]")
@method_options
@click.option("--dir", "folder", type=FolderPath, help="Where to keep everything.  [default: a new temporary folder]")
@click.option(
    "--timeout", type=click.FloatRange(1), default=3_600.0, show_default=True, help="Seconds until giving up."
)
@click.option("--points-min", type=float, help="Fail unless the held-out accuracy rises by so many points.")
@device_options
@json_option
def testnet(nodes: int, late: int, folder: Path | None, timeout: float, is_json: bool, **choices: Any) -> None:
    """Run a network of real node processes on this machine until all hold the same model.

    Exit code 0 only if every state digest is equal, the offline replay of a ledger included, all stopped cleanly, and
    the accuracy rose as --points-min asks.

    \b
    Example: sfnode testnet --nodes 4 --late 1 --steps 120
    """
    folder = (folder or Path(tempfile.mkdtemp(prefix="sfnode-testnet-"))).resolve()
    config = _configure(nodes, late, folder, timeout, choices)
    view = _View(config)
    try:
        result = trio.run(LocalNetwork(config, view.show).run)
    finally:
        view.close()
    if is_json:
        click.echo(json.dumps(_as_json(result)))
    else:
        _print_result(result)
    _check(result, folder, choices["points_min"])


def _check(result: LocalNetworkResult, folder: Path, points_min: float | None) -> None:
    """SfnodeError unless the nodes agree, stopped cleanly and learnt what was asked for."""
    if not result.is_agreed:
        raise SfnodeError(f"the nodes do not agree: {sorted(set(result.state_digests))}; everything is in {folder}")
    if not result.is_stopped_cleanly:
        raise SfnodeError(f"a node did not stop cleanly; see the logs in {folder}")
    if points_min is None:
        return
    if not result.after:
        raise OperatorError("--points-min needs held-out data: give --eval-data")
    points = 100 * (result.after["accuracy"] - result.before["accuracy"])
    if points < points_min:
        raise SfnodeError(
            f"held-out accuracy changed by {points:+.1f} points, at least {points_min:+.1f} were asked for"
        )


def _configure(nodes: int, late: int, folder: Path, timeout: float, choices: dict[str, Any]) -> LocalNetworkConfig:
    if choices["template"] is None and choices["completion"] is None and choices["task"] is None:
        choices["task"] = "embedded:reviews"
    choices["steps"] = choices["steps"] or demo.STEPS
    if (folder / "node0").exists():
        raise OperatorError(f"{folder} holds an earlier test network: choose another --dir")
    run_bytes, _ = make_run({**choices, "private_data": False}, key_path=folder / "owner.key", default_name="testnet")
    task = decode_run_untrusted(run_bytes).manifest.task
    training = TrainingConfig(
        model=choices["model"],
        data=training_file(task, choices["data"]),
        eval_data=evaluation_file(task, choices["eval_data"]),
        device=choices["device"],
        dtype=choices["dtype"],
    )
    return LocalNetworkConfig(
        folder=folder, run_bytes=run_bytes, nodes=nodes, late_nodes=late, training=training, timeout_s=timeout
    )


class _View:
    """Shows the network while it works: a live table on a terminal, a line every few seconds elsewhere (on stderr)."""

    def __init__(self, config: LocalNetworkConfig) -> None:
        self._folder = config.folder
        self._printed = 0.0
        console = Console(stderr=True)
        self._live = Live(console=console, refresh_per_second=2) if console.is_terminal else None
        if self._live:
            self._live.start()

    def show(self, nodes: list[NodeProcess]) -> None:
        """The state of all nodes now."""
        if self._live:
            self._live.update(_table([{"name": node.name, **node.status} for node in nodes]))
        elif time.monotonic() - self._printed >= _PRINT_S:
            self._printed = time.monotonic()
            parts = [f"{node.name} {node.status.get('step', '-')}" for node in nodes]
            losses = [node.status["loss"] for node in nodes if node.status.get("loss") is not None]
            loss = f"loss {sum(losses) / len(losses):.3f}" if losses else "starting"
            click.echo(f"steps: {', '.join(parts)}; {loss}", err=True)

    def close(self) -> None:
        """Leave the terminal in order."""
        if self._live:
            self._live.stop()


def _table(statuses: list[dict[str, Any]]) -> Table:
    table = Table("node", "step", "updates made", "applied", "peers", "loss", "sent", "received", "state digest")
    for status in statuses:
        loss = status.get("loss")
        table.add_row(
            status["name"],
            f"{status.get('step', 0)}/{status.get('steps', 0)}",
            str(status.get("own_updates", 0)),
            str(status.get("updates", 0)),
            str(status.get("peers", 0)),
            "" if loss is None else f"{loss:.3f}",
            f"{status.get('bytes_out', 0):,}",
            f"{status.get('bytes_in', 0):,}",
            status.get("state_digest", "")[:16],
        )
    return table


def _print_result(result: LocalNetworkResult) -> None:
    Console(width=120).print(_table(result.statuses))
    updates = result.statuses[0].get("updates", 0)
    wire = sum(status.get("bytes_out", 0) for status in result.statuses)
    click.echo(f"time       {result.seconds:.1f} s for {updates} updates, {_forward_rows(result):,} forward rows")
    click.echo(f"traffic    {wire:,} bytes sent by all nodes; the updates themselves weigh {result.payload_bytes:,}")
    click.echo(f"replay     {result.replayed_digest} (offline, from one node's log)")
    if result.after:
        before, after = 100 * result.before["accuracy"], 100 * result.after["accuracy"]
        click.echo(f"accuracy   {before:.1f} % before, {after:.1f} % after ({after - before:+.1f} points, held-out)")
    click.echo(f"picture    {result.picture}")
    click.echo(f"all equal  {'yes' if result.is_agreed else 'NO'}")


def _forward_rows(result: LocalNetworkResult) -> int:
    return sum(int(status.get("forward_rows", 0)) for status in result.statuses)


def _as_json(result: LocalNetworkResult) -> dict[str, Any]:
    return {
        "agree": result.is_agreed,
        "state_digests": result.state_digests,
        "replayed_digest": result.replayed_digest,
        "eval": {"before": result.before, "after": result.after},
        "updates": result.statuses[0].get("updates", 0),
        "forward_rows": _forward_rows(result),
        "wire_bytes": sum(status.get("bytes_out", 0) for status in result.statuses),
        "payload_bytes": result.payload_bytes,
        "seconds": round(result.seconds, 3),
        "curve": [{"step": p.step, "loss": p.loss, "accuracy": p.accuracy} for p in result.curve],
        "nodes": result.statuses,
        "picture": str(result.picture),
    }
