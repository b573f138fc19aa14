"""What a head costs: the ledger's root and the state digest after one more update, and after one more of each author.

    python -m benchmarks.heads --json

Also the frontier, which a node needs for every frame of records. OPT-125m's tensors; median of some repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from statistics import median
from time import thread_time

import click

from benchmarks.command_line import Benchmark, Numbers
from benchmarks.measures import report, say
from benchmarks.sample_runs import Shape, TrustingCodec, manifest_of, unsigned_records
from benchmarks.virtual_network import idle_node
from protocol.state import Replica

AUTHORS = (100, 1_000, 10_000)
_STEPS_HELD = 300  # of each author, in the current span
_UPDATES_HELD = 300_000  # and not more in all
_REPEATS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadCost:
    """Milliseconds of CPU after one more update, and after one more of each author."""

    authors: int
    sum_one_ms: float
    root_after_one_ms: float
    state_after_one_ms: float
    sum_all_ms: float
    root_after_all_ms: float
    state_after_all_ms: float
    frontier_ms: float


def measure(authors: int, steps_held: int = _STEPS_HELD) -> HeadCost:
    """Medians of some repeats."""
    shape = Shape(authors=authors, steps=steps_held + 2 * _REPEATS)
    manifest = manifest_of(shape)
    replica = Replica(manifest)
    replica.ledger.codec = TrustingCodec(manifest)
    records = unsigned_records(manifest, shape)
    _add(replica, records, steps_held * authors)
    node = idle_node(manifest, "node", replica)
    _both(replica)
    times: dict[str, list[float]] = {}
    for _ in range(_REPEATS):
        for name, count in (("one", 1), ("all", authors - 1)):
            _add(replica, records, count)
            times.setdefault(f"sum_{name}_ms", []).append(_ms(replica.coefficients))
            times.setdefault(f"root_after_{name}_ms", []).append(_ms(replica.ledger.root))
            times.setdefault(f"state_after_{name}_ms", []).append(_ms(replica.state_digest))
        times.setdefault("frontier_ms", []).append(_ms(node.turn.frontier))
    return HeadCost(authors=authors, **{name: round(median(taken), 3) for name, taken in times.items()})


def _both(replica: Replica) -> None:
    replica.ledger.root()
    replica.state_digest()


def _add(replica: Replica, records: Iterator[bytes], count: int) -> None:
    for _ in range(count):
        replica.add(next(records))


def _ms(run: Callable[[], object]) -> float:
    started = thread_time()
    run()
    return 1e3 * (thread_time() - started)


@click.command(cls=Benchmark)
@click.option("--authors", type=Numbers(), default=AUTHORS, show_default=True, help="Numbers of authors.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def main(authors: tuple[int, ...], as_json: bool) -> None:
    """Cost of a head."""
    rows = []
    for count in authors:
        say(f"{count:,} authors")
        rows.append(measure(count, min(_STEPS_HELD, _UPDATES_HELD // count)))
    lines = ["  ".join(f"{name} {value:g}" for name, value in asdict(row).items()) for row in rows]
    report({"heads": rows}, as_json=as_json, lines=lines)


if __name__ == "__main__":
    main()
