"""Write the page of a run, made from a data directory, as one HTML file, or into a folder for any web space."""

import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from protocol.state import Replica
from sfnode.page.assets import single_file
from sfnode.page.node_page import Page
from sfnode.storage import DataDirectory, disk, export_log

_PAGE = "index.html"
_LOG = "run.sflog"
_TEXT = "verify.txt"
_HOW = """\
{name}
run           {run_id}
updates       {updates:,}
state digest  {digest}

index.html shows this run. {log} holds all of it: the manifest, the basis and every signed update. To get the model,
and to prove that the page is right, with sfnode ({base}):

    sfnode log import {log} --data-dir my-copy
    sfnode export --data-dir my-copy{model} --out my-model
"""

Tally = Callable[[int, int], None]  # called with the number of records done and their total


def write_report(data_dir: DataDirectory, path: Path, tally: Tally) -> Replica:
    """Verify every record of a data directory and write the page to ``path``; a node may be running there.

    OperatorError; StorageDamagedError: the ledger is damaged.
    """
    manifest = data_dir.signed_manifest().manifest
    with data_dir.reading() as stored:
        total = stored.count()
        replica = stored.replica(manifest, lambda number: tally(number, total))
        page = Page(data_dir, manifest, lambda: replica.ledger)
        verified = {
            "time": round(time.time()),
            "updates": replica.ledger.updates,
            "ledger_root": replica.ledger.root().hex(),
            "state_digest": replica.state_digest().hex(),
        }
        disk.write_new(path, [single_file({**page.sections(), "verified": verified})])
    return replica


def publish_run(data_dir: DataDirectory, folder: Path, tally: Tally) -> Replica:
    """Make ``folder``, complete or not at all; a node may be running in the data directory.

    OperatorError: there is no node, or something exists at ``folder``; StorageDamagedError: the ledger is damaged.
    """
    part = folder.with_name(f".{folder.name[:64]}.{secrets.token_hex(8)}")
    manifest = data_dir.signed_manifest().manifest
    try:
        with disk.os_errors(f"write {folder}"):
            part.mkdir(parents=True)
            replica = write_report(data_dir, part / _PAGE, tally)
            export_log(data_dir, part / _LOG, data_dir.identity.signer(), lambda _bytes, _updates: None)
            fields = {"run_id": manifest.run_id.hex(), "digest": replica.state_digest().hex(), "log": _LOG}
            model, base = "", f"it fetches the base model, {manifest.model.id}, once"
            if manifest.model.id.startswith("local:"):
                model, base = " --model FOLDER", f"FOLDER holds a copy of the base model, {manifest.model.id}"
            fields |= {"name": manifest.name, "model": model, "base": base}
            text = _HOW.format(updates=replica.ledger.updates, **fields)
            disk.write_new(part / _TEXT, [text.encode("utf-8")])
            part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return replica
