"""A manifest within all bounds whose model nobody could hold: three weight files of the largest size."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from benchmarks.sample_runs import OWNER, Shape, manifest_of, tiny_tensors
from protocol import limits
from protocol.run.manifest import Manifest, sign_manifest
from protocol.run.model import FileSpec, Sharing, no_model
from sfnode.network import bounds
from tests.attacks.outcome import Outcome
from tests.attacks.visitor import memory_mb, pid_of, visiting
from tests.support.daemons import JoinProcess, free_port
from tests.support.running_nodes import Joins, address_in, wait_until

_FILES: Final = 3
_GROWN_MB_MAX: Final = 16.0  # allocators give back little
_LASTS_S: Final = {False: 60.0, True: 2 * bounds.MEMORY_LOOK_S}  # neighbours are dropped at these looks


def endless_model(is_short: bool) -> Outcome:
    """A joiner without the model says that its disk is too small, fetches nothing, keeps its neighbour, and relays."""
    manifest = _manifest()
    with TemporaryDirectory() as name, Joins(Path(name)) as joins:
        run_file, port = Path(name, "endless.run"), free_port()
        run_file.write_bytes(sign_manifest(manifest, OWNER).encode())
        address = address_in(Path(name, "joiner"), port)
        given = ("--run", run_file, "--data", "embedded:reviews", "--worker-socket", Path(name, "none.sock"))
        joiner = joins("joiner", *given, "--listen", f"/ip4/127.0.0.1/tcp/{port}")
        joiner.wait_for_event("started")
        wait_until(joiner.status, "the joiner's first status")
        return trio.run(_attack, joiner, address, manifest, _LASTS_S[is_short])


def _manifest() -> Manifest:
    """The lists of the pieces of its files have 32 MiB each; nobody has to have them."""
    digest = sha256(b"endless").hexdigest()
    names = [f"model-{number + 1:05}-of-{_FILES:05}.safetensors" for number in range(_FILES)]
    files = [FileSpec(name=name, bytes=limits.MODEL_FILE_BYTES_MAX, sha256=digest, pieces=digest) for name in names]
    model = replace(no_model("local:endless"), weights=tuple(files), sharing=Sharing.PEERS)
    return replace(manifest_of(Shape(authors=1, steps=1_000), tiny_tensors()), model=model)


async def _attack(joiner: JoinProcess, address: str, manifest: Manifest, lasts_s: float) -> Outcome:
    before_mb, is_kept = memory_mb(pid_of(joiner)), False
    async with visiting(address, manifest.run_id) as neighbour:
        await neighbour.ping_for(lasts_s)
        is_kept = True
    refused = [event["reason"] for event in joiner.events() if event["event"] == "model_not_stored"]
    is_refused = any("MB more, and the disk has" in reason for reason in refused)
    peak_mb, after_mb = memory_mb(pid_of(joiner), is_peak=True), memory_mb(pid_of(joiner))
    return Outcome(
        before=f"{before_mb:.0f} MB",
        during=f"{peak_mb:.0f} MB at most, the neighbour {'kept' if is_kept else 'lost'}, "
        f"{'refused in words' if is_refused else 'not refused'}",
        after=f"{after_mb:.0f} MB",
        attacker="a manifest",
        bound=f"refused before anything is fetched, {_GROWN_MB_MAX:.0f} MB more at most, the neighbour kept",
        is_held=is_refused and is_kept and joiner.is_alive and after_mb < before_mb + _GROWN_MB_MAX,
    )
