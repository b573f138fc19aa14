"""A world that a test arranges by hand: honest machines and links where it wants them, under the watch of every world.

No fault happens but what the test does and, where it asks for it, the loss of messages, which never ends.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

from protocol.events import StatementSubmitted
from protocol.node.node import Node
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.wire import PeerId, Records, encode
from tests.simulation.environment import Environment
from tests.simulation.host import Host, HostConfig
from tests.simulation.link import Link
from tests.simulation.scenario import Fault, Scenario
from tests.simulation.snapshot_watch import SnapshotWatch
from tests.simulation.watch import Watch, check_end
from tests.simulation.world import counted_signatures, remembered_cores


@contextmanager
def scripted_network(
    *, run: str = "canonical", seed: int = 1, loss: float = 0.0, is_listed: bool = False
) -> Iterator[ScriptedNetwork]:
    """A network of the given kind of run; ``loss``: the chance of each message to be lost."""
    scenario = Scenario(
        seed=seed,
        run=run,
        topology="by hand",
        honest=0,
        outbound_only=0,
        faults=(Fault.LOSS,) if loss else (),
        safety_ms=0,
        delay_ms=(5, 60),
        loss=loss,
        is_tight=False,
        is_closely_watched=True,
        is_listed=is_listed,
        exclusions=0,
        snapshot=None,
    )
    environment = Environment(scenario)
    with counted_signatures(environment), remembered_cores():
        yield ScriptedNetwork(environment)


class ScriptedNetwork:
    """Machines by name, in virtual time."""

    def __init__(self, environment: Environment) -> None:
        self.hosts: dict[str, Host] = {}
        self._environment = environment
        self._watch = Watch(SnapshotWatch(lambda _event: None, lambda _peer: {}), is_close=True)

    @property
    def manifest(self) -> Manifest:
        """The run's manifest."""
        return self._environment.scenario.manifest

    def add(self, name: str, *neighbours: str, expects_peers: bool = False, estimate_ms: int = 120) -> Host:
        """A machine that trains, and is started; with links to ``neighbours``. A step takes it ``estimate_ms``."""
        config = HostConfig(expects_peers=expects_peers, estimate_ms=estimate_ms)
        host = Host(self._environment, self._watch, name, config)
        self.hosts[name] = self._environment.hosts[host.name] = host
        host.boot()
        for neighbour in neighbours:
            self.connect(name, neighbour)
        return host

    def add_ring(self, count: int) -> list[str]:
        """``node0`` and further, each with two neighbours."""
        names = [f"node{number}" for number in range(count)]
        for name in names:
            self.add(name)
        for number, name in enumerate(names):
            self.connect(name, names[(number + 1) % count])
        return names

    def connect(self, a: str, b: str) -> None:
        """A link, which comes up as soon as both ends are, and whenever they are again."""
        ends = PeerId(a), PeerId(b)
        self._environment.links[frozenset(ends)] = Link(self._environment, *ends)

    def push(self, source: str, target: str, record: bytes) -> None:
        """``source`` floods a record of anybody's to its neighbour ``target``."""
        frame = encode(Records(request=0, data=record))
        self._environment.link(PeerId(source), PeerId(target)).carry(PeerId(source), frame)

    def state(self, name: str, statement: bytes) -> None:
        """The owner leaves a statement on one machine."""
        self.hosts[name].handle(StatementSubmitted(statement=statement))

    def node(self, name: str) -> Node:
        """The core of a machine that is up."""
        node = self.hosts[name].node
        assert node is not None
        return node

    def run(self, duration_ms: int) -> None:
        """Let virtual time pass."""
        self._environment.run_until(self._environment.now_ms + duration_ms)

    def run_until_agreement(self, limit_ms: int) -> None:
        """Until all are finished and hold the same root; then everything that is held of the end of every world."""
        end_ms = self._environment.now_ms + limit_ms
        while not self._agree():
            assert self._environment.now_ms < end_ms, f"no agreement within {limit_ms} virtual ms"
            self.run(1_000)
        check_end({host.name: self.node(name) for name, host in self.hosts.items()}, self._watch)

    def _agree(self) -> bool:
        nodes = [host.node for host in self.hosts.values()]
        up = [node for node in nodes if node is not None and node.own_steps.is_finished]
        return len(up) == len(nodes) and len({node.replica.ledger.root() for node in up}) == 1

    def starts(self) -> dict[str, int]:
        """How often each machine has started a process: one that halts is started again."""
        return {name: host.starts for name, host in self.hosts.items()}

    def digests(self) -> set[bytes]:
        """State digests of all machines, which are up."""
        return {self.node(name).replica.state_digest() for name in self.hosts}

    def replayed(self, name: str, chance: random.Random) -> Replica:
        """What the disk of one machine gives when it is read in an order drawn by chance."""
        disk, replica = self.hosts[name].disk, Replica(self.manifest)
        records = disk.recover()
        for statement in chance.sample(disk.statements, len(disk.statements)):
            replica.add_statement(statement)
        for record in chance.sample(records, len(records)):
            replica.add(record)
        return replica
