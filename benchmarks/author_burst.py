"""What it costs honest nodes when one author sends all its steps at once, and what a rate for each author would save.

    python -m benchmarks.author_burst --json

Real cores in virtual time, each with every check; the bounds of links (``sfnode/network/bounds.py``) are applied by the
attacker itself, so that it loses nothing by them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean, quantiles

import click

from benchmarks.graphs import random_of_degree
from benchmarks.measures import report, say
from benchmarks.sample_runs import Shape, manifest_of, scalars_of, signer, trusted_replica
from benchmarks.virtual_network import CountedNetwork, idle_node
from protocol.crypto import KEY_BYTES, Author, Signer
from protocol.events import Effect, Event, MessageArrived, PeerJoined, StoreRecords
from protocol.ledger import EnvelopeCodec
from protocol.node import Node, NodeConfig
from protocol.run import Manifest
from protocol.state import Replica
from protocol.wire import PeerId, Records
from sfnode.api.virtual_network import VirtualLink

_NODES, _DEGREE, _HONEST, _HISTORY = 8, 4, 8, 300
_AT_ONCE, _EVERY_MS = 100, 50  # 2,000 pushed records a second: what a link lets through
_RATE_PER_S, _BURST = 5.0, 50.0
_ATTACKER = 1_000
_PEER = PeerId("attacker")


class RationedNode(Node):
    """Ignores what is pushed of an author beyond their rate; only what was found genuine is counted against it."""

    def __init__(self, manifest: Manifest, signer_: Signer, config: NodeConfig, replica: Replica) -> None:
        super().__init__(manifest, signer_, config, replica)
        self._left: dict[bytes, tuple[float, int]] = {}

    def handle(self, event: Event, now_ms: int, *, is_last: bool = True) -> list[Effect]:
        if not (isinstance(event, MessageArrived) and isinstance(event.message, Records)) or event.message.request:
            return super().handle(event, now_ms, is_last=is_last)
        rationed = Records(request=0, data=b"".join(self._within_rate(event.message.data, now_ms)))
        effects = super().handle(replace(event, message=rationed), now_ms, is_last=is_last)
        for record in (record for each in effects if isinstance(each, StoreRecords) for record in each.records):
            left, at_ms = self._left[record[:KEY_BYTES]]
            self._left[record[:KEY_BYTES]] = left - 1, at_ms
        return effects

    def _within_rate(self, data: bytes, now_ms: int) -> Iterator[bytes]:
        """Yield the copies, and of each author as many others as their rate allows now."""
        taken: Counter[bytes] = Counter()
        for record in self.replica.ledger.codec.split_untrusted(data):
            author = record[:KEY_BYTES]
            left, at_ms = self._left.get(author, (_BURST, now_ms))
            left = min(_BURST, left + _RATE_PER_S * (now_ms - at_ms) / 1_000)
            self._left[author] = left, now_ms
            if self.replica.ledger.holds(record):
                yield record
            elif left - taken[author] >= 1:
                taken[author] += 1
                yield record


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """``is_pushing``: at the link's full rate; else it says that it holds them, and is asked."""

    name: str
    is_pushing: bool
    is_rationed: bool


