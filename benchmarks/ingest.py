"""How many updates a second one core takes in: bytes -> Ledger.add with every check, signature included, slot and all.

    python -m benchmarks.ingest --updates 20000 --json

Parts are timed by themselves on the same records; their sum is a little less than the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import thread_time

import click
from nacl.bindings import crypto_sign_open

from benchmarks.measures import report
from benchmarks.sample_runs import Shape, TrustingCodec, manifest_of, sealed_records
from protocol.crypto import SIGNATURE_BYTES, hashing
from protocol.ledger import Envelope, EnvelopeCodec, Ledger
from protocol.run import Manifest

AUTHORS = 50


def measure(updates: int, repeats: int) -> dict[str, float]:
    """Microseconds of CPU per update: medians over ``repeats`` passes over the same records, and updates per second."""
    shape = Shape(authors=AUTHORS, steps=max(1, updates // AUTHORS))
    manifest = manifest_of(shape)
    records = list(sealed_records(manifest, shape))
    codec = EnvelopeCodec(manifest)
    envelopes = [codec.decode_untrusted(record) for record in records]
    signed = [record[-SIGNATURE_BYTES:] + _signed_bytes(manifest, record) for record in records]
    passes: dict[str, Callable[[], object]] = {
        "whole": lambda: _fill(Ledger(manifest), records),
        "without_signature": lambda: _fill(_trusting(manifest), records),
        "decode": lambda: [codec.decode_untrusted(record) for record in records],
        "seed": lambda: [hashing.seed_of(manifest.run_id, envelope.author, envelope.step) for envelope in envelopes],
        "check_signed": lambda: _check_signed(codec, envelopes),
        "libsodium": lambda: _verify_only(signed, envelopes),
    }
    times: dict[str, list[float]] = {name: [] for name in passes}
    for _ in range(repeats):  # interleaved: a slow minute of the machine hits all parts alike
        for name, run in passes.items():
            times[name].append(_seconds(run) / len(records) * 1e6)
    result = {f"{name}_us": round(median(taken), 2) for name, taken in times.items()}
    spread = [1e6 / taken for taken in sorted(times["whole"])]
    return result | {
        "updates": len(records),
        "updates_per_second": round(median(spread)),
        "updates_per_second_lowest": round(spread[-1]),
        "updates_per_second_highest": round(spread[0]),
    }


def _fill(ledger: Ledger, records: Sequence[bytes]) -> None:
    for record in records:
        ledger.add(record)


def _trusting(manifest: Manifest) -> Ledger:
    ledger = Ledger(manifest)
    ledger.codec = TrustingCodec(manifest)
    return ledger


def _signed_bytes(manifest: Manifest, record: bytes) -> bytes:
    return b"sfnode/envelope1" + manifest.run_id + record[:-SIGNATURE_BYTES]  # SPEC 6.1


def _check_signed(codec: EnvelopeCodec, envelopes: Sequence[Envelope]) -> None:
    for envelope in envelopes:
        codec.check_signed(envelope)


def _verify_only(signed: Sequence[bytes], envelopes: Sequence[Envelope]) -> None:
    for message, envelope in zip(signed, envelopes, strict=True):
        crypto_sign_open(message, envelope.author)


def _seconds(run: Callable[[], object]) -> float:
    started = thread_time()
    run()
    return thread_time() - started


@click.command()
@click.option("--updates", default=20_000, show_default=True, help="Records to take in.")
@click.option("--repeats", default=5, show_default=True, help="Passes; medians are reported.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def main(updates: int, repeats: int, as_json: bool) -> None:
    """Ledger ingest with signature verification on one core."""
    result = measure(updates, repeats)
    lines = [f"{name:28} {value:12,.2f}" for name, value in result.items()]
    report(result, as_json=as_json, lines=lines)


if __name__ == "__main__":
    main()
