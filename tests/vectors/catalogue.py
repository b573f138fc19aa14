"""Which vector files there are, and what makes each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vectors.ed25519_cases import ed25519
from vectors.envelope_cases import envelopes
from vectors.generator_cases import generator, hashing
from vectors.ledger_cases import ledgers
from vectors.manifest_cases import manifests
from vectors.message_cases import messages
from vectors.notation import Document, render
from vectors.scalar_cases import scalars
from vectors.snapshot_cases import snapshots
from vectors.statement_cases import statements
from vectors.subspace_cases import subspace
from vectors.sync_cases import sync

FOLDER = Path(__file__).resolve().parents[2] / "protocol" / "vectors"
COMMAND = ".venv/bin/python tests/write_vectors.py"

FILES: dict[str, Callable[[], Document]] = {
    "hashing.json": hashing,
    "generator.json": generator,
    "subspace.json": subspace,
    "scalars.json": scalars,
    "ed25519.json": ed25519,
    "manifests.json": manifests,
    "envelopes.json": envelopes,
    "messages.json": messages,
    "ledgers.json": ledgers,
    "sync.json": sync,
    "statements.json": statements,
    "snapshots.json": snapshots,
}


def rendered(name: str) -> str:
    """The text of the file ``name`` as the code gives it now."""
    return render(FILES[name]())


def stale_files() -> list[str]:
    """Files that are missing, left over, or not what the code gives now."""
    held = {path.name for path in FOLDER.glob("*.json")}
    return sorted(held ^ FILES.keys() | {name for name in held & FILES.keys() if _is_stale(name)})


def _is_stale(name: str) -> bool:
    return (FOLDER / name).read_text("utf-8") != rendered(name)
