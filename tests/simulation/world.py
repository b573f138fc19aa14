"""One simulated world: made from a scenario, broken for a while, healed, and held to its promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from protocol import limits, timings
from protocol.ledger import envelope
from protocol.node.node import Node
from protocol.schema import _converter
from protocol.state import coefficients
from protocol.state.replica import Replica
from protocol.wire import CLASSES, PeerId
from tests.simulation.environment import Environment, Part
from tests.simulation.faults import Calendar
from tests.simulation.holding import Slot, Violation
from tests.simulation.host import Host, HostConfig
from tests.simulation.hostile import Equivocator, Intruder, Liar, Replayer, Spammer
from tests.simulation.link import Link
from tests.simulation.owner import Owner
from tests.simulation.scenario import SNAPSHOT_AUTHORS_MIN, Fault, Scenario, SnapshotEvent, draw, stream
from tests.simulation.snapshot_files import lying
from tests.simulation.snapshot_watch import SnapshotWatch
from tests.simulation.topology import edges
from tests.simulation.watch import Watch, check_end

AGREEMENT_MS = 120_000  # after the faults stop: every node is done and all hold the same digests
END_MS = 200_000  # after that: the run is over for every node; authors that have left are awaited for 120 s
_LOOK_MS = 500
_INSIST_MS = 2_000
_ATTESTED_MS = 250  # how often it is looked whether a snapshot is attested
_OUTBOUND_ONLY_DIAL_MS = 2_500  # the other end cannot dial: the one that can must notice first
Array = NDArray[Any]
Cores = Callable[[Sequence[int], Array, int, int], tuple[Array, ...]]
_VERDICTS: dict[tuple[bytes, bytes, bytes], bool] = {}
_CACHED = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one seed went. ``missing``: demanded faults that did not happen; the run counts for nothing then.

    ``agreed_ms``: virtual milliseconds from the end of the faults to agreement. ``violation`` is empty when none.
    ``partial``: rounds of which a slow node measured some directions only.
    """

    seed: int
    topology: str
    nodes: int
    updates: int
    partial: int
    void_slots: int
    agreed_ms: int
    events: int
    injected: dict[str, int]
    snapshots: dict[str, int]
    missing: tuple[str, ...]
    trace: str
    violation: str


