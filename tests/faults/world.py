"""Three real daemons in this process, which train and let others join while faults strike them.

Sockets, disks and the wire are real; the worker answers without torch, and time runs RATE times as fast.
"""

from __future__ import annotations

import hashlib
import io
import random
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from protocol.crypto.keys import Signer
from protocol.limits import ENERGY_MAX
from protocol.run.manifest import Manifest, checked, sign_manifest
from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.addresses import parse_address, parse_bootstrap, peer_of_author
from sfnode.network.policy.reputation import Reputation
from sfnode.node.daemon import Daemon
from sfnode.node.daemon_config import DaemonConfig
from sfnode.node.running_node import RunningNode
from sfnode.reporter import Reporter
from sfnode.run import RunAddress, RunSource, find_basis
from sfnode.storage.data_directory import DataDirectory
from sfnode.unexpected_errors import ENDINGS, Slips, split
from sfnode.worker_protocol.training_config import TrainingConfig
from tests.faults.errors import first_leaf, follows_from, let_go
from tests.faults.points import NODE, STALL_S, Fault, Mode, Points
from tests.faults.tasks import waits_of
from tests.netlab.worker import PacedWorker
from tests.support.daemons import free_ports
from tests.support.dense_runs import made_up_basis
from tests.support.fake_worker import listening
from tests.support.manifests import OWNER, manifest_data

NODES: Final = 3
RATE: Final = 5.0  # virtual seconds in one: with more, a busy machine has no time for a handshake
PACE_S: Final = 0.2  # one estimate
STEPS: Final = 16_384
STEPS_LEFT: Final = 1_024  # with fewer to go, a new world is due
RECOVERY_S: Final = 150.0  # virtual: pings miss a dead connection for 120 s, and a life begins anew after a pause
JOIN_S: Final = 20.0  # until somebody who joins has asked all nodes for the basis
REACH_S: Final = 1.5  # for a plan to strike, undisturbed; then with a cut, then with a stop
BOOK_MAX: Final = 6  # peers in an address book: full of peers that nobody can reach, as that of a large run is
# A basis of 20 parts: whoever takes them all from one slow node does not have it within RECOVERY_S.
WIDE: Final = {"name": "c.weight", "kind": "matrix", "rows": 24, "cols": 163_840}
STEPS_AFTER: Final = 2


class FoundError(Exception):
    """What must not happen has happened: the text says what."""


@dataclass
class Seat:
    """One node's place: its folder, key and port stay while daemons come and go on it."""

    number: int
    folder: Path
    port: int
    daemon: Daemon | None = None
    scope: trio.CancelScope | None = None
    is_to_stop: bool = False
    ended: list[BaseException | None] = field(default_factory=list)
    last_end: BaseException | None = None

    @property
    def seed(self) -> bytes:
        """Its secret."""
        return hashlib.sha256(b"faults %d" % self.number).digest()

    @property
    def address(self) -> str:
        """Where it is dialled."""
        return f"/ip4/127.0.0.1/tcp/{self.port}/p2p/{peer_of_author(Signer(self.seed).author)}"

    @property
    def life(self) -> RunningNode | None:
        """Its present life."""
        return None if self.daemon is None else self.daemon.running

    @property
    def own_step(self) -> int:
        """The highest step of its own that its ledger holds; -1: none, or it does not live now."""
        life = self.life
        return -1 if life is None else life.node.replica.ledger.highest_step(life.node.author)


