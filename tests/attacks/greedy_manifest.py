"""A manifest within all bounds that asks for as much work and memory for each update as it may."""

from __future__ import annotations

import json
import random
import subprocess
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from benchmarks.sample_runs import OWNER, signer
from protocol import limits
from protocol.crypto.hashing import hash_fields
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import SignedManifest, checked, sign_manifest
from protocol.wire import Records
from tests.attacks.outcome import Outcome
from tests.attacks.visitor import Visitor, memory_mb, visiting
from tests.support.daemons import JoinProcess, free_port
from tests.support.manifests import manifest_data
from tests.support.patience import Patience, Stopwatch, wait_for_end, waits_of
from tests.support.running_nodes import Joins, address_in

_SCALARS: Final = 1_024
_TEMPORARY_MB: Final = 100.0
_SUMMED_S: Final = 60.0
_LOOKED_S: Final = 5.0  # at least
_SILENT_S: Final = 4.0  # the status is written every second


def greedy_manifest(is_short: bool) -> Outcome:
    """A joiner refuses more than the bound; at the bound, two updates take what was told, and it stays awake."""
    with TemporaryDirectory() as name, Joins(Path(name)) as joins:
        refusal = _join_beyond_the_bound(joins)
        allowed = _greedy(limits.CORES_MAX // _SCALARS, rank=64 if is_short else 128, epochs=4)
        signed = sign_manifest(checked(allowed if refusal else _beyond()), OWNER)
        (Path(name) / "greedy.run").write_bytes(signed.encode())
        port = free_port()
        address = address_in(Path(name) / "joiner", port)
        listen = f"/ip4/127.0.0.1/tcp/{port}"
        joiner = joins("joiner", "--run", Path(name) / "greedy.run", "--relay", "--listen", listen)
        joiner.wait_for_event("started")
        return trio.run(_attack, joiner, address, signed, refusal)


def _beyond() -> dict[str, object]:
    """The largest that was allowed once."""
    return _greedy(limits.TENSORS_MAX, rank=64, epochs=2)


def _greedy(tensors: int, *, rank: int, epochs: int) -> dict[str, object]:
    """Plain data of a manifest with so many matrices, and as many scalars for each update as may be."""
    data = manifest_data(rank=rank, directions=256, local_steps=4, clip=1)
    names = [{"name": str(number), "kind": "matrix", "rows": 8, "cols": 8} for number in range(tensors)]
    schedule = {"kind": "constant", "weight_start": 1, "weight_end": 1}
    bounds = {"steps": epochs * data["method"]["epoch_steps"], "authors_max": 4, "owner": OWNER.author.hex()}
    return {**data, **bounds, "tensors": names, "schedule": schedule, "task": {**data["task"], "batch_rows": 256}}


def _join_beyond_the_bound(joins: Joins) -> str:
    """Why a joiner refuses it, in its words; empty when it joins."""
    line = json.dumps(_beyond(), sort_keys=True, separators=(",", ":")).encode()
    signature = OWNER.sign(b"sfnode/manifest/1" + hash_fields("sfnode/run/1", line))
    (joins.folder / "beyond.run").write_bytes(line + b"\n" + signature.hex().encode() + b"\n")
    joiner = joins("beyond", "--run", joins.folder / "beyond.run", "--relay")
    assert joiner.process is not None
    try:
        wait_for_end(joiner.process, 10.0)
    except subprocess.TimeoutExpired:
        joiner.kill()
        return ""
    return joiner.last_words()


async def _attack(joiner: JoinProcess, address: str, signed: SignedManifest, refusal: str) -> Outcome:
    assert joiner.process is not None
    pid, size = joiner.process.pid, joiner.wait_for_event("run_size")
    before_mb = memory_mb(pid)
    async with visiting(address, signed.manifest.run_id) as author:
        await _bring_two(author, signed)
        silent_s = await _longest_silence(joiner)
    peak_mb, after_mb = memory_mb(pid, is_peak=True), memory_mb(pid)
    told_mb = size["coefficients"] / 1e6
    is_bounded = peak_mb < before_mb + told_mb + _TEMPORARY_MB
    return Outcome(
        before=f"{before_mb:.0f} MB",
        during=f"{'refused beyond the bound; at it' if refusal else 'joined'} {peak_mb:.0f} MB at most, and a status "
        f"after {silent_s:.1f} s at the latest",
        after=f"{after_mb:.0f} MB",
        attacker=f"a manifest, and {author.sent_bytes} bytes",
        bound=f"{told_mb:.0f} MB were told before joining, {_TEMPORARY_MB:.0f} more for the sums; a status within "
        f"{_SILENT_S:.0f} s",
        is_held="bounds:" in refusal and is_bounded and silent_s < _SILENT_S,
    )


async def _bring_two(author: Visitor, signed: SignedManifest) -> None:
    """Updates of two epochs."""
    codec, chance = EnvelopeCodec(signed.manifest), random.Random(1)
    for step in (0, signed.manifest.method.epoch_steps):
        scalars = tuple(chance.choice((-1, 1)) for _ in range(_SCALARS))
        await author.say(Records(request=0, data=codec.seal(signer(0), step, scalars).record))


async def _longest_silence(joiner: JoinProcess) -> float:
    """Return the most seconds without a new status, until both updates are summed, which is when a head can be told.

    Seconds in which the joiner stands in the queue for a processor do not count.
    """
    assert joiner.process is not None
    stopwatch, patience = Stopwatch(partial(waits_of, [joiner.process.pid])), Patience(_SUMMED_S)
    longest_s, now_s, heard_s, last = 0.0, 0.0, 0.0, None
    while not patience.is_over():
        status, now_s = joiner.status(), stopwatch.seconds()
        if status.get("time") != last:
            last, heard_s = status.get("time"), now_s
        longest_s = max(longest_s, now_s - heard_s)
        if status.get("updates") == 2 and status.get("state_digest") and now_s > _LOOKED_S:
            break
        await trio.sleep(0.05)
    return longest_s
