"""Which vector files there are, and what makes each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.vectors.asking_cases import asking
from tests.vectors.attestation_cases import attestations
from tests.vectors.audit_cases import audits
from tests.vectors.check_cases import checks
from tests.vectors.ed25519_cases import ed25519
from tests.vectors.envelope_cases import envelopes
from tests.vectors.frame_cases import frames
from tests.vectors.generator_cases import generator, hashing
from tests.vectors.ledger_cases import ledgers
from tests.vectors.log_cases import logs
from tests.vectors.loss_cases import losses
from tests.vectors.manifest_cases import manifests
from tests.vectors.message_cases import messages
from tests.vectors.model_cases import models
from tests.vectors.notation import Document, render
from tests.vectors.reach_cases import reach
from tests.vectors.scalar_cases import scalars
from tests.vectors.session_cases import sessions
from tests.vectors.snapshot_cases import snapshots
from tests.vectors.statement_cases import statements
from tests.vectors.string_cases import strings
from tests.vectors.subspace_cases import subspace
from tests.vectors.sync_cases import sync
from tests.vectors.token_cases import tokens
from tests.vectors.trace_end import end
from tests.vectors.trace_flood import flood
from tests.vectors.trace_horizon import horizon
from tests.vectors.trace_roster import roster
from tests.vectors.trace_snapshots import snapshots as snapshot_traces
from tests.vectors.trace_steps import steps
from tests.vectors.trace_sync import anti_entropy
from tests.vectors.view_cases import views

FOLDER = Path(__file__).resolve().parents[2] / "protocol" / "vectors"
COMMAND = ".venv/bin/python -m tests.vectors"

FILES: dict[str, Callable[[], Document]] = {
    "hashing.json": hashing,
    "generator.json": generator,
    "subspace.json": subspace,
    "scalars.json": scalars,
    "losses.json": losses,
    "views.json": views,
    "tokens.json": tokens,
    "ed25519.json": ed25519,
    "manifests.json": manifests,
    "models.json": models,
    "checks.json": checks,
    "envelopes.json": envelopes,
    "messages.json": messages,
    "frames.json": frames,
    "sessions.json": sessions,
    "reach.json": reach,
    "strings.json": strings,
    "ledgers.json": ledgers,
    "sync.json": sync,
    "asking.json": asking,
    "statements.json": statements,
    "snapshots.json": snapshots,
    "traces_steps.json": steps,
    "traces_sync.json": anti_entropy,
    "traces_roster.json": roster,
    "traces_snapshots.json": snapshot_traces,
    "traces_horizon.json": horizon,
    "traces_end.json": end,
    "traces_flood.json": flood,
    "attestations.json": attestations,
    "audits.json": audits,
    "logs.json": logs,
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
