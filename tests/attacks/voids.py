"""Second payloads for old slots: each once threw away what was hashed of a thousand updates, to be read from the disk.

Three nodes contribute to a long ledger, at a worker's steady pace. Authors of old sign again what they have signed, in
slots drawn from all of it, and send a head behind every few of these, so that the nodes compute their roots.
"""

from __future__ import annotations

import os
import random
import secrets
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from benchmarks.sample_runs import OWNER, Shape, manifest_of, scalars_of, sealed_records, signer, tiny_tensors
from protocol.ledger.envelope import EnvelopeCodec
from protocol.limits import SPAN_STEPS
from protocol.run.manifest import SignedManifest, sign_manifest
from protocol.wire import Head, Ping, Pong, Records
from sfnode.network.network_config import Timings
from sfnode.network.policy.addresses import parse_address
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.handshake import exchange_hello, own_hello
from sfnode.network.transport.host import Host
from sfnode.network.transport.link import Link
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from sfnode.worker_protocol.messages import EstimateRequest, Message, Reply
from tests.attacks.cheap_keys import slowness
from tests.attacks.outcome import Outcome
from tests.attacks.visitor import cpu_s, pid_of
from tests.netlab.worker import PacedWorker
from tests.support.daemons import JoinProcess, free_port
from tests.support.fake_worker import listening
from tests.support.patience import Stopwatch, waits_of
from tests.support.running_nodes import Joins, address_in, until_all

_NODES: Final = 3
_PACE_S: Final = 0.1
_AUTHORS, _SPANS = 4, 6  # of the ledger: 24,576 updates, two thirds of which are not in memory
_AT_ONCE, _EVERY_S = 5, 0.025
_BURSTS: Final = {False: 800, True: 160}  # long and short
_CALM_S: Final = {False: 20.0, True: 4.0}
# A tenth may be lost. Seconds show no less than a half; without the cure a third is left.
_KEPT_MIN: Final = {False: 0.9, True: 0.5}
_CPU_MS_MAX: Final = 1.0  # 0.2 to 0.3 were measured, and 3 without the cure: more than two processors had to give


@dataclass(slots=True)
class _Worker(PacedWorker):
    """Counts the steps that it has measured, for whichever node."""

    steps: int = 0

    async def answer(self, request: Message) -> Reply | bytes:
        """As any paced worker."""
        reply = await PacedWorker.answer(self, request)
        self.steps += isinstance(request, EstimateRequest)
        return reply