class World:
    """Open it with `open_world`."""

    def __init__(self, folder: Path, points: Points, worker: PacedWorker, nursery: trio.Nursery) -> None:
        self.points = points
        self.worker = worker
        self.second_slips: list[str] = []
        self._nursery = nursery
        self._folder = folder
        self._basis = made_up_basis(_manifest("0" * 64))
        self.manifest = _manifest(hashlib.sha256(self._basis).hexdigest())
        self.signed = sign_manifest(self.manifest, OWNER)
        self.seats = [Seat(number, folder / f"node{number}", port) for number, port in enumerate(free_ports(NODES))]
        self._joiners = 0
        self._faults: list[Fault] = []  # that have struck or were armed; a slip may come late
        points.stop = self._stop

    @property
    def is_worn_out(self) -> bool:
        """Whether the run nears its end: a new world is due."""
        return max(seat.own_step for seat in self.seats) > STEPS - STEPS_LEFT

    @property
    def injected(self) -> list[Exception]:
        """The exceptions of all plans of this world."""
        return [fault.injected for fault in self._faults if fault.injected is not None]

    async def start(self) -> None:
        """All nodes train."""
        for seat in self.seats:
            seat.folder.mkdir(mode=0o700)
            DataDirectory(seat.folder).basis.store(self.manifest, self._basis, origin="test")
            self._begin(seat)
        await self._until(lambda: all(seat.own_step >= 2 for seat in self.seats), "the nodes begin to train")

    def _begin(self, seat: Seat) -> None:
        others = tuple(parse_address(other.address) for other in self.seats if other.number < seat.number)
        listen = (parse_address(f"/ip4/127.0.0.1/tcp/{seat.port}"),)
        network = NetworkConfig(listen=listen, bootstrap=others, local_discovery=False, outbound_target=2)
        training = TrainingConfig(model="none", data=self._folder, worker_socket=self.worker.path)
        config = DaemonConfig(
            signed=self.signed,
            data_dir=DataDirectory(seat.folder),
            identity_seed=seat.seed,
            network=network,
            training=training,
            eval_every_steps=16,
        )
        seat.scope, seat.is_to_stop = trio.CancelScope(), False
        seat.daemon = Daemon(config, Reporter(is_json=True, stream=io.StringIO()))
        self._nursery.start_soon(self._run, seat)

    async def _run(self, seat: Seat) -> None:
        NODE.set(seat.number)
        assert seat.daemon is not None and seat.scope is not None
        end: BaseException | None = None
        try:
            with seat.scope:
                await seat.daemon.run()
        except Exception as error:
            end = error
        NODE.set(None)
        seat.daemon = None
        for each in (end, *self.injected):
            let_go(each)
        seat.ended.append(end)
        seat.last_end = end

    def _stop(self, number: int) -> None:
        seat = self.seats[number]
        seat.is_to_stop = True
        if seat.scope is not None:
            seat.scope.cancel()

    # --- one plan

    async def strike(self, faults: Sequence[Fault]) -> None:
        """Arm the faults, wait until they have struck, and until all is well again.

        Nobody may come to the point of one: then it has no victim afterwards. FoundError when a node ends that should
        not, or does not go on.
        """
        self._forgive()
        before = len(self.second_slips)
        self.points.begin_plan()
        is_slow = any(fault.mode is Mode.SLOW for fault in faults)
        joined = self.join() if is_slow else None  # so that there is something to be slow with
        self._faults += faults
        self.points.armed = {fault.site: fault for fault in faults}
        await self._wait_for(faults, JOIN_S if is_slow else REACH_S)
        self.points.armed = {}
        struck = [fault for fault in faults if fault.victim is not None]
        if not struck:
            return
        steps = [seat.own_step for seat in self.seats]
        limit_s = RECOVERY_S + 2 * STALL_S * sum(fault.mode is Mode.STALL for fault in struck)
        with trio.move_on_after(limit_s) as scope:
            while not self._is_recovered(steps, struck) or (joined is not None and not joined.is_set()):
                await trio.sleep(0.1)
        if scope.cancelled_caught:
            who = "a node does not go on" if joined is None or joined.is_set() else "who joins does not get the basis"
            raise FoundError(f"{who}: {self._describe(steps)}")
        if len(self.second_slips) > before:
            raise FoundError(f"another slip follows: {self.second_slips[-1]}")

    async def _wait_for(self, faults: Sequence[Fault], reach_s: float) -> None:
        """Wait until all have struck; on the way, cut the connections of a node, then stop another."""
        for disturb in (None, self._cut, self._stop):
            if disturb is not None:
                disturb(faults[0].chance.randrange(NODES))
            with trio.move_on_after(reach_s):
                while self.points.armed:
                    await trio.sleep(0.05)
                    self._begin_again(faults)
            if not self.points.armed:
                return

    def _cut(self, number: int) -> None:
        life = self.seats[number].life
        for session in () if life is None else life.network.sessions.all():
            session.channel.link.abort()

    def _begin_again(self, faults: Sequence[Fault] = ()) -> None:
        """Start the nodes anew that have ended, if they may have. FoundError."""
        for seat in self.seats:
            for end in seat.ended:
                self._judge(seat, end, faults)
                self._begin(seat)
            seat.ended.clear()

    def _is_recovered(self, steps: list[int], faults: Sequence[Fault]) -> bool:
        self._begin_again(faults)
        voids = [seat.number for seat in self.seats if seat.life and seat.life.node.replica.ledger.void_slots]
        if voids:
            raise FoundError(f"nodes {voids} hold void slots: an honest node has signed twice")
        slow = {fault.victim for fault in faults if fault.mode is Mode.SLOW}
        others = [seat for seat in self.seats if seat.number not in slow]
        return all(seat.own_step >= steps[seat.number] + STEPS_AFTER for seat in others)

    def _judge(self, seat: Seat, end: BaseException | None, faults: Sequence[Fault]) -> None:
        """Whether a node may have ended so."""
        if seat.is_to_stop:
            if end is not None:
                raise FoundError(f"node {seat.number} was stopped and ended with {end!r}")
            return
        is_ending = end is not None and split(end, ENDINGS)[0] is None
        is_disk = any(fault.kind.is_disk and seat.number == fault.victim for fault in faults)
        is_port = "cannot listen on" in str(first_leaf(end))  # what the library makes of a failed bind, in words
        if not (is_ending and (is_disk or is_port)):
            raise FoundError(f"node {seat.number} ended: {end!r}")

    def _forgive(self) -> None:
        """A day is over: nobody holds anything against anybody, and all may be dialled."""
        for seat in self.seats:
            life = seat.life
            if life is not None:
                life.network.sessions._reputation = Reputation()
                book = life.network.book
                for entry in book._entries.values():
                    entry.due_s = min(entry.due_s, trio.current_time() + 1.0)
                self._crowd(life)

    def _crowd(self, life: RunningNode) -> None:
        """Somebody tells the node of peers that nobody can reach, until its address book is full."""
        for _ in range(2):
            liar = peer_of_author(Signer(random.randbytes(32)).author)
            life.network.book.learn(liar, (parse_address("/ip4/127.0.0.1/tcp/9"),), source=liar)

    # --- between plans

    def join(self) -> trio.Event:
        """Let somebody join, who knows all nodes and fetches the basis, even if one of them is slow; set: it is there.

        A fault strikes only nodes: what happens to the joiner comes from theirs.
        """
        self._joiners += 1
        joined = trio.Event()
        self._nursery.start_soon(self._join, self._folder / f"joiner{self._joiners}", joined)
        return joined

    async def _join(self, folder: Path, joined: trio.Event) -> None:
        folder.mkdir(mode=0o700)
        nodes = tuple(parse_bootstrap(seat.address) for seat in self.seats)
        source = RunSource(bootstrap=RunAddress(run_id=self.manifest.run_id, nodes=nodes))
        reporter = Reporter(is_json=True, stream=io.StringIO())
        path = await find_basis(self.manifest, source, DataDirectory(folder), reporter)
        assert path is not None and path.read_bytes() == self._basis
        joined.set()

    async def check_agreement(self) -> None:
        """Let the nodes rest: all hold the same set and state, and each disk gives that state again. FoundError."""
        self._forgive()  # the last plan may have left one of them discouraged
        self.worker.running = trio.Event()
        await self._until(self._is_agreed, "the nodes agree while nobody trains")
        life = self.seats[0].life
        assert life is not None
        root, digest = life.node.replica.ledger.root(), life.node.replica.state_digest()
        for seat in self.seats:
            with DataDirectory(seat.folder).replayed(self.manifest) as replica:
                if (replica.ledger.root(), replica.state_digest()) != (root, digest):
                    raise FoundError(f"the disk of node {seat.number} gives another state than its memory")
        self.worker.running.set()

    def _is_agreed(self) -> bool:
        lives = [seat.life for seat in self.seats]
        replicas = [life.node.replica for life in lives if life is not None]
        if len(replicas) < NODES or len({replica.ledger.root() for replica in replicas}) > 1:
            return False
        if len({replica.state_digest() for replica in replicas}) > 1:
            raise FoundError("equal sets give different states")
        return True

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        with trio.move_on_after(RECOVERY_S) as scope:
            while not condition():
                self._begin_again()
                await trio.sleep(0.1)
        if scope.cancelled_caught:
            raise FoundError(f"not within {RECOVERY_S:.0f} s: {what}: {self._describe([])}")

    def _describe(self, steps: list[int]) -> str:
        told = []
        for seat in self.seats:
            life = seat.life
            if life is None:
                told.append(f"node {seat.number} has no life; its last ended with {first_leaf(seat.last_end)!r}")
                continue
            node, before = life.node, steps[seat.number] if steps else "?"
            trouble = life.trainer.statistics().trouble if life.trainer else ""
            has_gone_on = seat.own_step > (steps[seat.number] if steps else -1)
            waits = "" if has_gone_on else f"; it waits in {waits_of(seat.number)}"
            told.append(
                f"node {seat.number} at step {seat.own_step} (before: {before}; next {node.clock.next_step}), "
                f"{node.sync.peers} peers, live {node.sync.is_live}, estimating {node.own_steps.estimating}, "
                f"slips {life.slips.state.count} ({life.slips.state.last}) {trouble}{waits}"
            )
        return "; ".join(told)


