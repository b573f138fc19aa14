"""Write the page of a run as one HTML file, made from a data directory, for ``sfnode report``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from protocol.state import Replica
from sfnode.page.assets import single_file
from sfnode.page.node_page import Page, Sections
from sfnode.storage import (
    LEDGER_FILE,
    StoredRecords,
    read_manifest,
    reading,
    replay,
    replay_statements,
    write_new,
)

Tally = Callable[[int, int], None]  # called with the number of records done and their total


def write_report(directory: Path, path: Path, tally: Tally) -> Replica:
    """Verify every record of ``directory`` and write the page to ``path``; a node may be running there.

    OperatorError; StorageDamagedError: the ledger is damaged.
    """
    manifest = read_manifest(directory).manifest
    with reading(directory) as stored:
        replica = Replica(manifest, stored.archive)
        replay_statements(replica, stored.statements(), directory / LEDGER_FILE)
        replay(replica, _counted(stored, tally), directory / LEDGER_FILE)
        page = Page(directory, manifest, lambda: replica.ledger)
        write_new(path, [single_file({**page.sections(), "verified": _verified(replica)})])
    return replica


def _counted(stored: StoredRecords, tally: Tally) -> Iterator[tuple[int, bytes]]:
    total = stored.count()
    for number, row in enumerate(stored.records(), start=1):
        tally(number, total)
        yield row


def _verified(replica: Replica) -> Sections:
    return {
        "time": round(time.time()),
        "updates": replica.ledger.updates,
        "ledger_root": replica.ledger.root().hex(),
        "state_digest": replica.state_digest().hex(),
    }
