"""What one address, one network and one admitted key can cost a node at most, each doing all at once that it may.

The bounds are those of sfnode/network/bounds.py and protocol/limits.py, each times what one turn of it costs: to change
one of them is to change what a peer may cost in all, and shows here.

* Processor: handshakes by their rate. Of each neighbour, records that nobody asked for, by their rate; answers, by
  their measured time; frames, by their rate. All neighbours together get no more time for answers than all may have.
* Memory: what a connection may leave unread and unsent, and the objects of a connection; requests of observers.
* Disk: what the address book can grow by, and of a key two updates for each slot that it may sign.
* Files: a socket for each neighbour, observer and stranger that may be there, and for each dial.
* Dial slots: as many as there are, because invented peers look like others that were never met. An address keeps one
  for no longer than a dial may take, and peers that were met, and bootstraps, are dialled first.

A network counts as one, here by --limit-private as across the internet without it. So one address may cost as much as
its network, and no more.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from typing import Final

import click
import trio

from protocol import limits
from sfnode.children.child_program import Program
from sfnode.network import bounds
from sfnode.network.policy.ip_groups import INBOUND_GROUP_PART
from tests.attacks.doors import NEVER_S, in_words, manifest_s
from tests.attacks.greedy_peers import HELD
from tests.attacks.outcome import Outcome
from tests.attacks.relay import RUN_FILE, Relay, running_relay
from tests.attacks.visitor import memory_mb
from tests.support.fork_server import start_child

_LASTS_S: Final = {False: 40.0, True: 5.0}
_JOINED_S_MAX: Final = 3.0
_LOOK_S: Final = 0.1
_WATCHED: Final = 0.8  # of the attack; in the rest a joiner joins


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What somebody costs a node, or may: of a core, MB, MB, at once, at once, and the longest of these."""

    cpu: float
    memory_mb: float
    disk_mb: float
    files: int
    dials: int
    dial_s: float

    def __str__(self) -> str:
        return (
            f"{self.cpu:.2f} of a core, {self.memory_mb:.0f} MB, {self.disk_mb:.1f} MB of disk, {self.files} files, "
            f"{self.dials} dials of {self.dial_s:.0f} s"
        )

    def is_within(self, bound: Cost) -> bool:
        """Whether nothing costs more."""
        return all(getattr(self, each.name) <= getattr(bound, each.name) for each in fields(Cost))


# What one turn costs.
_HANDSHAKE_S: Final = 0.020  # with all that may follow, as bounds.HANDSHAKES_PER_S says
_CHECK_S: Final = 55e-6  # a signature; a copy of a record on the disk takes 50 us
_FRAME_S: Final = 5e-6  # as bounds.FRAMES_PER_S says
_REST_CPU: Final = 0.05  # upkeep, status, and the sampling error of short runs
_CONNECTION_MB: Final = 40 / bounds.INBOUND_MAX  # of objects, as INBOUND_MAX says
_REST_MB: Final = 16.0  # an allocator gives back little; a ledger's summaries of the records that come
_ROW_BYTES: Final = limits.ADDRESSES_PER_PEER_MAX * limits.ADDRESS_LENGTH_MAX + 256  # of the address book
_RECORD_BYTES: Final = 256  # 128 on the wire
_REST_DISK_MB: Final = 1.0  # a journal


def _bound(*, sessions: int, strangers: int, observers: int, steps: int, lasts_s: float) -> Cost:
    """Return what so many of each kind may cost, and a key that may sign in so many steps."""
    neighbours = sessions * bounds.CONNECTIONS_PER_PEER_MAX
    pushed_per_s = bounds.RECEIVE_BYTES_PER_S / bounds.PUSHED_RECORD_COST_BYTES
    pushed_burst = bounds.RECEIVE_BURST_BYTES / bounds.PUSHED_RECORD_COST_BYTES
    records = sessions * (pushed_per_s + pushed_burst / lasts_s) * _CHECK_S
    answers = min(sessions * bounds.ANSWERS_US_PER_S, bounds.ANSWERS_ALL_US_PER_S) / 1e6
    frames = (neighbours * bounds.FRAMES_PER_S + strangers * bounds.STRANGER_FRAMES_PER_S) * _FRAME_S
    handshakes = (bounds.HANDSHAKES_PER_S + bounds.HANDSHAKES_BURST / lasts_s) * _HANDSHAKE_S
    connections = neighbours + strangers + observers
    told = sessions * bounds.UNVERIFIED_PER_SOURCE_MAX * _ROW_BYTES
    kept = connections * bounds.CONNECTION_BUFFER_BYTES_MAX + sessions * bounds.SEND_QUEUE_BYTES_MAX
    served = observers * bounds.OBSERVER_BYTES_MAX
    return Cost(
        cpu=min(1.0, records + answers + frames + handshakes + _REST_CPU),
        memory_mb=(kept + served + told) / 1e6 + connections * _CONNECTION_MB + _REST_MB,
        disk_mb=(told + 2 * steps * _RECORD_BYTES) / 1e6 + _REST_DISK_MB,
        files=connections + bounds.DIALS_AT_ONCE_MAX,
        dials=bounds.DIALS_AT_ONCE_MAX,
        dial_s=bounds.DIAL_S + 1.0,
    )


