"""``sfnode status`` and ``sfnode log``: look at a node and its ledger."""

from __future__ import annotations

import dataclasses
import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

import click

from protocol.errors import StorageDamagedError
from protocol.replica import Replica
from sfnode.cli.options import NOT_NEGATIVE, FolderPath, data_dir_option, json_option
from sfnode.report import printable
from sfnode.status import read_status
from sfnode.store import LEDGER_FILE, read_manifest, read_records, replay


@click.command()
@data_dir_option
@json_option
def status(data_dir: Path, is_json: bool) -> None:
    """Show how a running node is doing. Exit code 0 only if it runs and reports.

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
        "loss": "none yet" if current.loss is None else f"{current.loss:.4f}",
        "moved": f"{current.bytes_in:,} bytes in, {current.bytes_out:,} out",
        "ledger": current.ledger_root or "catching up",
        "state": current.state_digest or "catching up",
    }
    for name, value in rows.items():
        click.echo(f"{name:<8} {printable(str(value))}")


@click.group()
def log() -> None:
    """Verify or show the ledger of a data directory."""


@log.command()
@click.argument("directory", type=FolderPath)
@json_option
def verify(directory: Path, is_json: bool) -> None:
    """Check every signature, replay every update from nothing, and print the state digest.

    \b
    Example: sfnode log verify ~/.sfnode/my-run-0123456789ab --json
    """
    started = time.monotonic()
    manifest = read_manifest(directory).manifest
    fields: dict[str, Any] = {"run_id": manifest.run_id.hex(), "ok": True, "problem": ""}
    replica = Replica(manifest)
    try:
        replay(replica, read_records(directory), directory / LEDGER_FILE)
    except StorageDamagedError as error:
        fields |= {"ok": False, "problem": str(error)}
    steps = {envelope.step for envelope in replica.ledger.envelopes()}
    fields |= {
        "updates": replica.ledger.updates,
        "authors": len(replica.ledger.authors()),
        "steps": len(steps),
        "void_slots": replica.ledger.void_slots,
        "ledger_root": replica.ledger.root().hex(),
        "state_digest": replica.state_digest().hex(),
        "seconds": round(time.monotonic() - started, 3),
    }
    if is_json:
        click.echo(json.dumps(fields))
    else:
        for name, value in fields.items():
            click.echo(f"{name:<13} {value}")
    if not fields["ok"]:
        raise StorageDamagedError(fields["problem"])


@log.command()
@click.argument("directory", type=FolderPath)
@click.option("--limit", type=NOT_NEGATIVE, default=20, show_default=True, help="Newest records to show; 0 for all.")
@json_option
def show(directory: Path, limit: int, is_json: bool) -> None:
    """Show the records of a ledger by step and author.

    \b
    Example: sfnode log show ~/.sfnode/my-run-0123456789ab --limit 5
    """
    manifest = read_manifest(directory).manifest
    replica = replay(Replica(manifest), read_records(directory), directory / LEDGER_FILE)
    skipped = max(0, replica.ledger.updates - limit) if limit else 0
    for envelope in islice(replica.ledger.envelopes(), skipped, None):
        fields = {
            "step": envelope.step,
            "author": envelope.author.hex(),
            "seed": f"{envelope.seed:016x}",
            "scalars": envelope.scalars,
        }
        if is_json:
            click.echo(json.dumps(fields))
        else:
            scalars = " ".join(f"{scalar:+d}" for scalar in envelope.scalars[:16])
            click.echo(f"{envelope.step:>7}  {envelope.author.hex()[:16]}  {fields['seed']}  {scalars}")