class World:
    """Hosts, links and the calendar of faults of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.environment = Environment(scenario)
        snapshots = SnapshotWatch(self._see_snapshot, self._held_by)
        self.watch = Watch(snapshots, is_close=scenario.is_closely_watched)
        self.hosts: list[Host] = []
        self._links: list[Link] = []
        self._random = stream(scenario.seed, "world")
        self._chosen = stream(scenario.seed, "snapshots of the world")
        self._is_somebody_behind = scenario.snapshot is None
        self.owner = Owner(self.environment, lambda: self.hosts)
        self._settle(scenario)
        self._invite(scenario)
        self.owner.exclude()
        self.calendar = Calendar(self.environment, self.hosts, self._links)

    @property
    def honest(self) -> list[Host]:
        """Hosts that must agree in the end: all but the liars."""
        return [host for host in self.hosts if not host.is_hostile]

    def nodes(self) -> dict[PeerId, Node]:
        """The honest nodes that are up."""
        return {host.name: host.node for host in self.honest if host.node is not None}

    def run(self) -> int:
        """Safety, then liveness; returns the virtual milliseconds from the end of the faults to agreement."""
        environment = self.environment
        safety_ms = environment.scenario.safety_ms
        environment.run_until(safety_ms)
        while (self.missing() or not self._is_somebody_behind) and environment.now_ms < 2 * safety_ms:
            for fault in self.missing():
                self.calendar.happen(fault)
            environment.run_until(environment.now_ms + _INSIST_MS)
        self._heal()
        healed_ms = environment.now_ms
        while not self._agree():
            if environment.now_ms - healed_ms >= AGREEMENT_MS:
                raise Violation(f"no agreement {AGREEMENT_MS // 1_000} s after the faults stopped: {self._describe()}")
            environment.run_until(environment.now_ms + _LOOK_MS)
        check_end(self.nodes(), self.watch)
        agreed_ms = environment.now_ms - healed_ms
        if len(environment.hosts) == len(self.honest):  # liars may claim for ever to have work
            self._see_the_end()
        return agreed_ms

    def _see_the_end(self) -> None:
        """The run is over for every node before long, and nothing has come meanwhile (SPEC 9.6)."""
        environment, agreed_ms = self.environment, self.environment.now_ms
        while not all(node.end.ending.is_over for node in self.nodes().values()):
            if environment.now_ms - agreed_ms >= END_MS:
                endings = {name: node.end.ending for name, node in self.nodes().items()}
                raise Violation(f"the run is not over {END_MS // 1_000} s after all agreed: {endings}")
            environment.run_until(environment.now_ms + _INSIST_MS)
        check_end(self.nodes(), self.watch)

    def missing(self) -> tuple[Fault, ...]:
        """Demanded faults that have not happened."""
        environment = self.environment
        return tuple(fault for fault in environment.scenario.faults if not environment.injected[fault])

    # --- making -------------------------------------------------------------------------------------------

    def _settle(self, scenario: Scenario) -> None:
        """The honest nodes and the links between them, one of them an equivocator where that is demanded."""
        names = [f"node{number}" for number in range(scenario.honest)]
        for number, name in enumerate(names):
            is_cheat = Fault.EQUIVOCATION in scenario.faults and number == scenario.honest - 1
            made = Equivocator if is_cheat else Host
            host = made(self.environment, self.watch, name, self._config(0 if is_cheat else number))
            self._add(host)
            if scenario.snapshot and scenario.snapshot.lie and number != 2:
                self.watch.snapshots.liars.add(host.signer.author)
            self.owner.admit(host.signer, at_ms=10 if number < 2 or is_cheat else None)
            host.boot()
        outbound_only = set(names[1::2][: scenario.outbound_only])
        for a, b in edges(scenario.topology, scenario.honest, self._random):
            is_slow = bool({names[a], names[b]} & outbound_only)
            self._connect(names[a], names[b], is_slow=is_slow)

    def _config(self, number: int) -> HostConfig:
        return HostConfig(
            is_training=number < 2 or self._random.random() < 0.85,
            expects_peers=number > 0,
            estimate_ms=self._random.choice((60, 120, 120, 250, 900)),
        )

    def _invite(self, scenario: Scenario) -> None:
        """Late joiners and hostile peers, each a neighbour of one or two honest nodes."""
        faults = scenario.faults
        if Fault.LIE in faults:
            self._add(liar := Liar(self.environment, self.watch, "liar", self._config(2)))
            self.owner.admit(liar.signer)
            liar.boot()
            self._attach("liar", 2)
        if Fault.SPAM in faults:
            self._add(Spammer(self.environment, "spammer"))
            self._attach("spammer", 2)
        if Fault.REPLAY in faults:
            victims = [host.signer for host in self.honest]
            self._add(Replayer(self.environment, "replayer", victims))
            self._attach("replayer", 1)
        if scenario.snapshot:
            self.environment.schedule(_ATTESTED_MS, self._fall_behind)
        elif Fault.LATE_JOINER in faults:
            self.environment.schedule(self._random.randrange(2_000, scenario.safety_ms), self._join_late)

    def _join_late(self) -> None:
        self.environment.count(Fault.LATE_JOINER)
        is_with_snapshots = self.environment.scenario.snapshot is not None
        late = Host(self.environment, self.watch, "late", self._config(1 if is_with_snapshots else 2))
        self._add(late)
        self.owner.admit(late.signer, at_ms=0 if is_with_snapshots else None)
        late.boot()
        self._attach("late", 3 if is_with_snapshots else self._random.randint(1, 2))

    def _add(self, host: Host | Intruder) -> None:
        self.environment.hosts[host.name] = host
        if isinstance(host, Host):
            self.hosts.append(host)

    def _attach(self, name: str, count: int) -> None:
        settled = [host.name for host in self.hosts if host.name.startswith("node")]
        for neighbour in self._random.sample(settled, count):
            self._connect(name, neighbour, is_slow=False)

    def _connect(self, a: str, b: str, *, is_slow: bool) -> None:
        dial_ms = {"dial_ms": _OUTBOUND_ONLY_DIAL_MS} if is_slow else {}
        link = Link(self.environment, PeerId(a), PeerId(b), **dial_ms)
        self.environment.links[frozenset(link.ends)] = link
        self._links.append(link)

    # --- snapshots ----------------------------------------------------------------------------------------

    def _fall_behind(self) -> None:
        """Once a snapshot is attested, or never will be: a node joins or loses its disk, and lacks all of it."""
        scenario, nodes = self.environment.scenario, list(self.nodes().values())
        tables = [node.snapshots.attestations for node in nodes if node.sync.is_live]
        is_attested = any(table.agreed(SNAPSHOT_AUTHORS_MIN) for table in tables)
        if not is_attested and not (len(nodes) == len(self.honest) and all(map(is_done, nodes))):
            self.environment.schedule(_ATTESTED_MS, self._fall_behind)
            return
        self._is_somebody_behind = True
        if Fault.LATE_JOINER in scenario.faults:
            self._join_late()
        if scenario.snapshot and scenario.snapshot.is_disk_lost:
            self.environment.tell(SnapshotEvent.DISK_LOST)
            self._chosen.choice(self.hosts[:2]).lose_disk(down_ms=self._chosen.randrange(100, 2_000))

    def _see_snapshot(self, event: SnapshotEvent) -> None:
        self.environment.tell(event)
        if event is SnapshotEvent.USED and self.environment.scenario.snapshot:
            self.environment.schedule(self._chosen.randrange(1, 600), self._strike_user)

    def _strike_user(self) -> None:
        """A node that uses a snapshot now is killed, or the owner excludes an author from below it."""
        plan = self.environment.scenario.snapshot
        users = [host for host in self.honest if host.node is not None and host.node.replica.snapshot is not None]
        if not plan or not users:
            return
        if plan.is_cut and not self.environment.snapshots[SnapshotEvent.CUT]:
            self.environment.tell(SnapshotEvent.CUT)
            self.owner.exclude_below(limits.SPAN_STEPS)
        elif plan.is_killed and not self.environment.snapshots[SnapshotEvent.KILLED]:
            self.environment.tell(SnapshotEvent.KILLED)
            users[0].stop(down_ms=self._chosen.randrange(100, 3_000))

    def _held_by(self, peer: PeerId) -> dict[Slot, set[bytes]]:
        """What an honest neighbour holds now; empty for one that may withhold some of it, or is down."""
        held = [host.life.holding for host in self.honest if host.name == peer and host.is_up]
        return dict(held[0].payloads) if held else {}

    def is_liar(self, replica: Replica) -> bool:
        """Whether the replica is of an author who lies in snapshots."""
        liars = self.watch.snapshots.liars
        return any(
            host.node is not None and host.node.replica is replica for host in self.hosts if host.signer.author in liars
        )

    # --- the end of the faults ----------------------------------------------------------------------------

    def _heal(self) -> None:
        self.environment.is_faulty = False
        for link in self._links:
            link.heal()
        for host in self.hosts:
            host.spare()
            host.boot()

    def _agree(self) -> bool:
        nodes = self.nodes()
        if not self._is_somebody_behind:
            return False
        if len(nodes) < len(self.honest) or not all(is_done(node) for node in nodes.values()):
            return False
        if not self.owner.is_heard() or any(node.replica.snapshot is not None for node in nodes.values()):
            return False
        return len({node.replica.ledger.root() for node in nodes.values()}) == 1

    def _describe(self) -> str:
        return "; ".join(
            f"{name}: next step {node.clock.next_step}, {node.replica.ledger.updates} updates, "
            f"root {node.replica.ledger.root().hex()[:8]}"
            for name, node in self.nodes().items()
        )


def is_done(node: Node) -> bool:
    """Whether the node has no step left to contribute: a relay never has, an excluded author none that counts."""
    is_excluded = node.replica.ledger.roster.excluded_from(node.author) is not None
    is_over = is_excluded and not node.own_steps.is_admitted_for(node.clock.next_step)
    return node.own_steps.is_finished or is_over or not node.own_steps._config.is_training


def run_seed(seed: int, log: Callable[[int, tuple[Part, ...]], None] | None = None) -> Result:
    """Run one seed from its beginning to its end; ``log`` is told of every event."""
    return run_scenario(draw(seed), log)


def run_scenario(scenario: Scenario, log: Callable[[int, tuple[Part, ...]], None] | None = None) -> Result:
    """Run one scenario; a violation, or whatever else escapes the core, is part of the result."""
    with changed_limits(scenario.limits):
        world = World(scenario)
        world.environment.log = log
        agreed_ms, violation = 0, ""
        lie = scenario.snapshot.lie if scenario.snapshot else None
        with counted_signatures(world.environment), remembered_cores(), lying(lie, world.is_liar):
            try:
                agreed_ms = world.run()
            except Exception as error:  # whatever escapes the core is a finding, and belongs to its seed
                violation = f"{type(error).__name__}: {error}"
        return _result(world, agreed_ms, violation)


def _result(world: World, agreed_ms: int, violation: str) -> Result:
    environment, scenario = world.environment, world.environment.scenario
    ledgers = [node.replica.ledger for node in world.nodes().values()]
    return Result(
        seed=scenario.seed,
        topology=scenario.topology,
        nodes=len(world.hosts),
        updates=max((ledger.updates for ledger in ledgers), default=0),
        partial=world.watch.partial,
        void_slots=max((ledger.void_slots for ledger in ledgers), default=0),
        agreed_ms=agreed_ms,
        events=environment.events,
        injected={fault.value: count for fault, count in sorted(environment.injected.items())},
        snapshots={event.value: count for event, count in sorted(environment.snapshots.items())},
        missing=tuple(fault.value for fault in world.missing()),
        trace=environment.trace_hash,
        violation=violation,
    )


@contextmanager
def changed_limits(values: dict[str, int]) -> Iterator[None]:
    """Other limits than the protocol's while this lasts. Bounds of the wire format stay as they are."""
    messages: list[Any] = [*CLASSES]
    for message in messages:
        _converter(message)  # they are read from the limits at the first use: let that be now
    assert values.keys() <= vars(limits).keys() | vars(timings).keys()
    with patch.dict(vars(limits), _of(limits, values)), patch.dict(vars(timings), _of(timings, values)):
        yield


