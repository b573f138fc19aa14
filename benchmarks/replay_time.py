"""What it costs to start from a log of a million updates: read, check, verify, put, sum, digest; and the memory.

    python -m benchmarks.replay_time --updates 1000000 --cache /tmp/records --json

The records go through the node's own store and replica. Making a million signed records takes a minute: --cache keeps
them. Two limits stand beside it: the signatures alone, and what applying to dense weights would cost.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click
import numpy as np
from nacl.bindings import crypto_sign_open

from benchmarks.measures import Stopwatch, memory_mib, peak_memory_mib, report, say
from benchmarks.sample_runs import OWNER, Shape, kept_records, manifest_of
from protocol.crypto import SIGNATURE_BYTES
from protocol.ledger import Envelope, EnvelopeCodec
from protocol.run import Manifest, sign_manifest
from protocol.state import Replica
from sfnode.storage import LEDGER_FILE, Store, replay

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


def measure(shape: Shape, kept: Path | None = None) -> dict[str, Any]:
    """One replay with OPT-125m's tensors: CPU seconds by part, microseconds per update, MiB, and the two limits."""
    manifest = manifest_of(shape)
    with tempfile.TemporaryDirectory() as folder:
        kept = kept or Path(folder) / "records"
        store = Store(Path(folder) / "node", sign_manifest(manifest, OWNER))
        say(f"{shape}: filling the store")
        for records in kept_records(manifest, shape, kept):
            store.add(records, is_durable=False)
        say(f"{shape}: replaying")
        result = _replay(store, manifest)
        store.close()
        records = next(iter(kept_records(manifest, shape, kept)))
    result["limits_us"] = {
        "signature_alone": round(_verify_alone_us(manifest, records), 1),
        "dense_apply": round(_dense_apply_us(manifest)),
    }
    return {"authors": shape.authors, "steps": shape.steps, **result}


def _replay(store: Store, manifest: Manifest) -> dict[str, Any]:
    watch, replica = Stopwatch(), Replica(manifest, store)
    plain, timed = EnvelopeCodec(manifest), TimedCodec(manifest, watch)
    before_mib = memory_mib()
    records = _timed(store.records(), watch)
    while piece := list(islice(records, _REPLAYED_AT_ONCE)):
        replica.ledger.codec = timed
        with watch.part("put"):
            replay(replica, piece, store.directory / LEDGER_FILE)
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
    return {
        "updates": updates,
        "seconds": {name: round(watch.seconds[name], 2) for name in _ORDER},
        "seconds_total": round(watch.total, 2),
        "us_per_update": {name: round(watch.seconds[name] / updates * 1e6, 2) for name in _ORDER},
        "updates_per_second": round(updates / watch.total),
        "ledger_mib": round(ledger_mib),
        "bytes_per_record": round(ledger_mib * (1 << 20) / updates),
        "peak_mib": round(peak_memory_mib()),
        "root": root.hex(),
        "state_digest": state.hex(),
    }


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
    weights = sum(tensor.rows * max(1, tensor.cols) for tensor in manifest.tensors)
    dense, source = np.zeros(_DENSE_SAMPLE, dtype=np.float32), np.random.default_rng(0)
    watch = Stopwatch()
    with watch.part("apply"):
        dense += np.float32(1e-3) * source.standard_normal(_DENSE_SAMPLE, dtype=np.float32)
    return watch.total * weights / _DENSE_SAMPLE * manifest.method.directions * 1e6


@click.command()
@click.option("--updates", default=1_000_000, show_default=True)
@click.option("--authors", default=100, show_default=True, help="They share the updates.")
@click.option("--cache", type=click.Path(path_type=Path, dir_okay=False), help="File that keeps the signed records.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def main(updates: int, authors: int, cache: Path | None, as_json: bool) -> None:
    """Replay of a log with OPT-125m's tensors, D = 8, rank 32. One process, one core, one shape: peaks are its own."""
    result = measure(Shape(authors=authors, steps=max(1, updates // authors)), cache)
    report(result, as_json=as_json, lines=_lines(result))


def _lines(result: dict[str, Any]) -> list[str]:
    parts = [
        f"  {name:16} {result['seconds'][name]:9.2f} s {result['us_per_update'][name]:9.2f} us per update"
        for name in _ORDER
    ]
    return [
        f"{result['updates']:,} updates of {result['authors']:,} authors in {result['seconds_total']} s of CPU: "
        f"{result['updates_per_second']:,} per second",
        *parts,
        f"  ledger {result['ledger_mib']} MiB, {result['bytes_per_record']} bytes per record; "
        f"peak of the process {result['peak_mib']} MiB",
        f"  limits: signature alone {result['limits_us']['signature_alone']} us; "
        f"applying to dense weights {result['limits_us']['dense_apply']:,} us per update",
    ]


if __name__ == "__main__":
    main()
