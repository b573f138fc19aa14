"""``make conformance``: the reference and an independent reader in JavaScript agree on every vector and on a real run.

    .venv/bin/python -m tests.conformance

1. the files in ``protocol/vectors/`` are what the reference gives today;
2. ``protocol/conformance/run.mjs`` passes every case of them;
3. a network of real nodes trains (as in ``make demo``); ``replay.mjs`` reads one node's manifest and records and comes
   to the same counts, ledger root and state digest as ``sfnode log verify``.

The last line gives the figures; exit code 0 only if all three hold.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sfnode.storage.data_directory import DataDirectory
from tests.conformance.reader import LIMIT_S, Disagreement, node_fault, replayed, run_reader
from tests.vectors.catalogue import COMMAND, stale_files

TESTNET = ("testnet", "--nodes", "4", "--late", "1", "--points-min", "20")


def check_vectors() -> str:
    """Parts 1 and 2; the reader's own last line."""
    if stale := stale_files():
        raise Disagreement(f"{', '.join(stale)}: not what the reference gives now; if that is meant, run {COMMAND}")
    finished = run_reader("run.mjs")
    if finished.returncode != 0:
        raise Disagreement(f"run.mjs disagrees:\n{finished.stdout[-4_000:]}{finished.stderr[-2_000:]}")
    return finished.stdout.strip().splitlines()[-1].removeprefix("conformance: ")


def check_real_run(folder: Path) -> str:
    """Part 3; how much was replayed."""
    _sfnode(*TESTNET, "--dir", str(folder))
    directory = folder / "late0"  # it came late: most of what it holds came by anti-entropy
    verified = json.loads(_sfnode("log", "verify", str(directory), "--json"))
    held = DataDirectory(directory)
    with held.reading() as stored:
        records = [record for _, record in stored.records()]
    found = replayed(held.signed_manifest().encode(), records, folder)
    pairs = {"run_id": "run_id", "updates": "updates", "void_slots": "void_slots"}
    pairs |= {"root": "ledger_root", "state_digest": "state_digest"}
    if wrong := [name for name, theirs in pairs.items() if found[name] != verified[theirs]]:
        raise Disagreement(f"a real run: {', '.join(wrong)} differ: reader {found}, reference {verified}; see {folder}")
    return f"{len(records):,} records of a real run, state {found['state_digest'][:16]}"


def _sfnode(*arguments: str) -> str:
    command = [sys.executable, "-m", "sfnode", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if finished.returncode != 0:
        raise Disagreement(f"sfnode {arguments[0]} failed: {finished.stderr.strip()[-2_000:]}")
    return finished.stdout


def main() -> int:
    """All parts, cheapest first; one line of figures."""
    started = time.monotonic()
    if fault := node_fault():
        sys.stderr.write(f"Error: {fault}\n")
        return 1
    try:
        vectors = check_vectors()
        sys.stderr.write(f"{vectors}; now a real run\n")
        folder = Path(tempfile.mkdtemp(prefix="sfnode-conformance-"))  # kept when it holds evidence
        real = check_real_run(folder)
    except Disagreement as disagreement:
        sys.stderr.write(f"Error: {disagreement}\n")
        return 1
    shutil.rmtree(folder)
    sys.stdout.write(f"conformance: {vectors}; {real}; {time.monotonic() - started:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