def _of(module: ModuleType, values: dict[str, int]) -> dict[str, int]:
    return {name: value for name, value in values.items() if name in vars(module)}


@contextmanager
def remembered_cores() -> Iterator[None]:
    """Eight nodes sum the same update: its cores are a pure function of the seed, and are computed once a world."""
    names = ("canonical_coordinates", "rademacher_signs")
    with patch.dict(vars(coefficients), {name: _remembered(vars(coefficients)[name]) for name in names}):
        yield


def _remembered(compute: Cores) -> Cores:
    known: dict[tuple[int, bytes, int, int], tuple[Array, ...]] = {}

    def cores(seeds: Sequence[int], directions: Array, tensors: int, rank: int) -> tuple[Array, ...]:
        keys = [(seed, directions.tobytes(), tensors, rank) for seed in seeds]
        for seed, key in zip(seeds, keys, strict=True):
            if key not in known:
                known[key] = compute([seed], directions, tensors, rank)
        parts = zip(*(known[key] for key in keys), strict=True)
        return tuple(np.concatenate(part) for part in parts)  # a copy: the caller computes in place

    return cores


@contextmanager
def counted_signatures(environment: Environment) -> Iterator[None]:
    """Count verifications. Eight nodes verify the same record: the verdict is a pure function, and is remembered."""
    verify = vars(envelope)["is_signed"]

    def counted(author: bytes, message: bytes, signature: bytes) -> bool:
        environment.signatures += 1
        key = (author, message, signature)
        if key not in _VERDICTS:
            if len(_VERDICTS) > _CACHED:
                _VERDICTS.clear()
            _VERDICTS[key] = verify(author, message, signature)
        return _VERDICTS[key]

    with patch.object(envelope, "is_signed", counted):
        yield
