"""``sfnode status``: look at a running node."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from sfnode.cli.options import data_dir_option, json_option
from sfnode.node import describe_memory, own_admission, read_status
from sfnode.reporter import printable


@click.command()
@data_dir_option
@json_option
def status(data_dir: Path, is_json: bool) -> None:
    """Show how a running node is doing. The exit code is 0 only if it runs and reports.

    \b
    Example: sfnode status --data-dir ~/.sfnode/my-run-0123456789ab
    """
    current = read_status(data_dir)
    if is_json:
        click.echo(json.dumps(dataclasses.asdict(current)))
        return
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
    if current.model is not None:
        rows["model"] = current.model.text
    if current.join:
        rows["join"] = f"sfnode join {current.join}"
    for name, value in rows.items():
        click.echo(f"{name:<8} {printable(str(value))}")
