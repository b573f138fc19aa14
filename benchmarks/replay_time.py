"""What it costs to start from a log of a million updates: read, check, verify, put, sum, digest; and the memory.

    python -m benchmarks.replay_time --updates 1000000 --cache /tmp/records --json

The records go through the node's own store and replica. Making a million signed records takes a minute: --cache keeps
them. Two limits stand beside it: the signatures alone, and what applying to dense weights would cost.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import click
import numpy as np
from nacl.bindings import crypto_sign_open

from benchmarks.command_line import Benchmark
from benchmarks.measures import Stopwatch, memory_mib, peak_memory_mib, report, say
from benchmarks.sample_runs import OWNER, Shape, dense_manifest_of, kept_records, manifest_of, weights_of
from protocol.crypto import SIGNATURE_BYTES
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.run import Manifest, sign_manifest
from protocol.state import Replica
from sfnode.storage import DataDirectory, Store

_REPLAYED_AT_ONCE = 2_000  # as the daemon
_DENSE_SAMPLE = 1 << 24  # weights in the measurement of a dense apply


class TimedCodec(EnvelopeCodec):
    """The codec, with the time of its two halves: two readings of the clock each, about 1 us per record in all."""

    def __init__(self, manifest: Manifest, watch: Stopwatch) -> None:
        super().__init__(manifest)
        self._watch = watch

    def decode_untrusted(self, record: bytes) -> Envelope:
        """As in EnvelopeCodec."""
        with self._watch.part("decode"):
            return super().decode_untrusted(record)

    def check_signed(self, envelope: Envelope) -> None:
        """As in EnvelopeCodec."""
        with self._watch.part("verify"):
            super().check_signed(envelope)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReplay:
    """One replay.

    Attributes:
        seconds, us_per_update: of CPU, by part.
        ledger_mib: growth of the process by the records; peak_mib: of the whole process.
        root, state_digest: hexadecimal; the same records give the same ones.
        limits_us: microseconds of CPU for an update's signature alone, and for applying it to dense weights.
    """

    authors: int
    steps: int
    updates: int
    seconds: dict[str, float]
    seconds_total: float
    us_per_update: dict[str, float]
    updates_per_second: int
    ledger_mib: int
    bytes_per_record: int
    peak_mib: int
    root: str
    state_digest: str
    limits_us: dict[str, float]


def measure(shape: Shape, kept: Path | None = None, dense_labels: int = 0) -> LogReplay:
    """One replay of the records kept in this file: of OPT-125m's tensors, or of a dense core for some label words."""
    manifest = dense_manifest_of(shape, dense_labels) if dense_labels else manifest_of(shape)
    with tempfile.TemporaryDirectory() as folder:
        kept = kept or Path(folder) / "records"
        store = Store(DataDirectory(Path(folder) / "node"), sign_manifest(manifest, OWNER))
        say(f"{shape}: filling the store")
        for records in kept_records(manifest, shape, kept):
            store.add(records, is_durable=False)
        say(f"{shape}: replaying")
        found = _replay(store, manifest, shape, kept)
        store.close()
    return found


def _replay(store: Store, manifest: Manifest, shape: Shape, kept: Path) -> LogReplay:
    watch, replica = Stopwatch(), Replica(manifest, store)
    plain, timed = EnvelopeCodec(manifest), TimedCodec(manifest, watch)
    before_mib = memory_mib()
    records = _timed(store.records(), watch)
    while piece := list(islice(records, _REPLAYED_AT_ONCE)):
        replica.ledger.codec = timed
        with watch.part("put"):
            for _, record in piece:
                replica.add(record)
        replica.ledger.codec = plain  # the sum decodes, too
        with watch.part("coefficients"):
            replica.coefficients()
    ledger_mib = memory_mib() - before_mib
    watch.seconds["put"] -= watch.seconds["decode"] + watch.seconds["verify"]
    with watch.part("ledger_digest"):
        root = replica.ledger.root()
    with watch.part("state_digest"):
        state = replica.state_digest()
    updates = replica.ledger.updates
    peak_mib = peak_memory_mib()  # now: measuring the limits needs memory, too
    return LogReplay(
        authors=shape.authors,
        steps=shape.steps,
        updates=updates,
        seconds={name: round(watch.seconds[name], 2) for name in _ORDER},
        seconds_total=round(watch.total, 2),
        us_per_update={name: round(watch.seconds[name] / updates * 1e6, 2) for name in _ORDER},
        updates_per_second=round(updates / watch.total),
        ledger_mib=round(ledger_mib),
        bytes_per_record=round(ledger_mib * (1 << 20) / updates),
        peak_mib=round(peak_mib),
        root=root.hex(),
        state_digest=state.hex(),
        limits_us={
            "signature_alone": round(_verify_alone_us(manifest, next(kept_records(manifest, shape, kept))), 1),
            "dense_apply": round(_dense_apply_us(manifest)),
        },
    )


