"""Promises about snapshots (SPEC 9.5), watched from outside; part of the watch.

What a snapshot says is compared with an independent sum of what its maker was seen to store; what a node makes of it,
with what that node was seen to store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from protocol import limits, timings
from protocol.events import Halt, PeerJoined, SnapshotOutcome, StartEstimate, StoreSnapshot
from protocol.ledger.envelope import EnvelopeCodec
from protocol.node.node import Node
from protocol.run.manifest import Manifest
from protocol.state.coefficients import Coefficients
from protocol.state.snapshot import Snapshot, decode_snapshot_untrusted, encode_snapshot
from protocol.wire import PeerId
from tests.simulation.holding import Handled, Holding, Life, Slot, require
from tests.simulation.scenario import SNAPSHOT_AUTHORS_MIN, SnapshotEvent

_NO_SIGNATURE = bytes(64)
_STEPS_SUMMED = 2  # of a process on a snapshot: each costs as much as two replays


@dataclass(slots=True)
class _Made:
    """A file that somebody made."""

    set_of: frozenset[tuple[Slot, bytes]]  # what its first maker held below its step
    is_true: bool
    slots: int  # that count, as it says
    makers: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class _Process:
    """What was seen of one process."""

    life: Life
    outcome: SnapshotOutcome = SnapshotOutcome.NONE
    snapshot: Snapshot | None = None  # in use
    steps: int = 0  # begun on a snapshot
    met: list[dict[Slot, set[bytes]]] = field(default_factory=list)  # what each neighbour held when it came


class SnapshotWatch:
    """Sees what one world's nodes make, use and prove."""

    def __init__(
        self, tell: Callable[[SnapshotEvent], None], held_by: Callable[[PeerId], dict[Slot, set[bytes]]]
    ) -> None:
        """``held_by``: what an honest neighbour holds now; empty for one that may withhold some of it."""
        self.liars: set[bytes] = set()  # authors who may make false ones
        self._tell = tell
        self._held_by = held_by
        self._made: dict[bytes, _Made] = {}  # by hash
        self._sums: dict[frozenset[tuple[Slot, bytes]], Coefficients] = {}  # of the sets that were summed
        self._processes: dict[bytes, _Process] = {}  # by author

    def see(self, life: Life, node: Node, handled: Handled) -> None:
        """One event was handled; its effects are not yet carried out."""
        process = self._processes.get(node.author)
        if process is None or process.life is not life:
            process = self._processes[node.author] = _Process(life=life)
        if isinstance(handled.event, PeerJoined):
            process.met.append(self._held_by(handled.event.peer))
        if node.snapshots.outcome is not process.outcome:
            self._see_outcome(process, node)
        for effect in handled.effects:
            if isinstance(effect, StoreSnapshot):
                self._see_made(process.life, node, effect)
            if isinstance(effect, StartEstimate) and node.replica.snapshot is not None:
                self._see_step(process, node, handled.now_ms)

    def see_halt(self, life: Life, node: Node, halt: Halt) -> None:
        """SPEC 9.5: a node stops only for a false snapshot, with the signatures, and its own state is right."""
        snapshot = node.replica.snapshot
        require(snapshot is not None and halt.attestations, f"an honest node halted: {halt.detail}")
        assert snapshot is not None
        made = self._made[_hash_of(node.manifest, snapshot)]
        require(not made.is_true, f"an honest node halted for a true snapshot: {halt.detail}")
        _check_state(life.holding, node)
        self._tell(SnapshotEvent.REFUSED)

    def _see_made(self, life: Life, node: Node, stored: StoreSnapshot) -> None:
        holding, snapshot = life.holding, decode_snapshot_untrusted(node.manifest, stored.data)
        below = _slots(holding, range(stored.step))
        set_of = _set_of(below)
        if set_of not in self._sums:
            self._sums[set_of] = _sum(node.manifest, below)
        is_true = (
            snapshot.step == stored.step and snapshot.slots == len(below) and _is_sum(snapshot, self._sums[set_of])
        )
        require(is_true or node.author in self.liars, "an honest node made a snapshot that is not what it holds")
        self._tell(SnapshotEvent.MADE if is_true else SnapshotEvent.FALSE)
        made = self._made.setdefault(
            bytes.fromhex(stored.sha256), _Made(set_of=set_of, is_true=is_true, slots=snapshot.slots)
        )
        made.makers.add(node.author)

    def _see_outcome(self, process: _Process, node: Node) -> None:
        process.outcome = node.snapshots.outcome
        match process.outcome:
            case SnapshotOutcome.USED:
                assert node.replica.snapshot is not None
                process.snapshot = node.replica.snapshot
                made = self._made.get(_hash_of(node.manifest, process.snapshot))
                require(made is not None, "a snapshot is used that nobody has made")
                assert made is not None
                others = made.makers - {node.author}
                require(len(made.makers) >= SNAPSHOT_AUTHORS_MIN and others, "a snapshot is used that too few attest")
                self._tell(SnapshotEvent.USED)
            case SnapshotOutcome.PROVED | SnapshotOutcome.UNPROVED:
                self._see_end(process, node)

    def _see_end(self, process: _Process, node: Node) -> None:
        """What the replay says is what it must say; and nothing is used any more."""
        snapshot, holding = process.snapshot, process.life.holding
        assert snapshot is not None
        require(node.replica.snapshot is None, "a snapshot is used after its proof")
        made = self._made[_hash_of(node.manifest, snapshot)]
        below = _slots(holding, range(snapshot.step))
        is_same = made.set_of == _set_of(below)
        if process.outcome is SnapshotOutcome.PROVED:
            require(made.is_true, "a false snapshot was taken for proved")
            is_sum = snapshot.slots == len(below) and _is_sum(snapshot, _sum(node.manifest, below))
            require(is_same and is_sum, "a snapshot was taken for proved that is not what is held")
            self._tell(SnapshotEvent.PROVED)
            return
        is_cut = any(from_step < snapshot.step for from_step in holding.excluded.values())
        is_withheld = made.slots > len(below)  # as far as it can know
        require(is_cut or is_withheld or not is_same, "the same set, and nothing was said of its snapshot")
        self._tell(SnapshotEvent.STALE)

    def _see_step(self, process: _Process, node: Node, now_ms: int) -> None:
        """A step on a snapshot: the worker is shown it and what follows it, the state is what is held, and the node
        knows of its own rounds, and of the newest ones, what a neighbour holds (SPEC 9.2.3)."""
        snapshot, holding = process.snapshot, process.life.holding
        assert snapshot is not None
        self._tell(SnapshotEvent.STEP)
        process.steps += 1
        if process.steps <= _STEPS_SUMMED:
            _check_state(holding, node)
            _check_shown(snapshot, holding, node)
        is_silent = now_ms - node.sync.answered_ms >= timings.FIRST_SYNC_TIMEOUT_MS
        if node.sync.is_live or is_silent:
            return
        own = [{slot for slot in met if slot[0] == node.author} for met in process.met]
        require(_knows_some(holding, own), "a step was begun on a snapshot before the own rounds were asked for")
        for start in range(snapshot.step, node.manifest.steps, limits.SPAN_STEPS):
            span = range(start, start + limits.SPAN_STEPS)
            newest = [{slot for slot in met if slot[1] in span} for met in process.met]
            require(_knows_some(holding, newest), "a step was begun on a snapshot before what follows it was compared")


