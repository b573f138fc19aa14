"""Write the page of a run as one HTML file, made from a data directory, for ``sfnode report``."""

import time
from collections.abc import Callable
from pathlib import Path

from protocol.state import Replica
from sfnode.page.assets import single_file
from sfnode.page.node_page import Page
from sfnode.storage import DataDirectory, disk

Tally = Callable[[int, int], None]  # called with the number of records done and their total


def write_report(data_dir: DataDirectory, path: Path, tally: Tally) -> Replica:
    """Verify every record of a data directory and write the page to ``path``; a node may be running there.

    OperatorError; StorageDamagedError: the ledger is damaged.
    """
    manifest = data_dir.signed_manifest().manifest
    with data_dir.reading() as stored:
        replica, total = Replica(manifest, stored), stored.count()
        for number in stored.replaying(replica):
            tally(number, total)
        page = Page(data_dir, manifest, lambda: replica.ledger)
        verified = {
            "time": round(time.time()),
            "updates": replica.ledger.updates,
            "ledger_root": replica.ledger.root().hex(),
            "state_digest": replica.state_digest().hex(),
        }
        disk.write_new(path, [single_file({**page.sections(), "verified": verified})])
    return replica