ATTACKS = (
    Attack(name="pushed, no rate", is_pushing=True, is_rationed=False),
    Attack(name="asked for, no rate", is_pushing=False, is_rationed=False),
    Attack(name="pushed, rate of 5/s", is_pushing=True, is_rationed=True),
    Attack(name="asked for, rate of 5/s", is_pushing=False, is_rationed=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BurstCost:
    """What an attack cost the honest nodes, each of them on average.

    Attributes:
        everywhere_after_s: virtual seconds until all held everything; None: not within the time.
        held_of_attacker: the fewest and the most updates of the attacker that a node held at the end.
        honest_update_ms: virtual milliseconds until all held an honest author's update: mean, and 99 % of them.
    """

    everywhere_after_s: float | None
    held_of_attacker: str
    cpu_ms_per_node: int
    busiest_second_ms_per_node: int
    kilobytes_per_node: int
    honest_update_ms: str


def measure(steps: int, seconds: int) -> dict[str, BurstCost]:
    """Each attack on the same network for at most so many virtual seconds, with honest authors at work meanwhile."""
    manifest = manifest_of(Shape(authors=_HONEST + 1, steps=steps + seconds))
    codec, source = EnvelopeCodec(manifest), random.Random(0)

    def seal(number: int, step: int) -> bytes:
        return codec.seal(signer(number), step, scalars_of(manifest, source)).record

    say(f"signing {steps:,} updates")
    history = [seal(number, step) for step in range(max(0, steps - _HISTORY), steps) for number in range(_HONEST)]
    burst = [seal(_ATTACKER, step) for step in range(steps)]
    fresh = [seal(number, steps + second) for second in range(seconds) for number in range(_HONEST)]
    result = {}
    for attack in ATTACKS:
        say(attack.name)
        result[attack.name] = _Trial(manifest, attack, history, burst).run(fresh)
    return result


class _Trial:
    def __init__(self, manifest: Manifest, attack: Attack, history: list[bytes], burst: list[bytes]) -> None:
        self._attack, self._burst = attack, burst
        self._network = CountedNetwork(seed=1, link=VirtualLink())
        self._chance = random.Random(2)
        self._author = Author(burst[0][:KEY_BYTES])
        make = RationedNode if attack.is_rationed else Node
        self._nodes = [
            make(manifest, signer(10_000 + i), NodeConfig(is_training=False), trusted_replica(manifest, history))
            for i in range(_NODES)
        ]
        self._peers = [self._network.add(f"honest {i}", node) for i, node in enumerate(self._nodes)]
        for one, other in random_of_degree(_DEGREE)(_NODES):
            self._network.connect(self._peers[one], self._peers[other])
        self._network.run(5_000)
        if not attack.is_pushing:
            held = trusted_replica(manifest, [*history, *burst])
            self._network.connect(self._network.add(_PEER, idle_node(manifest, _PEER, held)), self._peers[0])
        self._network.take_counts()

    def run(self, fresh: Sequence[bytes]) -> BurstCost:
        """Until all hold everything, or the time is over."""
        busiest_s = 0.0
        given_ms: dict[bytes, int] = {}
        started_ms, bytes_in, cpu_s, done_s = self._network.now_ms, 0, 0.0, None
        for second in range(len(fresh) // _HONEST):
            for record in fresh[second * _HONEST : (second + 1) * _HONEST]:
                given_ms[record] = self._network.now_ms
                self._network.inject(self._chance.choice(self._peers), record)
            self._push_for_a_second(second)
            spent_s, received = self._take()
            cpu_s, bytes_in, busiest_s = cpu_s + spent_s, bytes_in + received, max(busiest_s, spent_s)
            if self._is_everywhere():
                done_s = (self._network.now_ms - started_ms) / 1_000
                break
        held = [self._of_attacker(node) for node in self._nodes]
        late_ms = [
            max(self._network.stored_ms[record].values()) - at_ms
            for record, at_ms in given_ms.items()
            if len(self._network.stored_ms[record]) >= _NODES
        ]
        return BurstCost(
            everywhere_after_s=done_s,
            held_of_attacker=f"{min(held)} to {max(held)}",
            cpu_ms_per_node=round(1_000 * cpu_s / _NODES),
            busiest_second_ms_per_node=round(1_000 * busiest_s / _NODES),
            kilobytes_per_node=round(bytes_in / _NODES / 1_000),
            honest_update_ms=f"{mean(late_ms):.0f}, {quantiles(late_ms, n=100)[98]:.0f}",
        )

    def _push_for_a_second(self, second: int) -> None:
        per_second = _AT_ONCE * 1_000 // _EVERY_MS
        for start in range(second * per_second, (second + 1) * per_second, _AT_ONCE):
            if self._attack.is_pushing and start < len(self._burst):
                data = b"".join(self._burst[start : start + _AT_ONCE])
                self._network.give(self._peers[0], PeerJoined(peer=_PEER))
                self._network.give(self._peers[0], MessageArrived(peer=_PEER, message=Records(request=0, data=data)))
            self._network.run(_EVERY_MS)

    def _take(self) -> tuple[float, int]:
        """CPU seconds and bytes received of the honest nodes since the last call."""
        cpu = self._network.cpu_seconds
        cpu_s = sum(s for peer in self._peers for kind, s in cpu[peer].items() if kind != "link")
        received = sum(
            sum(traffic.bytes.values()) for (_, to), traffic in self._network.traffic.items() if to in self._peers
        )
        self._network.take_counts()
        return cpu_s, received

    def _of_attacker(self, node: Node) -> int:
        ledger = node.replica.ledger
        return sum(ledger.slots.bucket(span, self._author).valid.bit_count() for span in ledger.slots.spans())

    def _is_everywhere(self) -> bool:
        return all(self._of_attacker(node) == len(self._burst) for node in self._nodes)


@click.command()
@click.option("--steps", default=10_000, show_default=True, help="Updates that the one author sends at once.")
@click.option("--seconds", default=120, show_default=True, help="After so long an attack is over.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def main(steps: int, seconds: int, as_json: bool) -> None:
    """One author sends all its past steps at once to one of eight nodes, while eight others contribute."""
    result = measure(steps, seconds)
    lines = [
        f"{name}: {', '.join(f'{key} {value}' for key, value in asdict(cost).items())}" for name, cost in result.items()
    ]
    report(result, as_json=as_json, lines=lines)


if __name__ == "__main__":
    main()
