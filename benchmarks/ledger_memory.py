"""What an update takes in the memory of a node that runs: bytes of RSS, CPU through store and ledger; and its answers.

    python -m benchmarks.ledger_memory --updates 400000 --authors 64 --json

Updates come as they do from neighbours, some at a time, are stored and summed, and the root is asked for now and then.
Signatures are not verified here: `benchmarks.ingest` measures that.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import click

from benchmarks.measures import Stopwatch, memory_mib, report
from benchmarks.sample_runs import OWNER, Shape, TrustingCodec, manifest_of, signer, tiny_tensors, unsigned_records
from protocol.crypto import Author
from protocol.ledger import digest_buckets
from protocol.limits import SPAN_STEPS
from protocol.run import sign_manifest
from protocol.state import Replica
from sfnode.storage import DataDirectory, Store

_AT_ONCE = 20
_ROOT_EVERY = 500
_ANSWERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCost:
    """One process's figures: bytes of memory for each update after the first quarter; microseconds are of CPU."""

    updates: int
    authors: int
    bytes_per_update: float
    rss_mib: float
    take_us: float
    answers_us: dict[str, float]


def measure(shape: Shape, *, with_archive: bool) -> MemoryCost:
    """Fill a node of this shape in this process; the first quarter is not counted."""
    manifest = manifest_of(shape, tiny_tensors())
    with tempfile.TemporaryDirectory() as folder:
        store = Store(DataDirectory(Path(folder) / "node"), sign_manifest(manifest, OWNER))
        replica = Replica(manifest, store) if with_archive else Replica(manifest)
        replica.ledger.codec = TrustingCodec(manifest)
        records = unsigned_records(manifest, shape)
        _take(replica, store, islice(records, shape.updates // 4))
        before_mib, before = memory_mib(), replica.ledger.updates
        watch = Stopwatch()
        with watch.part("take"):
            _take(replica, store, records)
        taken = replica.ledger.updates - before
        grown_mib = memory_mib() - before_mib
        cost = MemoryCost(
            updates=replica.ledger.updates,
            authors=shape.authors,
            bytes_per_update=round(grown_mib * (1 << 20) / taken, 2),
            rss_mib=round(memory_mib(), 1),
            take_us=round(watch.total / taken * 1e6, 2),
            answers_us=_answers(replica, shape),
        )
        store.close()
    return cost


def _take(replica: Replica, store: Store, records: Iterator[bytes]) -> None:
    """As a node does with what its neighbours send."""
    due = _ROOT_EVERY
    while piece := list(islice(records, _AT_ONCE)):
        for record in piece:
            replica.add(record)
        store.add(piece, is_durable=False)
        replica.sum_some(_AT_ONCE)
        if replica.ledger.updates >= due:
            due += _ROOT_EVERY
            replica.ledger.root()


def _answers(replica: Replica, shape: Shape) -> dict[str, float]:
    """Medians would hide what a page costs that is not in the cache: means, of random authors and spans."""
    ledger, chance, spans = replica.ledger, random.Random(0), max(1, shape.steps // SPAN_STEPS)
    every = b"\xff" * (SPAN_STEPS // 8)
    most = (1 << SPAN_STEPS) - 2  # all slots but the first
    calls: dict[str, Callable[[int, Author], object]] = {
        "one record": lambda span, author: list(
            ledger.slots.records(span, author, digest_buckets.bitmap_of([chance.randrange(1_024)]))
        ),
        "all records of a span": lambda span, author: list(ledger.slots.records(span, author, every)),
        "payload_hashes": ledger.slots.payload_hashes,
        "digest_within": lambda span, author: ledger.slots.bucket(span, author).digest_within(most),
        "holdings_of": lambda span, author: digest_buckets.holdings_in(author, ledger.slots.bucket(span, author)),
    }
    result = {}
    for name, call in calls.items():
        chosen = [(chance.randrange(spans), signer(chance.randrange(shape.authors)).author) for _ in range(_ANSWERS)]
        watch = Stopwatch()
        with watch.part("call"):
            for span, author in chosen:
                call(span, author)
        result[name] = round(watch.total / _ANSWERS * 1e6, 1)
    return result


@click.command()
@click.option("--updates", default=400_000, show_default=True)
@click.option("--authors", default=64, show_default=True, help="They share the updates.")
@click.option("--no-archive", is_flag=True, help="All records stay in memory, as they do where nothing is stored.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def main(updates: int, authors: int, no_archive: bool, as_json: bool) -> None:
    """Memory of a running node by update, with records of 124 bytes. One process, one shape."""
    cost = measure(Shape(authors=authors, steps=max(1, updates // authors)), with_archive=not no_archive)
    report(cost, as_json=as_json, lines=_lines(cost))


def _lines(cost: MemoryCost) -> list[str]:
    return [
        f"{cost.updates:,} updates of {cost.authors:,} authors: {cost.bytes_per_update} bytes of memory "
        f"each after the first quarter, {cost.rss_mib} MiB in all; {cost.take_us} us each without signature",
        *(f"  {name:24} {taken:9.1f} us" for name, taken in cost.answers_us.items()),
    ]


if __name__ == "__main__":
    main()
