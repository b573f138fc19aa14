"""Second payloads for old slots: each once threw away what was hashed of a thousand updates, to be read from the disk.

Three nodes train on a long ledger. Authors of old sign again what they have signed, in slots drawn from all of it, and
send a head behind every few of these, so that the nodes compute their roots. The nodes flood what they are told.
"""

from __future__ import annotations

import random
import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from protocol.limits import SPAN_STEPS
from protocol.run.manifest import Manifest, SignedManifest
from protocol.wire import Head, Ping, Pong, Records
from sfnode.network.network_config import Timings
from sfnode.network.policy.addresses import parse_address
from sfnode.network.sessions.channel import Channel, Traffic
from sfnode.network.sessions.handshake import exchange_hello, own_hello
from sfnode.network.transport.host import Host
from sfnode.network.transport.link import Link
from sfnode.storage.store import Store
from tests.attacks.outcome import Outcome
from tests.support.daemons import JoinProcess, demo_run, free_port
from tests.support.ledgers import seal
from tests.support.running_nodes import Joins, address_in, wait_until
from tests.support.worker_process import WorkerProcess

_NODES: Final = 3
_AUTHORS, _SPANS = 4, 4  # of the ledger: 16,384 updates, of which the older half is not in memory
_AT_ONCE, _EVERY_S = 20, 0.1
_TICKS, _CALM_S = {False: 200, True: 40}, {False: 15.0, True: 3.0}  # long and short
# A tenth may be lost. A few seconds, in which a node makes some ten steps, cannot show less than a half.
_KEPT_MIN: Final = {False: 0.9, True: 0.5}


def voids(is_short: bool) -> Outcome:
    """Authors sign a second payload for 200 old slots a second, with a head behind every 20."""
    signed = demo_run(steps=2 * _SPANS * SPAN_STEPS, name="voids")
    slots = [(author, step) for step in range(_SPANS * SPAN_STEPS) for author in range(_AUTHORS)]
    held = [seal(signed.manifest, author, step) for author, step in slots]
    chosen = random.Random(0).sample(slots, _AT_ONCE * _TICKS[is_short])
    second = [seal(signed.manifest, *slot, *[99] * signed.manifest.method.scalars) for slot in chosen]
    with tempfile.TemporaryDirectory() as name, WorkerProcess(Path(name)) as worker, Joins(Path(name)) as joins:
        nodes = _started(joins, signed, held, worker.path)
        wait_until(lambda: all(node.status().get("own_updates", 0) > 2 for node in nodes), "three nodes train")
        before, during, after, sent = trio.run(_attack, signed.manifest, nodes, second, _CALM_S[is_short])
        taken = [node.status()["void_slots"] for node in nodes]
    kept = _KEPT_MIN[is_short]
    return Outcome(
        before=f"{before:.1f} steps/s",
        during=f"{during:.1f} steps/s, {min(taken)} of {len(second)} slots void everywhere",
        after=f"{after:.1f} steps/s",
        attacker=f"{sent:,} bytes",
        bound=f"{100 * kept:.0f} % of the steps",
        is_held=during >= kept * min(before, after) and min(taken) == len(second),
    )


def _started(joins: Joins, signed: SignedManifest, held: Sequence[bytes], worker: Path) -> list[JoinProcess]:
    """Three neighbours whose disks hold the ledger."""
    run = joins.folder / "voids.run"
    run.write_bytes(signed.encode())
    nodes: list[JoinProcess] = []
    known: list[str] = []
    for number in range(_NODES):
        name, port = f"node{number}", free_port()
        store = Store(joins.folder / name, signed)
        store.add(held, is_durable=True)
        store.close()
        bootstrap = [part for address in known for part in ("--bootstrap", address)]
        known.append(address_in(joins.folder / name, port))
        listen = f"/ip4/127.0.0.1/tcp/{port}"
        nodes.append(joins(name, "--run", run, "--worker-socket", worker, "--listen", listen, *bootstrap))
    return nodes


async def _attack(
    manifest: Manifest, nodes: Sequence[JoinProcess], second: Sequence[bytes], calm_s: float
) -> tuple[float, float, float, int]:
    """Steps a second of all nodes before, during and after; the bytes that were sent."""
    traffic = Traffic()
    host = Host(identity_seed=secrets.token_bytes(32), on_inbound=_hang_up)
    async with host.running(()), trio.open_nursery() as nursery:
        link = await host.dial(parse_address(_address_of(nodes[0])))
        channel = Channel(link, Timings(), traffic)
        await exchange_hello(channel, own_hello(run_id=manifest.run_id, agent="sfnode", listen=(), head_step=0))
        nursery.start_soon(_answer_pings, channel)
        before = await _pace(nodes, calm_s)
        begun = traffic.bytes_out
        nursery.start_soon(_send, channel, second)
        during = await _pace(nodes, len(second) / _AT_ONCE * _EVERY_S)
        sent = traffic.bytes_out - begun
        after = await _pace(nodes, calm_s)
        nursery.cancel_scope.cancel()
    return before, during, after, sent


def _address_of(node: JoinProcess) -> str:
    """Where it listens."""
    (port,) = (part.rsplit("/", 1)[1] for part in node.arguments if part.startswith("/ip4/") and "/p2p/" not in part)
    return address_in(node.directory, int(port))


async def _send(channel: Channel, records: Sequence[bytes]) -> None:
    for start in range(0, len(records), _AT_ONCE):
        data = b"".join(records[start : start + _AT_ONCE])
        head = Head(root=secrets.token_bytes(32), state_digest=secrets.token_bytes(32), updates=0, step=0)
        await channel.send_now(Records(request=0, data=data), head)
        await trio.sleep(_EVERY_S)


async def _answer_pings(channel: Channel) -> None:
    """As any neighbour; nothing else is answered."""
    while (received := await channel.receive_untrusted()) is not None:
        if isinstance(received[0], Ping):
            await channel.send_now(Pong(nonce=received[0].nonce))


async def _pace(nodes: Sequence[JoinProcess], seconds: float) -> float:
    """Steps a second of all nodes from now on, by their status files; one that stands still has the whole time."""
    first = [node.status() for node in nodes]
    await trio.sleep(seconds)
    last = [node.status() for node in nodes]
    return sum(
        (new["own_updates"] - old["own_updates"]) / max(seconds, new["time"] - old["time"])
        for old, new in zip(first, last, strict=True)
    )


async def _hang_up(link: Link) -> None:
    await link.aclose()
