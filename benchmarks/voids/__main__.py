"""What it costs a node when authors sign a second payload for old slots of theirs, beside what a new update costs.

    python -m benchmarks.voids --json

A relay's core with its store: records come in frames of 100 with a head behind each, 2,000 a second of virtual time,
and all is carried out: checks, log, digests, heads, the sum. Every slot is another one, drawn from the whole ledger.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click

from benchmarks.measures import Stopwatch, report, say
from benchmarks.sample_runs import (
    OWNER,
    Shape,
    TrustingCodec,
    manifest_of,
    scalars_of,
    signer,
    tiny_tensors,
    unsigned_records,
)
from benchmarks.virtual_network import idle_node
from protocol.events import Event, MessageArrived, PeerJoined, StoreRecords, Ticked
from protocol.ledger import EnvelopeCodec
from protocol.limits import SPAN_STEPS
from protocol.node import Node
from protocol.run import Manifest, sign_manifest
from protocol.state import Replica
from protocol.wire import Head, PeerId, Records
from sfnode.storage import DataDirectory, Store

_AT_ONCE, _EVERY_MS = 100, 50  # 2,000 records a second: what one neighbour may push
_FILLED_AT_ONCE = 500
_ATTACKER, _OTHER = PeerId("attacker"), PeerId("other")
_CALM_TICKS = 400  # 20 s: whatever waits is summed by then


def measure(authors: int, spans: int, count: int, *, is_tiny: bool) -> dict[str, dict[str, float]]:
    """Microseconds of CPU for each record by part; the longest that one event took, in milliseconds of CPU."""
    held = spans * SPAN_STEPS
    shape = Shape(authors=authors, steps=held + count // authors + 1)
    manifest = manifest_of(shape, tiny_tensors() if is_tiny else None)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(DataDirectory(Path(folder) / "node"), sign_manifest(manifest, OWNER))
        target = _Target(manifest, store)
        target.fill(islice(unsigned_records(manifest, shape), authors * held))
        chance = random.Random(0)
        new = [(author, step) for step in range(held, shape.steps) for author in range(authors)]
        old = chance.sample([(author, step) for step in range(held) for author in range(authors)], count)
        result = {}
        for name, slots in (("new", new[:count]), ("void", old)):
            say(f"{name}: {count} records")
            result[name] = target.take(_sealed(manifest, slots, chance))
        store.close()
    return result


class _Target:
    """A node with two neighbours, whose effects are carried out."""

    def __init__(self, manifest: Manifest, store: Store) -> None:
        self._store = store
        self._node: Node = idle_node(manifest, "node", Replica(manifest, store))
        self._now_ms = 0
        self._watch = Stopwatch()
        self._longest_s = 0.0
        for peer in (_ATTACKER, _OTHER):
            self._happen("joins", PeerJoined(peer=peer))

    def fill(self, records: Iterator[bytes]) -> None:
        """Take records in without looking at signatures."""
        replica = self._node.replica
        codec, replica.ledger.codec = replica.ledger.codec, TrustingCodec(replica.manifest)
        while piece := list(islice(records, _FILLED_AT_ONCE)):
            for record in piece:
                replica.add(record)
            self._store.add(piece, is_durable=False)
            replica.coefficients()
        replica.ledger.codec = codec
        replica.ledger.root()
        replica.state_digest()

    def take(self, records: Sequence[bytes]) -> dict[str, float]:
        """Frame by frame, then some calm."""
        self._watch, self._longest_s = Stopwatch(), 0.0
        replica = self._node.replica
        for start in range(0, len(records), _AT_ONCE):
            data = b"".join(records[start : start + _AT_ONCE])
            self._happen("take", MessageArrived(peer=_ATTACKER, message=Records(request=0, data=data)))
            head = Head(root=bytes(32), state_digest=bytes(32), updates=0, step=0, work_distance=0)
            self._happen("root", MessageArrived(peer=_ATTACKER, message=head))
            self._tick()
        waiting = replica.unsummed
        for _ in range(_CALM_TICKS if waiting else 1):
            self._tick()
        parts = {name: seconds / len(records) * 1e6 for name, seconds in self._watch.seconds.items()}
        return {name: round(taken, 1) for name, taken in parts.items()} | {
            "all": round(sum(parts.values()), 1),
            "longest_ms": round(1e3 * self._longest_s, 1),
            "waiting": waiting,
        }

    def _tick(self) -> None:
        self._now_ms += _EVERY_MS
        self._happen("tick", Ticked())

    def _happen(self, part: str, event: Event) -> None:
        started_s = time.thread_time()
        with self._watch.part(part):
            effects = self._node.handle(event, self._now_ms)
        with self._watch.part("store"):
            for effect in effects:
                if isinstance(effect, StoreRecords):
                    self._store.add(effect.records, is_durable=False)
        self._longest_s = max(self._longest_s, time.thread_time() - started_s)


def _sealed(manifest: Manifest, slots: Sequence[tuple[int, int]], chance: random.Random) -> list[bytes]:
    codec = EnvelopeCodec(manifest)
    return [codec.seal(signer(author), step, scalars_of(manifest, chance)).record for author, step in slots]


@click.command()
@click.option("--authors", default=4, show_default=True)
@click.option("--spans", default=20, show_default=True, help="Of 1,024 updates of each author, and as many epochs.")
@click.option("--count", default=4_000, show_default=True, help="Records of each kind.")
@click.option("--tiny", "is_tiny", is_flag=True, help="Two tensors; else those of OPT-125m.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def main(authors: int, spans: int, count: int, is_tiny: bool, as_json: bool) -> None:
    """New updates, and second payloads for old slots."""
    result: dict[str, Any] = measure(authors, spans, count, is_tiny=is_tiny)
    lines = [
        f"{name:5} " + "  ".join(f"{part} {value:g}" for part, value in row.items()) for name, row in result.items()
    ]
    report(result, as_json=as_json, lines=lines)


if __name__ == "__main__":
    main()
