"""Two peers whose ledgers of a million updates differ in one: what finding it costs, in round trips, bytes and CPU.

    python -m benchmarks.difference --json

The real sessions over encoded messages. The cold session is the first on both sides: no digest above an author's is
known yet. Bytes include the frame headers. Each case ends with equal roots, or the program fails.
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from benchmarks.measures import Stopwatch, report, say
from benchmarks.sample_runs import Shape, manifest_of, signer, take, trusted_ledger, unsigned_records
from protocol.crypto import Author
from protocol.framing import LENGTH_BYTES
from protocol.ledger import Ledger
from protocol.run import Manifest
from protocol.sync import Claims, SyncSession, answer
from protocol.wire import Message, Records, decode_untrusted, encode

SHAPES = (
    Shape(authors=10, steps=100_000),
    Shape(authors=100, steps=10_000),
    Shape(authors=1_000, steps=1_000),
)
_AUTHOR = 3  # whose slots differ


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCost:
    """One session: round trips, bytes each way, and milliseconds of CPU on each side."""

    case: str
    round_trips: int
    bytes_up: int
    bytes_down: int
    asking_ms: float
    answering_ms: float


def measure(shape: Shape) -> list[SessionCost]:
    """All cases of one shape, in the order in which they are played on the same two ledgers."""
    manifest = manifest_of(shape)
    held_back = [_sealed(manifest, shape.steps // 2 + number, 7) for number in range(4)]
    slots = {record[:36] for record in held_back}  # author and step
    common = [record for record in unsigned_records(manifest, shape) if record[:36] not in slots]
    more, less = trusted_ledger(manifest, common), trusted_ledger(manifest, common)
    missing_cold, missing_warm, surplus, disputed = held_back
    take(more, missing_cold)
    costs = [ask(less, more, "missing, cold")]
    _check_equal(more, less)
    take(more, missing_warm)
    costs.append(ask(less, more, "missing, warm"))
    _check_equal(more, less)
    take(more, surplus)
    costs.append(ask(more, less, "asker holds one more"))
    costs.append(ask(less, more, "missing, warm again"))
    _check_equal(more, less)
    take(more, disputed)
    take(less, _sealed(manifest, shape.steps // 2 + 3, 8))
    costs.append(ask(less, more, "other payload, first asker"))
    costs.append(ask(more, less, "other payload, second asker"))
    _check_equal(more, less)
    costs.append(ask(less, more, "equal, asked all the same"))
    return costs


def ask(asker: Ledger, other: Ledger, case: str) -> SessionCost:
    """One whole session in which ``asker`` asks ``other``; every message crosses the wire format."""
    session, asking, answering = SyncSession(asker, Claims(), None), Stopwatch(), Stopwatch()
    round_trips = bytes_up = bytes_down = 0
    with asking.part("ms"):
        asker.root()  # what the head has cost before
        request = session.advance(None, 1)
    while request is not None:
        round_trips += 1
        with asking.part("ms"):
            sent = encode(request)
        with answering.part("ms"):
            payloads = [encode(message) for message in answer(other, decode_untrusted(sent))]  # type: ignore[arg-type]
        with asking.part("ms"):
            *frames, reply = (decode_untrusted(payload) for payload in payloads)
            for frame in frames:
                _take_frame(asker, session, frame)
            request = session.advance(reply, round_trips + 1)  # type: ignore[arg-type]
        bytes_up += len(sent) + LENGTH_BYTES
        bytes_down += sum(len(payload) + LENGTH_BYTES for payload in payloads)
    return SessionCost(
        case=case,
        round_trips=round_trips,
        bytes_up=bytes_up,
        bytes_down=bytes_down,
        asking_ms=round(1e3 * asking.total, 2),
        answering_ms=round(1e3 * answering.total, 2),
    )


def _take_frame(asker: Ledger, session: SyncSession, frame: Message) -> None:
    assert isinstance(frame, Records)
    records = asker.codec.split_untrusted(frame.data)
    session.count_records(records)
    for record in records:
        take(asker, record)


def _sealed(manifest: Manifest, step: int, scalar: int) -> bytes:
    scalars = (scalar,) * manifest.method.scalars
    return Ledger(manifest).codec.seal(signer(_AUTHOR), step, scalars).record


def _check_equal(one: Ledger, other: Ledger) -> None:
    assert one.root() == other.root()
    author = Author(signer(_AUTHOR).author)
    assert one.highest_step(author) == other.highest_step(author)


@click.command()
@click.option("--updates", default=1_000_000, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def main(updates: int, as_json: bool) -> None:
    """Anti-entropy between two ledgers that differ in one update."""
    result: dict[str, list[SessionCost]] = {}
    lines = []
    for full in SHAPES:
        shape = Shape(authors=full.authors, steps=max(8, updates // full.authors))
        say(f"{shape}: filling two ledgers")
        costs = result[str(shape)] = measure(shape)
        lines += [str(shape), *map(_line, costs)]
    report(result, as_json=as_json, lines=lines)


def _line(cost: SessionCost) -> str:
    return (
        f"  {cost.case:28} {cost.round_trips} round trips {cost.bytes_up:6,} B up {cost.bytes_down:7,} B down "
        f"asking {cost.asking_ms:7.2f} ms answering {cost.answering_ms:7.2f} ms"
    )


if __name__ == "__main__":
    main()
