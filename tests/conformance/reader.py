"""The independent reader in JavaScript, called from tests. What compares it with the reference: ``__main__``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from tests import REPOSITORY

READER: Final = REPOSITORY / "protocol" / "conformance"
NODE_VERSION_MIN: Final = 20
LIMIT_S: Final = 900.0


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
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


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
