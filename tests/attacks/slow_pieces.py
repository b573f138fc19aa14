"""Pieces of a model from neighbours that crawl, and were there first."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from benchmarks.sample_runs import OWNER, Shape, manifest_of, tiny_tensors
from protocol.limits import MODEL_PIECE_BYTES
from protocol.run.manifest import Manifest, sign_manifest
from protocol.run.model import Sharing, file_of, no_model
from tests.attacks.doors import Spent
from tests.attacks.file_givers import givers, has_event, until
from tests.attacks.outcome import A_NEW_NODE, Outcome
from tests.attacks.visitor import pid_of
from tests.support.daemons import JoinProcess
from tests.support.patience import Stopwatch, waits_of, within
from tests.support.running_nodes import running

_PIECES: Final = 16
_SLOW: Final = 8
_BOUND_S: Final = 25.0
_NEVER_S: Final = 60.0


def slow_pieces(_is_short: bool) -> Outcome:
    """Eight neighbours that were there first give 32 KiB of a model's piece every nine seconds."""
    spent = Spent()
    before_s = trio.run(_model_s, 0, Spent())
    during_s = trio.run(_model_s, _SLOW, spent)
    return Outcome(
        before=_in_words(before_s),
        during=_in_words(during_s),
        after=A_NEW_NODE,
        attacker=f"{spent.bytes / 1e3:.0f} kB",
        bound=f"the model is there in {_BOUND_S:.0f} s",
        is_held=during_s is not None and during_s <= _BOUND_S,
    )


def _run() -> tuple[Manifest, dict[str, bytes]]:
    """A run whose model nobody has on a disk, and its pieces by their hashes."""
    weights = secrets.token_bytes(_PIECES * MODEL_PIECE_BYTES)
    pieces = [weights[at : at + MODEL_PIECE_BYTES] for at in range(0, len(weights), MODEL_PIECE_BYTES)]
    listed = b"".join(hashlib.sha256(piece).digest() for piece in pieces)
    spec = replace(no_model("local:slow"), weights=(file_of("model.safetensors", weights),), sharing=Sharing.PEERS)
    manifest = replace(manifest_of(Shape(authors=1, steps=1_000), tiny_tensors()), model=spec)
    return manifest, {hashlib.sha256(piece).hexdigest(): piece for piece in (*pieces, listed)}


async def _model_s(slow: int, spent: Spent) -> float | None:
    """After how long a joiner has the model, from its start on; None for never."""
    manifest, pieces = _run()
    with TemporaryDirectory(prefix="sfnode-") as name:
        run_file = Path(name, "slow.run")
        run_file.write_bytes(sign_manifest(manifest, OWNER).encode())
        async with givers(manifest.run_id, pieces, slow=slow, spent=spent) as addresses:
            bootstraps = [part for address in addresses for part in ("--bootstrap", address)]
            given = [
                "--run",
                str(run_file),
                "--data",
                "embedded:reviews",
                "--worker-socket",
                str(Path(name, "none.sock")),
            ]
            joiner = JoinProcess(
                directory=Path(name, "joiner"),
                arguments=[*given, "--neighbours-fixed", *bootstraps],
                prefix=("env", f"SFNODE_MODELS={name}/models"),
            )
            with running([joiner]):
                await within(_NEVER_S, partial(until, has_event(joiner, "started")))
                return await _fetched_s(joiner)


async def _fetched_s(joiner: JoinProcess) -> float | None:
    stopwatch = Stopwatch(partial(waits_of, (pid_of(joiner),)))
    try:
        await within(_NEVER_S, partial(until, has_event(joiner, "model_fetched")))
    except trio.TooSlowError:
        return None
    return stopwatch.seconds()


def _in_words(seconds: float | None) -> str:
    return f"no model in {_NEVER_S:.0f} s" if seconds is None else f"{_PIECES} MiB in {seconds:.1f} s"
