"""Time what a node does with a log when it starts: decode, verify, put, sum, digest.

This works in memory; `benchmarks/replay_time.py` replays a node's store with a million updates.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeVar

from benchmarks.sample_runs import some_scalars
from benchmarks.shapes import shape_tensors
from protocol.crypto import Signer
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.run import Manifest
from protocol.state import Replica
from sfnode.training.bench import synthetic_models, timing

T = TypeVar("T")

AUTHORS: Final = 50
REPEATS: Final = 3
_PARTS: Final = ("decode", "verify", "put", "coefficients", "ledger_digest", "state_digest")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCost:
    """Result of `bench_replay`.

    Attributes:
        seconds_total, updates_per_second: medians.
        ratio_to_signatures: ratio of the whole to the signatures alone.
        seconds, us_per_update: by part; `put` is what `Ledger.add` does besides decoding and verifying.
        spread: of the whole and by part, relative.
        root, state_digest: hex.
    """

    shape: str
    updates: int
    directions: int
    authors: int
    seconds_total: float
    updates_per_second: float
    ratio_to_signatures: float
    seconds: Mapping[str, float]
    us_per_update: Mapping[str, float]
    spread: Mapping[str, float]
    root: str
    state_digest: str


def bench_replay(shape: str, *, updates: int, directions: int = 1, repeats: int = REPEATS) -> ReplayCost:
    """Replay ``updates`` signed updates of 50 authors, from bytes to both digests, on one core."""
    manifest = synthetic_models.bench_manifest(shape_tensors(shape), directions=directions)
    records = signed_records(manifest, updates)
    runs = [_parts(manifest, records) for _ in range(repeats + 1)][1:]
    times = {part: [run[part] for run in runs] for part in _PARTS}
    whole = [sum(run.values()) for run in runs]
    replica = Replica(manifest)
    for record in records:
        replica.add(record)
    return ReplayCost(
        shape=shape,
        updates=updates,
        directions=manifest.method.directions,
        authors=AUTHORS,
        seconds_total=median(whole),
        updates_per_second=updates / median(whole),
        ratio_to_signatures=median(whole) / median(times["verify"]),
        seconds={part: median(found) for part, found in times.items()},
        us_per_update={part: median(found) / updates * 1e6 for part, found in times.items()},
        spread={"total": timing.relative_spread(whole)}
        | {part: timing.relative_spread(found) for part, found in times.items()},
        root=replica.ledger.root().hex(),
        state_digest=replica.state_digest().hex(),
    )


def signed_records(manifest: Manifest, updates: int) -> list[bytes]:
    """Return signed records step by step, every author in turn."""
    codec = EnvelopeCodec(manifest)
    signers = [Signer((b"bench author %d" % number).ljust(32, b".")) for number in range(AUTHORS)]
    return [
        codec.seal(signers[index % AUTHORS], index // AUTHORS, some_scalars(manifest, index)).record
        for index in range(updates)
    ]


def _parts(manifest: Manifest, records: list[bytes]) -> dict[str, float]:
    """Return the seconds of one replay by part. Decoding and verifying are timed separately, on the same records."""
    codec, replica = EnvelopeCodec(manifest), Replica(manifest)
    envelopes, decode = _timed(lambda: [codec.decode_untrusted(record) for record in records])
    _, verify = _timed(lambda: _check_all(codec, envelopes))
    _, taken = _timed(lambda: [replica.add(record) for record in records])
    return {
        "decode": decode,
        "verify": verify,
        "put": max(0.0, taken - decode - verify),
        "coefficients": _timed(replica.coefficients)[1],
        "ledger_digest": _timed(replica.ledger.root)[1],
        "state_digest": _timed(replica.state_digest)[1],
    }


def _check_all(codec: EnvelopeCodec, envelopes: list[Envelope]) -> None:
    for envelope in envelopes:
        codec.check_signed(envelope)


def _timed(action: Callable[[], T]) -> tuple[T, float]:
    """Return the result of ``action``, and the seconds that it took.

    By the wall: some machines count a thread's CPU time in ticks of 10 ms, as long as 100 signatures take.
    """
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start
