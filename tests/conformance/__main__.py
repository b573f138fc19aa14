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
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sfnode.storage.data_directory import DataDirectory
from tests import REPOSITORY
from tests.vectors.catalogue import COMMAND, stale_files

READER = REPOSITORY / "protocol" / "conformance"
NODE_VERSION_MIN = 20
TESTNET = ("testnet", "--nodes", "4", "--late", "1", "--points-min", "20")
_LIMIT_S = 900.0


class Disagreement(Exception):
    """A part failed; the text says which and what to look at."""


def node_fault() -> str | None:
    """What is wrong with this machine's Node.js; None when the reader can run."""
    program = shutil.which("node")
    if program is None:
        return f"Node.js is not installed: install version {NODE_VERSION_MIN} or later (nodejs.org, or apt, dnf, brew)"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    found = re.match(r"v(\d+)\.", said)
    if not found or int(found[1]) < NODE_VERSION_MIN:
        return f"Node.js is {said.strip() or 'unusable'}: install version {NODE_VERSION_MIN} or later"
    return None


def run_reader(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """One of the reader's programs, to its end."""
    command = ["node", str(READER / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)


def replayed(run: bytes, records: list[bytes], folder: Path) -> dict[str, Any]:
    """What the reader makes of a signed manifest and records: run id, counts, root and state digest."""
    run_file, records_file = folder / "conformance.run", folder / "conformance.records"
    run_file.write_bytes(run)
    records_file.write_bytes(b"".join(records))
    finished = run_reader("replay.mjs", run_file, records_file)
    if finished.returncode != 0:
        raise Disagreement(f"replay.mjs failed: {finished.stderr.strip()[-2_000:]}")
    found: dict[str, Any] = json.loads(finished.stdout)
    return found


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
    finished = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
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
