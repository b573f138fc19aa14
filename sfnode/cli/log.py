"""``sfnode log``: verify a ledger, show it, and export or import it as one file."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import click

from protocol.errors import StorageDamagedError
from protocol.run import Manifest
from protocol.state import Replica
from sfnode import storage
from sfnode.api.runs import open_run
from sfnode.cli.option_values import DataFolder, FilePath, NewFilePath
from sfnode.cli.options import at_step_option, data_dir_option, json_option, node_option, number_option, print_result
from sfnode.reporter import counted, telling
from sfnode.run import HOME, find_data_directory


@click.group()
def log() -> None:
    """Verify, show, export or import the ledger of a data directory."""


@log.command()
@node_option
@json_option
def verify(data_dir: storage.DataDirectory) -> None:
    """Check every signature, replay every update from nothing, and print the state digest.

    \b
    Example: sfnode log verify my-run --json
    """
    started = time.monotonic()
    manifest = data_dir.signed_manifest().manifest
    with data_dir.reading() as stored:
        replica, problem = _verified(manifest, stored)
        fields = {
            "run_id": manifest.run_id.hex(),
            "ok": not problem,
            "problem": problem,
            "records": replica.ledger.updates + 2 * replica.ledger.void_slots + replica.suspended,
            "updates": replica.ledger.updates,
            "authors": len(replica.ledger.authors()),
            "steps": sum(1 for _ in groupby(envelope.step for envelope in replica.ledger.slots.envelopes())),
            "void_slots": replica.ledger.void_slots,
            "ledger_root": replica.ledger.root().hex(),
            "state_digest": replica.state_digest().hex(),
            "seconds": round(time.monotonic() - started, 3),
        }
    sound = "yes" if fields["records"] else "yes, but there is no record to check"
    shown = {**fields, "ok": "no" if problem else sound}
    print_result(fields, "\n".join(f"{name:<13} {value}" for name, value in shown.items() if value != ""))
    if problem:
        raise StorageDamagedError(problem)


def _verified(manifest: Manifest, stored: storage.StoredRecords) -> tuple[Replica, str]:
    """Return the directory's replica and an empty string.

    Where the storage is damaged, return a replica of the records before the fault, held in memory, and the problem.
    """
    try:
        return stored.replica(manifest), ""
    except StorageDamagedError as error:
        sound = Replica(manifest)
        with suppress(StorageDamagedError):
            deque(stored.replaying(sound), maxlen=0)
        return sound, str(error)


@log.command()
@node_option
@number_option("--limit", 20, "Show this many of the newest records; 0 shows all.", least=0)
@at_step_option
@json_option
def show(data_dir: storage.DataDirectory, limit: int, at_step: storage.AtStep | None) -> None:
    """Show the records of a ledger by step and author.

    \b
    Example: sfnode log show my-run --limit 5
    """
    run = open_run(data_dir.path)
    updates, is_dense = run.updates(at_step), run.manifest.method.is_dense
    for envelope in deque(updates, maxlen=limit) if limit else updates:
        rows, scalars = envelope.scalars[:is_dense], envelope.measured
        seed = f"{envelope.seed:016x}"
        fields = {"step": envelope.step, "author": envelope.author.hex(), "seed": seed, "scalars": scalars}
        shown = [*(f"{counted(each, 'row')}:" for each in rows), *(f"{scalar:+d}" for scalar in scalars[:16])]
        text = f"{envelope.step:>7}  {envelope.author.hex()[:16]}  {seed}  {' '.join(shown)}"
        print_result(fields | ({"rows": rows[0]} if rows else {}), text)


@log.command("export")
@click.argument("file", type=NewFilePath)
@data_dir_option
@click.option("--key", type=FilePath, help="Sign the file with this key.  [default: the node's own]")
@json_option
def export(file: Path, data_dir: storage.DataDirectory, key: Path | None) -> None:
    """Write the whole run into one file: manifest, published basis, every record. The node may be running.

    \b
    Example: sfnode log export my-run.sflog
    """
    data_dir.signed_manifest()  # first, because a folder without a node has no key either
    started = time.monotonic()
    writer = (storage.KeyFile(key) if key else data_dir.identity).signer()
    with _progress("exporting") as report:
        summary = storage.export_log(data_dir, file, writer, report)
    size = file.stat().st_size
    text = f"written  {file}, {size:,} bytes, {summary.records:,} records"
    if summary.suspended:
        text += f"; without {summary.suspended:,} of authors who are not admitted: too many used an invitation"
    _say(text, summary, {"file": str(file), "bytes": size}, started)


@log.command("import")
@click.argument("file", type=FilePath)
@click.option(
    "--data-dir",
    type=DataFolder,
    help=f"Make this data directory, or add to it if it holds the same run.  [default: {HOME}/RUN]",
)
@json_option
def import_(file: Path, data_dir: storage.DataDirectory | None) -> None:
    """Verify a file of `sfnode log export`, and make a data directory from it or add it to one. No network is needed.

    \b
    Example: sfnode log import my-run.sflog --data-dir my-run
    Then:    sfnode export --data-dir my-run --out my-model
             (and --model FOLDER, with a copy, where the run's model is a local folder)
    """
    started = time.monotonic()
    with _progress("importing") as report:
        summary = storage.import_log(file, lambda manifest: find_data_directory(manifest, data_dir), report)
    text = f"imported {file} into {summary.data_dir}: {summary.added:,} of {summary.records:,} records were new"
    if summary.suspended:
        text += (
            f"; {summary.suspended:,} of these count once the owner admits their authors: too many used an invitation"
        )
    if summary.no_room:
        text += f"; {summary.no_room:,} found no room: the directory's author table is full"
    _say(text, summary, {"file": str(file)}, started)


def _say(text: str, summary: storage.LogSummary, fields: Mapping[str, object], started: float) -> None:
    ledger = f"{summary.ledger_root}, {summary.updates:,} updates, {summary.void_slots} void slots"
    fields = {**fields, **asdict(summary), "seconds": round(time.monotonic() - started, 3)}
    print_result(fields, f"{text}\nledger   {ledger}\nstate    {summary.state_digest}")


@contextmanager
def _progress(name: str) -> Iterator[storage.LogProgress]:
    with telling() as show:
        yield lambda file_bytes, updates: show(f"{name}, {updates:,} updates verified", file_bytes, 0)