def voids(is_short: bool) -> Outcome:
    """Authors sign a second payload for 200 old slots a second, and tell all nodes, with a head behind every five."""
    shape = Shape(authors=_AUTHORS, steps=_SPANS * SPAN_STEPS)
    manifest = manifest_of(Shape(authors=_AUTHORS, steps=2 * shape.steps), tiny_tensors())
    chance = random.Random(0)
    slots = [(author, step) for step in range(shape.steps) for author in range(_AUTHORS)]
    chosen = chance.sample(slots, _AT_ONCE * _BURSTS[is_short])
    codec = EnvelopeCodec(manifest)
    second = [codec.seal(signer(author), step, scalars_of(manifest, chance)).record for author, step in chosen]
    with tempfile.TemporaryDirectory() as name, Joins(Path(name)) as joins:
        signed = sign_manifest(manifest, OWNER)
        held = list(sealed_records(manifest, shape))
        found = trio.run(_attack, joins, signed, held, second, _CALM_S[is_short])
    kept, cpu_ms_max = _KEPT_MIN[is_short], _CPU_MS_MAX * slowness()
    return Outcome(
        before=f"{found.before:.1f} steps/s",
        during=f"{found.during:.1f} steps/s, {found.cpu_ms:.2f} ms of computing for each slot",
        after=f"{found.after:.1f} steps/s",
        attacker=f"{found.sent_bytes:,} bytes, {len(second):,} slots",
        bound=f"{100 * kept:.0f} % of the steps, {cpu_ms_max:.1f} ms of computing for each slot",
        is_held=0 < kept * found.before <= min(found.during, found.after) and found.cpu_ms <= cpu_ms_max,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """Steps a second of all nodes; what one of them computed for each slot, beside its own work; what was sent."""

    before: float
    during: float
    after: float
    cpu_ms: float
    sent_bytes: int


async def _attack(
    joins: Joins, signed: SignedManifest, held: Sequence[bytes], second: Sequence[bytes], calm_s: float
) -> _Found:
    traffic = Traffic()
    host = Host(identity_seed=secrets.token_bytes(32), on_inbound=_hang_up)
    worker = _Worker(path=joins.folder / "worker.sock", scalars=signed.manifest.method.scalars, pace_s=_PACE_S)
    worker.running.set()
    async with listening(worker), host.running(()), trio.open_nursery() as nursery:
        nodes, addresses = _started(joins, signed, held, worker.path)
        await until_all(nodes, lambda status: status.get("own_updates", 0) > 3, "all nodes contribute")
        channels = [Channel(await host.dial(parse_address(each)), Timings(), traffic) for each in addresses]
        for channel in channels:
            hello = own_hello(run_id=signed.manifest.run_id, agent="sfnode", listen=(), head_step=0)
            await exchange_hello(channel, hello)
            nursery.start_soon(_answer_pings, channel)
        spent_s = [_cpu_s(nodes)]
        before = await _pace(worker, nodes, calm_s)
        spent_s.append(_cpu_s(nodes))
        bytes_before, started_s = traffic.bytes_out, trio.current_time()
        for channel in channels:
            nursery.start_soon(_send, channel, second)
        during = await _pace(worker, nodes, len(second) / _AT_ONCE * _EVERY_S)
        after = await _pace(worker, nodes, calm_s)
        await until_all(nodes, lambda status: status.get("void_slots") == len(second), "all slots are void")
        spent_s.append(_cpu_s(nodes))
        calm = (spent_s[1] - spent_s[0]) / calm_s
        more_s = spent_s[2] - spent_s[1] - calm * (trio.current_time() - started_s)
        nursery.cancel_scope.cancel()
    return _Found(
        before=before,
        during=during,
        after=after,
        cpu_ms=1e3 * more_s / len(nodes) / len(second),
        sent_bytes=traffic.bytes_out - bytes_before,
    )


def _cpu_s(nodes: Sequence[JoinProcess]) -> float:
    return sum(cpu_s(pid_of(node)) for node in nodes)


def _started(
    joins: Joins, signed: SignedManifest, held: Sequence[bytes], worker: Path
) -> tuple[list[JoinProcess], list[str]]:
    """Three neighbours whose disks hold the ledger, and their addresses."""
    run = joins.folder / "voids.run"
    run.write_bytes(signed.encode())
    nodes: list[JoinProcess] = []
    known: list[str] = []
    for number in range(_NODES):
        name, port = f"node{number}", free_port()
        store = Store(DataDirectory(joins.folder / name), signed)
        store.add(held, is_durable=True)
        store.close()
        bootstrap = [part for address in known for part in ("--bootstrap", address)]
        known.append(address_in(joins.folder / name, port))
        listen = f"/ip4/127.0.0.1/tcp/{port}"
        local = (
            "--model",
            joins.folder,
            "--data",
            "embedded:reviews",
            "--worker-socket",
            worker,
        )  # the worker reads neither
        nodes.append(joins(name, "--run", run, *local, "--listen", listen, *bootstrap))
    return nodes, known


async def _send(channel: Channel, records: Sequence[bytes]) -> None:
    for start in range(0, len(records), _AT_ONCE):
        data = b"".join(records[start : start + _AT_ONCE])
        root, digest = secrets.token_bytes(32), secrets.token_bytes(32)
        head = Head(root=root, state_digest=digest, updates=0, step=0, work_distance=0)
        await channel.send_now(Records(request=0, data=data), head)
        await trio.sleep(_EVERY_S)


async def _answer_pings(channel: Channel) -> None:
    """As any neighbour; nothing else is answered."""
    while (received := await channel.receive_untrusted()) is not None:
        if isinstance(received, Ping):
            await channel.send_now(Pong(nonce=received.nonce))


async def _pace(worker: _Worker, nodes: Sequence[JoinProcess], seconds: float) -> float:
    """Return the steps of all nodes in a second, from now on: of those in which they need not wait for a processor.

    What the attack makes them compute is not forgiven for that: it is measured as such.
    """
    before = worker.steps
    stopwatches = [Stopwatch(partial(waits_of, (pid_of(node), os.getpid()))) for node in nodes]
    end_s = trio.current_time() + seconds
    while (left_s := end_s - trio.current_time()) > 0:
        await trio.sleep(min(1.0, left_s))
        spent_s = [stopwatch.seconds() for stopwatch in stopwatches]
    return (worker.steps - before) * len(nodes) / sum(spent_s)


async def _hang_up(link: Link) -> None:
    await link.aclose()
