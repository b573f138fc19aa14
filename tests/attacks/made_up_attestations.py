"""Attestations of made-up authors, before a joiner knows who the authors are: they once crowded the true ones out."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from protocol.crypto.keys import Signer
from protocol.events import Event, MessageArrived, SendMessage, Ticked
from protocol.limits import ATTESTATIONS_PER_MESSAGE_MAX
from protocol.node.node import Node
from protocol.node.node_config import NodeConfig
from protocol.run.manifest import sign_manifest
from protocol.state.snapshot import AttestationCodec, encode_snapshot
from protocol.wire import Attestations, AttestationsRequest, PullRequest, SpansRequest
from sfnode.network.network import Network
from sfnode.network.network_config import NetworkConfig
from sfnode.network.sessions.file_server import ServedRun
from sfnode.node.event_inbox import open_inbox
from sfnode.storage.disk import HeldFile
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from tests.attacks.outcome import Outcome
from tests.attacks.visitor import visiting
from tests.netlab.worker import PacedWorker
from tests.support.daemons import JoinProcess, free_port
from tests.support.fake_worker import listening
from tests.support.ledgers import signer
from tests.support.manifests import OWNER
from tests.support.network_nodes import LOOPBACK
from tests.support.patience import within
from tests.support.running_nodes import Joins, address_in
from tests.support.snapshot_runs import AUTHORS, JOINER, RUN, STEP, attest, replica_of, true_snapshot

_MADE_UP: Final = 1_100  # 150 kB
_TICK_S: Final = 0.05
_LIMIT_S: Final = 20.0
_SIGNED = sign_manifest(RUN, OWNER)


def made_up_attestations(is_short: bool) -> Outcome:
    """A joiner hears of a snapshot, and of a thousand made-up authors before it is told who is admitted."""
    before, _ = trio.run(_join, 0)
    during, sent_bytes = trio.run(_join, _MADE_UP if is_short else 4 * _MADE_UP)
    return Outcome(
        before=f"the snapshot of {before} authors is used",
        during=f"the snapshot of {during} authors is used" if during else "no snapshot is used",
        after="the same",
        attacker=f"{sent_bytes / 1e3:.0f} kB",
        bound=f"the snapshot that {len(AUTHORS)} authors attest is used",
        is_held=during == before == len(AUTHORS),
    )


@dataclass
class Neighbour:
    """An honest node that holds everything. It takes its time over what would tell a joiner who the authors are."""

    network: Network
    inbox: trio.MemoryReceiveChannel[Event]
    node: Node
    has_told: trio.Event = field(default_factory=trio.Event)  # which snapshot is attested
    may_answer: trio.Event = field(default_factory=trio.Event)  # who the authors are
    may_serve: trio.Event = field(default_factory=trio.Event)  # their updates

    async def serve(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._tick)
            async for event in self.inbox:
                nursery.start_soon(self._handle, event)

    async def _handle(self, event: Event) -> None:
        message = event.message if isinstance(event, MessageArrived) else None
        if isinstance(message, SpansRequest):
            await self.may_answer.wait()
        if isinstance(message, PullRequest):
            await self.may_serve.wait()
        self._do(event)
        if isinstance(event, MessageArrived):
            self.network.conversation.handled(event.peer, event.message, seconds=0.0, news=0)
        if isinstance(message, AttestationsRequest):
            self.has_told.set()

    async def _tick(self) -> None:
        while True:
            self._do(Ticked())
            await trio.sleep(_TICK_S)

    def _do(self, event: Event) -> None:
        for effect in self.node.handle(event, int(1_000 * trio.current_time())):
            if isinstance(effect, SendMessage):
                self.network.sessions.send(effect.peer, effect.message)


def _neighbour(folder: Path) -> Neighbour:
    snapshot = folder / "snapshot.bin"
    snapshot.write_bytes(encode_snapshot(RUN, true_snapshot()))
    node = Node(RUN, signer(AUTHORS[0]), NodeConfig(is_training=False), replica_of())
    for each in attest(true_snapshot(), *AUTHORS):
        node.snapshots.attestations.add(each.data)
    inbox, unread = open_inbox()
    run = ServedRun(run_id=RUN.run_id, manifest_bytes=_SIGNED.encode(), find_file=lambda _: HeldFile(snapshot))
    config = NetworkConfig(listen=(LOOPBACK,), neighbours_fixed=True, local_discovery=False)
    network = Network(config=config, identity_seed=secrets.token_bytes(32), run=run, inbox=inbox)
    return Neighbour(network=network, inbox=unread, node=node)


async def _join(made_up: int) -> tuple[int, int]:
    """How many authors' snapshot the joiner used; 0: none. And the attacker's bytes."""
    with TemporaryDirectory() as name, Joins(Path(name)) as joins:
        folder = Path(name)
        worker = PacedWorker(path=folder / "worker.sock", scalars=RUN.method.scalars)
        async with listening(worker), trio.open_nursery() as nursery:
            neighbour = _neighbour(folder)
            (address, *_) = await nursery.start(neighbour.network.run)
            nursery.start_soon(neighbour.serve)
            port = free_port()
            joiner = _joiner(joins, port, str(address))
            await within(_LIMIT_S, neighbour.has_told.wait)
            sent_bytes = await _crowd(address_in(joiner.directory, port), made_up)
            neighbour.may_answer.set()
            authors = await _authors_used(joiner)
            neighbour.may_serve.set()
            nursery.cancel_scope.cancel()
    return authors, sent_bytes


def _joiner(joins: Joins, port: int, bootstrap: str) -> JoinProcess:
    folder = joins.folder
    KeyFile(folder / "joiner" / IDENTITY_FILE).store(b"author" + JOINER.to_bytes(26, "big"))
    run_file = folder / "test.run"
    run_file.write_bytes(_SIGNED.encode())
    given = ("--run", run_file, "--model", folder, "--data", "embedded:reviews")
    places = (
        "--worker-socket",
        folder / "worker.sock",
        "--listen",
        f"/ip4/127.0.0.1/tcp/{port}",
        "--bootstrap",
        bootstrap,
        "--neighbours-fixed",
    )
    return joins("joiner", *given, *places, "--snapshot", "always")


async def _crowd(address: str, made_up: int) -> int:
    """Tell the node at ``address`` of so many made-up authors; the bytes that this took."""
    codec = AttestationCodec(RUN)
    told = [codec.attest(Signer(secrets.token_bytes(32)), STEP, 1_000, bytes(32)).data for _ in range(made_up)]
    if not told:
        return 0
    async with visiting(address, RUN.run_id) as attacker:
        for start in range(0, made_up, ATTESTATIONS_PER_MESSAGE_MAX):
            part = tuple(told[start : start + ATTESTATIONS_PER_MESSAGE_MAX])
            await attacker.say(Attestations(attestations=part))
        await attacker.ping_for(0.5)  # until then all are taken in
        return attacker.sent_bytes


async def _authors_used(joiner: JoinProcess) -> int:
    try:
        event = await trio.to_thread.run_sync(partial(joiner.wait_for_event, "snapshot_used", _LIMIT_S / 4))
    except AssertionError:
        return 0
    return len(event["authors"])
