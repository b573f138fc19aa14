"""A machine's snapshot files: kept, served, fetched, as `sfnode.node` does it; and authors who lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol
from unittest.mock import patch

from protocol.events import Event, FetchFailed, FetchSnapshot, SnapshotArrived, StoreSnapshot
from protocol.state import snapshot_proof
from protocol.state.replica import Replica
from protocol.state.snapshot import Snapshot, decode_snapshot_untrusted, encode_snapshot
from protocol.state.snapshot_proof import take_snapshot
from protocol.wire import PeerId
from tests.simulation.environment import Environment
from tests.simulation.holding import Life
from tests.simulation.scenario import Lie, SnapshotEvent, stream

_KEPT = 2
_WRONG = 0.6  # chance of one file


class Machine(Protocol):
    """The machine that the files belong to."""

    name: PeerId
    peers: set[PeerId]
    life: Life

    def handle(self, event: Event) -> None:
        """Let the core handle the event."""


class SnapshotFiles:
    """The files of one machine; they outlive a process, as its disk does."""

    def __init__(self, environment: Environment, name: str) -> None:
        self._environment = environment
        self._random = stream(environment.scenario.seed, f"snapshots of {name}")
        self._files: dict[bytes, bytes] = {}  # by hash, the oldest first

    def clear(self) -> None:
        """The disk is lost."""
        self._files.clear()

    def serve(self, sha256: bytes) -> bytes | None:
        """The file; sometimes another that looks like it."""
        data, environment = self._files.get(sha256), self._environment
        plan = environment.scenario.snapshot
        if data is None or plan is None or not plan.is_served_wrong or self._random.random() >= _WRONG:
            return data
        environment.tell(SnapshotEvent.WRONG_FILE)
        manifest = environment.scenario.manifest
        return encode_snapshot(manifest, falsified(decode_snapshot_untrusted(manifest, data), Lie.COEFFICIENTS))

    def carry_out(self, machine: Machine, effect: StoreSnapshot | FetchSnapshot) -> None:
        """Keep what was made, the newest only; fetch what is wanted."""
        if isinstance(effect, FetchSnapshot):
            self._fetch(machine, effect.sha256)
            return
        self._files[bytes.fromhex(effect.sha256)] = effect.data
        for sha256 in list(self._files)[:-_KEPT]:
            del self._files[sha256]

    def _fetch(self, machine: Machine, sha256: str) -> None:
        """Fetch the file from one of the neighbours; it comes after a while."""
        environment = self._environment
        peer = self._random.choice(sorted(machine.peers)) if machine.peers else None
        delay_ms = 2 * self._random.randint(*environment.scenario.delay_ms)
        environment.schedule(delay_ms, self._arrival(machine, peer, sha256))

    def _arrival(self, machine: Machine, peer: PeerId | None, sha256: str) -> Callable[[], None]:
        life = machine.life

        def arrive() -> None:
            if machine.life is not life:
                return
            is_near = peer is not None and peer in machine.peers
            data = self._environment.hosts[peer].serve(bytes.fromhex(sha256)) if peer and is_near else None
            machine.handle(FetchFailed(sha256=sha256) if data is None else SnapshotArrived(data=data))

        return arrive


def falsified(snapshot: Snapshot, lie: Lie) -> Snapshot:
    """Another snapshot, which every liar makes of this one in the same way."""
    if lie is Lie.SLOTS:
        return replace(snapshot, slots=snapshot.slots + 1, digest=type(snapshot.digest)(snapshot.digest[::-1]))
    epoch, flat = next(iter(sorted(snapshot.epochs.items())))
    changed = flat.astype("i8")
    changed[0] += 1 if changed[0] != -1 else 2  # an epoch of zeros only has another spelling
    return replace(snapshot, epochs={**snapshot.epochs, epoch: changed})


@contextmanager
def lying(lie: Lie | None, is_liar: Callable[[Replica], bool]) -> Iterator[None]:
    """While this lasts, those authors make and attest false snapshots."""

    def take(replica: Replica, step: int) -> Snapshot:
        snapshot = take_snapshot(replica, step)
        is_false = lie is not None and snapshot.epochs and is_liar(replica)
        return falsified(snapshot, lie) if lie and is_false else snapshot

    with patch.object(snapshot_proof, "take_snapshot", take):
        yield