_ORDER = ("read", "decode", "verify", "put", "coefficients", "ledger_digest", "state_digest")


def _timed(records: Iterator[tuple[int, bytes]], watch: Stopwatch) -> Iterator[tuple[int, bytes]]:
    """The records, pages of them timed: one by one would cost more than reading them."""
    while True:
        with watch.part("read"):
            page = list(islice(records, 1_024))
        if not page:
            return
        yield from page


def _verify_alone_us(manifest: Manifest, records: Sequence[bytes]) -> float:
    """Microseconds of libsodium for one signature: the floor under every replay."""
    prefix = b"sfnode/envelope1" + manifest.run_id  # SPEC 6.1
    signed = [(record[-SIGNATURE_BYTES:] + prefix + record[:-SIGNATURE_BYTES], record[:32]) for record in records]
    watch = Stopwatch()
    with watch.part("verify"):
        for message, author in signed:
            crypto_sign_open(message, author)
    return watch.total / len(signed) * 1e6


def _dense_apply_us(manifest: Manifest) -> float:
    """Microseconds to apply one update to dense weights as MeZO does: D directions of normal numbers, added up."""
    weights = weights_of(manifest.tensors)
    dense, source = np.zeros(_DENSE_SAMPLE, dtype=np.float32), np.random.default_rng(0)
    watch = Stopwatch()
    with watch.part("apply"):
        dense += np.float32(1e-3) * source.standard_normal(_DENSE_SAMPLE, dtype=np.float32)
    return watch.total * weights / _DENSE_SAMPLE * manifest.method.directions * 1e6


@click.command(cls=Benchmark)
@click.option("--updates", default=1_000_000, show_default=True)
@click.option("--authors", default=100, show_default=True, help="They share the updates.")
@click.option("--dense", "labels", default=0, help="Replay a dense core of SmolLM2-135M for so many label words.")
@click.option("--cache", type=click.Path(path_type=Path, dir_okay=False), help="File that keeps the signed records.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def main(updates: int, authors: int, labels: int, cache: Path | None, as_json: bool) -> None:
    """Replay of a log with OPT-125m's tensors, D = 8, rank 32, or with a dense core.

    One process, one core, one shape: peaks are its own.
    """
    found = measure(Shape(authors=authors, steps=max(1, updates // authors)), cache, labels)
    report(found, as_json=as_json, lines=_lines(found))


def _lines(found: LogReplay) -> list[str]:
    parts = [
        f"  {name:16} {found.seconds[name]:9.2f} s {found.us_per_update[name]:9.2f} us per update" for name in _ORDER
    ]
    return [
        f"{found.updates:,} updates of {found.authors:,} authors in {found.seconds_total} s of CPU: "
        f"{found.updates_per_second:,} per second",
        *parts,
        f"  ledger {found.ledger_mib} MiB, {found.bytes_per_record} bytes per record; "
        f"peak of the process {found.peak_mib} MiB",
        f"  limits: signature alone {found.limits_us['signature_alone']} us; "
        f"applying to dense weights {found.limits_us['dense_apply']:,} us per update",
    ]


if __name__ == "__main__":
    main()