def _bound_of(who: str, lasts_s: float) -> Cost:
    if who == "key":
        steps = HELD.steps + limits.STEPS_AHEAD_MAX
        return _bound(sessions=1, strangers=0, observers=0, steps=steps, lasts_s=lasts_s)
    return _bound(
        sessions=bounds.INBOUND_MAX // INBOUND_GROUP_PART,
        strangers=bounds.STRANGERS_PER_GROUP_MAX,
        observers=bounds.OBSERVERS_PER_CROWD_MAX,
        steps=0,
        lasts_s=lasts_s,
    )


# --- what it comes to


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What somebody cost, and may; after how long a joiner had the manifest; what was sent."""

    who: str
    cost: Cost
    bound: Cost
    joined_s: tuple[float | None, float | None, float | None]  # before, during, after
    sent_bytes: int

    @property
    def is_held(self) -> bool:
        """Whether nothing costs more, and joiners come in."""
        return self.cost.is_within(self.bound) and all((each or NEVER_S) <= _JOINED_S_MAX for each in self.joined_s)


def budgets(is_short: bool) -> Outcome:
    """One address, one network and one key do all at once that they may: processor, memory, disk, files, dials."""
    found = []
    for who in ("key",) if is_short else ("key", "address", "network"):
        with running_relay(HELD, arguments=("--limit-private",)) as victim:
            found.append(trio.run(_attack, victim, who, _LASTS_S[is_short]))
        click.echo(f"    {who}: {found[-1].cost}\n    {who} may cost: {found[-1].bound}", err=True)
    joined_s = zip(*(each.joined_s for each in found), strict=True)
    before, during, after = (in_words(None if None in each else max(filter(None, each))) for each in joined_s)
    return Outcome(
        before=before,
        during="; ".join([*(f"{each.who}: {each.cost}" for each in found), during]),
        after=after,
        attacker="; ".join(f"{each.who}: {each.sent_bytes / 1e6:.1f} MB" for each in found),
        bound="; ".join([*(f"{each.who}: {each.bound}" for each in found), f"a manifest in {_JOINED_S_MAX:.0f} s"]),
        is_held=all(each.is_held for each in found),
    )


async def _attack(victim: Relay, who: str, lasts_s: float) -> _Found:
    before_s = await manifest_s(victim)
    calm = _spent_by(victim)
    start_s = trio.current_time()
    run_file = victim.process.directory.with_name(RUN_FILE)
    attacker = Program(
        module="tests.attacks.greedy_peers", arguments=(who, victim.address, str(run_file), str(lasts_s))
    )
    with start_child(attacker, stderr=2) as process:
        assert process.stdout is not None
        await trio.to_thread.run_sync(process.stdout.read, 1)  # all have begun
        memory, files = 0.0, 0
        end_s = trio.current_time() + lasts_s * _WATCHED
        while trio.current_time() < end_s:
            await trio.sleep(_LOOK_S)
            memory, files = max(memory, memory_mb(victim.pid)), max(files, _files(victim))
        seconds, spent = trio.current_time() - start_s, _spent_by(victim)
        during_s = await manifest_s(victim)
        told = json.loads((await trio.to_thread.run_sync(process.stdout.read)).splitlines()[-1])
    return _Found(
        who=who,
        cost=Cost(
            cpu=(spent.cpu_s - calm.cpu_s) / seconds,
            memory_mb=memory - calm.memory_mb,
            disk_mb=spent.disk_mb - calm.disk_mb,
            files=files - calm.files,
            dials=told["dials"],
            dial_s=told["dial_s"],
        ),
        bound=_bound_of(who, seconds),
        joined_s=(before_s, during_s, await manifest_s(victim)),
        sent_bytes=told["bytes"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spent:
    """What a node has used of its machine until now, or uses now."""

    cpu_s: float
    memory_mb: float
    disk_mb: float
    files: int


def _spent_by(victim: Relay) -> _Spent:
    return _Spent(
        cpu_s=victim.cpu_s(),
        memory_mb=memory_mb(victim.pid),
        disk_mb=sum(each.stat().st_blocks * 512 for each in victim.process.directory.rglob("*")) / 1e6,
        files=_files(victim),
    )


def _files(victim: Relay) -> int:
    return len(os.listdir(f"/proc/{victim.pid}/fd"))