def _manifest(basis_sha256: str) -> Manifest:
    data = manifest_data(core="dense", basis_sha256=basis_sha256, energy_max=ENERGY_MAX, steps=STEPS)
    data["tensors"] = [*data["tensors"], WIDE]
    return checked({**data, "schedule": {"kind": "constant", "weight_start": 1, "weight_end": 1}})


@asynccontextmanager
async def open_world(folder: Path, points: Points) -> AsyncIterator[World]:
    """Three nodes at work while the body runs."""
    worker = PacedWorker(path=folder / "worker.sock", pace_s=PACE_S)
    worker.running.set()
    async with listening(worker), trio.open_nursery() as nursery:
        world = World(folder, points, worker, nursery)
        worker.scalars, worker.rows_max = world.manifest.numbers, world.manifest.method.directions
        with _second_slips_heard(world), _small_book():
            await world.start()
            try:
                yield world
            finally:
                nursery.cancel_scope.cancel()


@contextmanager
def _second_slips_heard(world: World) -> Iterator[None]:
    """A slip whose error is not the injected one, nor follows from it, is a finding of its own."""
    usual = Slips.note

    def note(self: Slips, where: str, error: Exception, **fields: str) -> None:
        usual(self, where, error, **fields)
        if not any(follows_from(error, injected) for injected in world.injected):
            world.second_slips.append(f"{self.state.last}\n{''.join(traceback.format_exception(error))}")

    setattr(Slips, "note", note)  # noqa: B010 - mypy: a method is no variable
    try:
        yield
    finally:
        setattr(Slips, "note", usual)  # noqa: B010


@contextmanager
def _small_book() -> Iterator[None]:
    usual = bounds.KNOWN_PEERS_MAX
    vars(bounds)["KNOWN_PEERS_MAX"] = BOOK_MAX
    try:
        yield
    finally:
        vars(bounds)["KNOWN_PEERS_MAX"] = usual
