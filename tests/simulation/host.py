"""An honest machine: a disk, a worker, and while it is up a real node core, whose effects it carries out in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol.crypto.keys import Signer
from protocol.errors import Reject, StorageDamagedError
from protocol.events import (
    DropPeer,
    Effect,
    EstimateFinished,
    EstimateLost,
    EstimateSkipped,
    Event,
    FetchSnapshot,
    Halt,
    MessageArrived,
    PeerJoined,
    PeerLeft,
    ReserveStep,
    SendMessage,
    StartEstimate,
    StoreRecords,
    StoreSnapshot,
    StoreStatements,
    Ticked,
    WorkerReady,
)
from protocol.node.node import Node
from protocol.node.node_config import NodeConfig, SnapshotUse
from protocol.state.replica import Replica
from protocol.timings import FLUSH_INTERVAL_MS
from protocol.wire import PeerId, Statements, decode_untrusted, encode
from sfnode.node.event_inbox import joined
from sfnode.storage.stored_records import replay, replay_statements
from tests.simulation.crash_points import CRASH_POINTS
from tests.simulation.disk import Disk
from tests.simulation.environment import Environment
from tests.simulation.holding import Handled, Life, require, slot_of
from tests.simulation.scenario import SNAPSHOT_AUTHORS_MIN, Fault, stream
from tests.simulation.snapshot_files import SnapshotFiles
from tests.simulation.watch import Watch
from tests.simulation.worker import measured
from tests.support.ledgers import MemoryArchive

_SKIPPED, _LOST = 0.06, 0.06  # chances of one estimate
_IN_MEMORY = (1, 5, 40, None)  # records that a ledger keeps beside its disk; None: all of them, and never reads it
_BUSY_MS = (0, 0, 0, 60, 250)  # how late a machine may handle what has happened; half of the time it handles it at once
_EVENTS_TOGETHER = 32  # as in the daemon


@dataclass(frozen=True, slots=True, kw_only=True)
class HostConfig:
    """What one machine is like.

    Attributes:
        is_training: a relay does not train.
        expects_peers: as of :class:`NodeConfig`, at the first start; later starts always do.
        estimate_ms: how long its worker takes for all directions, at least; at most double.
    """

    is_training: bool = True
    expects_peers: bool = True
    estimate_ms: int = 100


class Host:
    """A machine whose processes come and go; only its disk and its key stay."""

    is_hostile = False

    def __init__(self, environment: Environment, watch: Watch, name: str, config: HostConfig) -> None:
        self.name = PeerId(name)
        self.signer = Signer(name.encode().ljust(32, b"."))
        self.node: Node | None = None
        self.life = Life()
        self.peers: set[PeerId] = set()
        self.armed: Fault | None = None  # what happens at its next chance
        self._environment = environment
        self._watch = watch
        self._config = config
        self._manifest = environment.scenario.manifest
        self._random = stream(environment.scenario.seed, f"host {name}")
        self.starts = 0  # of a process, so far
        self._is_paused = False
        self._inbox: list[Event] = []  # what came and was not handled yet
        self._tick_due_ms: int | None = None  # of a tick that was not handled yet
        self._is_turn_due = False
        self._business = stream(environment.scenario.seed, f"business of {name}")
        self._busy_ms = self._business.choice(_BUSY_MS)
        self._crash_point = self._random.choice(sorted(CRASH_POINTS))
        self._disk: Disk | None = None
        self._archive = MemoryArchive()  # what the process that is up can read of its disk
        self._files = SnapshotFiles(environment, name)
        self._snapshot_use = SnapshotUse.AUTO if environment.scenario.snapshot else SnapshotUse.NEVER
        self._in_memory_max = stream(environment.scenario.seed, f"memory of {name}").choice(_IN_MEMORY)

    @property
    def is_up(self) -> bool:
        """Whether a process runs."""
        return self.node is not None

    @property
    def disk(self) -> Disk:
        """What outlives a process."""
        if self._disk is None:
            self._disk = Disk(Replica(self._manifest).ledger.codec.record_bytes)
        return self._disk

    # --- processes ----------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start a process from the disk alone."""
        if self.node is not None:
            return
        self.starts += 1
        self.life = Life()
        replica = self._replay()
        config = NodeConfig(
            is_training=self._config.is_training,
            expects_peers=self._config.expects_peers or self.starts > 1,
            reserved_step=self.disk.reserved_step,
            first_request=self._random.getrandbits(32),
            snapshot=self._snapshot_use,
            snapshot_authors_min=SNAPSHOT_AUTHORS_MIN,
        )
        self.node = Node(self._manifest, self.signer, config, replica)
        self.life.reserved_step = self.disk.reserved_step
        self._environment.trace("boot", self.name)
        self._after(self._random.randrange(300), WorkerReady())
        self._tick_after(self._random.randrange(FLUSH_INTERVAL_MS))

    def stop(self, *, down_ms: int) -> None:
        """The process dies; it is started again after a while."""
        if self.node is None:
            return
        self._environment.trace("stop", self.name)
        self.node = None
        self._is_paused, self._is_turn_due, self._inbox, self._tick_due_ms = False, False, [], None
        for peer in sorted(self.peers):
            self._environment.link(self.name, peer).down(dying=self.name)
        self.peers.clear()
        self._environment.schedule(down_ms, self.boot)

    def pause(self, duration_ms: int) -> None:
        """The laptop sleeps: nothing happens until it wakes, then everything at once."""
        self._is_paused = True
        self._environment.schedule(duration_ms, self.wake)

    def wake(self) -> None:
        """Everything that came meanwhile, in its order."""
        self._is_paused = False
        self._take_turn()

    def lose_disk(self, *, down_ms: int) -> None:
        """Nothing but the key is left."""
        self.disk.wipe()
        self._files.clear()
        self.forget()
        self.stop(down_ms=down_ms)

    def spare(self) -> None:
        """The faults are over."""
        self.armed = None
        self.wake()

    def forget(self) -> None:
        """The disk lost what was durable: this author may have to sign a round twice (SPEC 12)."""
        self._watch.forgetful.add(bytes(self.signer.author))

    def _replay(self) -> Replica:
        """The replica that the disk gives; a damaged one is moved away, as the daemon tells its operator to do."""
        verified = self._environment.signatures
        try:
            records = self.disk.recover()
            replica = self._empty_replica(records)
            replay_statements(replica, self.disk.statements, Path("simulated.sqlite3"))
            replay(replica, enumerate(records), Path("simulated.sqlite3"))
        except StorageDamagedError:
            self.disk.wipe()
            records, replica = [], self._empty_replica([])
        if self.disk.has_forgotten:
            self.forget()
        for statement in replica.ledger.roster.statements():
            self.life.holding.state(statement)
        for record in records:
            if not self.life.holding.is_excluded(slot_of(record)):
                self.life.holding.add(record)
        self.life.verified = self.life.loaded = self._environment.signatures - verified
        return replica

    def _empty_replica(self, stored: list[bytes]) -> Replica:
        self._archive = MemoryArchive(stored)
        if self._in_memory_max is None:
            return Replica(self._manifest)
        return Replica(self._manifest, self._archive, in_memory_max=self._in_memory_max)

    def _tick_after(self, delay_ms: int) -> None:
        life = self.life

        def tick() -> None:
            if self.life is life and self.node is not None:
                self._tick_due_ms = self._environment.now_ms
                self._come_to_it()

        self._environment.schedule(delay_ms, tick)

    # --- events -------------------------------------------------------------------------------------------

    def receive(self, source: PeerId, data: bytes) -> None:
        """A frame from a neighbour: decoded as by the network layer, which cuts off a peer that sends bad bytes."""
        try:
            message = decode_untrusted(data)
        except Reject as reject:
            self._cut_off(source, str(reject))
            return
        self.handle(MessageArrived(peer=source, message=message))

    def peer_joined(self, peer: PeerId) -> None:
        """A session is open."""
        self.peers.add(peer)
        self.handle(PeerJoined(peer=peer))

    def peer_left(self, peer: PeerId, delay_ms: int) -> None:
        """A session is over; the process hears of it after a while."""
        if peer in self.peers:
            self.peers.discard(peer)
            self._after(delay_ms, PeerLeft(peer=peer))

    def serve(self, sha256: bytes) -> bytes | None:
        """The snapshot with this hash, as it is sent to a peer that asks for it; None where there is none."""
        return self._files.serve(sha256) if self.is_up else None

    def handle(self, event: Event) -> None:
        """Let the core handle the event, now or when the machine comes to it, and do what it asks for."""
        if self.node is None:
            return
        self._inbox.append(event)
        self._come_to_it()

    def _come_to_it(self) -> None:
        """Now, unless the machine is busy; what comes until then is taken together."""
        if self._is_turn_due:
            return
        if not (self._busy_ms and self._business.random() < 0.5):
            self._take_turn()
            return
        self._is_turn_due = True
        life = self.life

        def turn() -> None:
            if self.life is life:
                self._is_turn_due = False
                self._take_turn()

        self._environment.schedule(self._business.randrange(1, self._busy_ms), turn)

    def _take_turn(self) -> None:
        """All that has come, in the daemon's way: some events at once, statements first, the tick after them."""
        life = self.life
        while not self._is_paused and self.life is life and (self._inbox or self._tick_due_ms is not None):
            is_cut = [isinstance(getattr(each, "message", None), Statements) for each in self._inbox]
            count = min(_EVENTS_TOGETHER, is_cut.index(True, 1) if any(is_cut[1:]) else _EVENTS_TOGETHER)
            events, self._inbox = self._inbox[:count], self._inbox[count:]
            if self._tick_due_ms is not None:
                events.append(Ticked(late_ms=self._environment.now_ms - self._tick_due_ms))
                self._tick_due_ms = None
                self._tick_after(FLUSH_INTERVAL_MS)
            self._handle_together(events)

    def _handle_together(self, events: Sequence[Event]) -> None:
        """What follows from all of them is carried out when the last one was handled."""
        assert self.node is not None
        effects: list[Effect] = []
        for number, event in enumerate(events, start=1):
            self._environment.trace(type(event).__name__, self.name)
            verified = self._environment.signatures
            is_last = number == len(events)
            caused = self.node.handle(event, self._environment.now_ms, is_last=is_last)
            self.life.verified += self._environment.signatures - verified
            now_ms = self._environment.now_ms
            self._watch.see(self.life, self.node, Handled(event=event, effects=caused, now_ms=now_ms, is_last=is_last))
            effects += caused
        self._carry_out(joined(effects))

    def _after(self, delay_ms: int, event: Event) -> None:
        """Handle the event later, unless the process has died until then."""
        life = self.life

        def happen() -> None:
            if self.life is life:
                self.handle(event)

        self._environment.schedule(delay_ms, happen)

    # --- effects ------------------------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect]) -> None:
        life = self.life
        for effect in effects:
            if self._is_struck(effect, is_before=True):
                return
            self._do(effect)
            if self.life is not life or self.node is None or self._is_struck(effect, is_before=False):
                return

    def _do(self, effect: Effect) -> None:
        match effect:
            case StoreRecords():
                self._store(effect)
            case StoreStatements():
                self.disk.state(effect.statements)
            case ReserveStep():
                self.disk.reserve(effect.step)
            case StartEstimate():
                self._estimate(effect)
            case SendMessage():
                self.send(effect)
            case DropPeer():
                self._cut_off(effect.peer, effect.reason)
            case StoreSnapshot() | FetchSnapshot():
                self._files.carry_out(self, effect)
            case Halt():
                self._snapshot_use = SnapshotUse.NEVER  # as the operator is told
                self.stop(down_ms=self._random.randrange(300, 5_000))

    def _store(self, effect: StoreRecords) -> None:
        self.disk.store(effect.records, is_durable=effect.is_own)
        self._archive.store(effect.records)
        if effect.is_own:
            self._environment.trace("own", *effect.records)
            for record in effect.records:
                self._watch.see_own(record)

    def send(self, effect: SendMessage) -> None:
        """Send what the core asks for."""
        if self.node is not None:
            self._watch.promises.see_send(self.signer.author, self.node, effect.message)
        self._environment.link(self.name, effect.peer).carry(self.name, encode(effect.message))

    def _cut_off(self, peer: PeerId, reason: str) -> None:
        """A neighbour that sent what no honest node can send."""
        require(self._environment.hosts[peer].is_hostile, f"an honest node was cut off: {reason}")
        self._environment.link(self.name, peer).ban()

    def _estimate(self, effect: StartEstimate) -> None:
        assert self.node is not None
        self._watch.promises.see_estimate(self.signer.author, effect.step)
        duration_ms = self._random.randint(self._config.estimate_ms, 2 * self._config.estimate_ms)
        duration_ms = duration_ms * effect.directions // self._manifest.method.directions
        if self._happens(Fault.WORKER_LOST, _LOST):
            self._after(duration_ms, EstimateLost(step=effect.step))
            self._after(duration_ms + 700, WorkerReady())
        elif self._happens(Fault.WORKER_SKIP, _SKIPPED):
            self._after(duration_ms, EstimateSkipped(step=effect.step))
        else:
            self._after(duration_ms, self._measure(effect, self.node))

    def _measure(self, effect: StartEstimate, node: Node) -> EstimateFinished | EstimateSkipped:
        """Scalars that follow from (seed, state): an estimate on a wrong state shows as another history."""
        state = int.from_bytes(node.replica.shown().digest()[:8], "big")
        return measured(self._manifest, effect.step, effect.seed ^ state, effect.directions)

    # --- faults -------------------------------------------------------------------------------------------

    def _happens(self, fault: Fault, chance: float) -> bool:
        environment = self._environment
        if not environment.is_faulty or fault not in environment.scenario.faults or self._random.random() >= chance:
            return False
        environment.count(fault)
        return True

    def _is_struck(self, effect: Effect, *, is_before: bool) -> bool:
        """Whether the armed fault strikes here: the process is dead then."""
        fault = self.armed
        is_write = isinstance(effect, StoreRecords | ReserveStep)
        match fault:
            case Fault.CRASH_POINT:
                is_point, dies_before = CRASH_POINTS[self._crash_point]
                strikes = is_point(effect) and is_before == dies_before
            case Fault.DISK_FULL:
                strikes = is_write and is_before  # the store raises, the daemon ends, and nothing is lost
            case Fault.LOST_TAIL | Fault.TORN_WRITE:
                strikes = is_write and not is_before and self.disk.unsynced > 0
            case _:
                return False
        if strikes:
            self._strike(fault)
        return strikes

    def _strike(self, fault: Fault) -> None:
        self.armed = None
        self._environment.count(fault)
        if fault in (Fault.LOST_TAIL, Fault.TORN_WRITE):
            self.disk.cut_power(self._random, is_torn=fault is Fault.TORN_WRITE)
        self._crash_point = self._random.choice(sorted(CRASH_POINTS))
        self.stop(down_ms=self._random.randrange(300, 5_000))