def _knows_some(holding: Holding, told: Iterable[set[Slot]]) -> bool:
    """Whether all is held that one neighbour held."""
    return any(all(slot in holding.payloads or holding.is_excluded(slot) for slot in slots) for slots in told)


def _check_state(holding: Holding, node: Node) -> None:
    every = _slots(holding, range(node.manifest.steps))
    is_right = _sum(node.manifest, every).digest() == node.replica.state_digest()
    require(is_right, "with a snapshot in use the state is not that of what is held")


def _check_shown(snapshot: Snapshot, holding: Holding, node: Node) -> None:
    later = _slots(holding, range(snapshot.step, node.manifest.steps))
    shown = _sum(node.manifest, later, snapshot)
    require(node.replica.shown().digest() == shown.digest(), "the worker is shown another state than it must see")


def _slots(holding: Holding, steps: range) -> dict[Slot, set[bytes]]:
    return {slot: held for slot, held in holding.payloads.items() if slot[1] in steps}


def _set_of(slots: dict[Slot, set[bytes]]) -> frozenset[tuple[Slot, bytes]]:
    """Equal for two ledgers that mean the same: of a void slot it says only that it is void."""
    return frozenset((slot, b"" if len(held) == 2 else min(held)) for slot, held in slots.items())


def _sum(manifest: Manifest, slots: dict[Slot, set[bytes]], under: Snapshot | None = None) -> Coefficients:
    """The sum of what counts in these slots; with a snapshot, on top of it."""
    codec, sums = EnvelopeCodec(manifest), Coefficients(manifest)
    for epoch, flat in under.epochs.items() if under else ():
        sums.set_flat(epoch, flat)
    counting = [payload for held in slots.values() if len(held) == 1 for payload in held]
    sums.add(codec.decode_untrusted(payload + _NO_SIGNATURE) for payload in counting)
    return sums


def _is_sum(snapshot: Snapshot, sums: Coefficients) -> bool:
    are_equal = all(np.array_equal(flat, sums.flat(epoch)) for epoch, flat in snapshot.epochs.items())
    return are_equal and tuple(sorted(snapshot.epochs)) == sums.epochs()


def _hash_of(manifest: Manifest, snapshot: Snapshot) -> bytes:
    return hashlib.sha256(encode_snapshot(manifest, snapshot)).digest()
