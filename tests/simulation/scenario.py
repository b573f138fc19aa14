"""What one seed stands for: the run, the network, and which faults are demanded of it. Drawn once, then only read."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from protocol.run.admission import AdmissionKind, AdmissionSpec
from protocol.run.manifest import Manifest
from tests.simulation.topology import TOPOLOGIES
from tests.support.manifests import small_manifest


class Fault(StrEnum):
    """Everything that is done to the network. One that is demanded but did not happen makes a run count for nothing."""

    # network
    LOSS = "message lost"
    DUPLICATION = "message duplicated"
    REORDERING = "message overtaken"
    CORRUPTION = "bytes corrupted"
    PARTITION = "network split"
    FLAPPING = "link flapped"
    ASYMMETRY = "lost one way"
    SLOW_READER = "slow reader"
    STALL = "link stalled"
    # disk
    LOST_TAIL = "unsynced tail lost"
    TORN_WRITE = "torn write"
    BIT_FLIP = "bit flipped on disk"
    DISK_FULL = "disk full"
    OLD_BACKUP = "old backup restored"
    # process
    KILL = "process killed"
    CRASH_POINT = "crashed at a named point"
    PAUSE = "process paused"
    WORKER_LOST = "worker died"
    WORKER_SKIP = "loss not finite"
    # peers
    LATE_JOINER = "late joiner"
    EQUIVOCATION = "equivocation"
    SPAM = "spam"
    LIE = "lie about the ledger"
    REPLAY = "record of another run"


# Steps chosen so that a run lasts about as long as the time in which everything breaks.
_RUNS: dict[str, dict[str, object]] = {
    "canonical": {"steps": 40},
    "rademacher": {"steps": 40, "core": "rademacher", "directions": 4, "shares": 2},
    "normalised": {"steps": 40, "directions": 4, "scalar": "normalised", "clip": 127},
    "rounds": {"steps": 80, "local_steps": 2},
    "spans": {"steps": 40 * 64, "local_steps": 64, "epoch_steps": 256},
    "dense": {"steps": 40, "core": "dense", "directions": 4},
    "dense of 4 bits": {"steps": 40, "core": "dense", "directions": 4, "clip": 7, "energy_max": 400},
    "dense of 2 bits": {"steps": 40, "core": "dense", "directions": 4, "clip": 1, "energy_max": 16},
}
_DRAWN = sorted(
    name for name in _RUNS if not name.startswith("dense")
)  # which takes the place of others, so that their seeds stay what they are
_DENSE = 0.2  # share of the runs without snapshots: with steps one by one, a span would take too long
# With steps before which a snapshot is made, twice, and some more after them; else like "spans".
_SNAPSHOT_RUN = {"steps": 56 * 64, "local_steps": 64, "epoch_steps": 768}
# Small enough to be reached in a small network: paging, full queues and horizons are exercised, too.
TIGHT_LIMITS = {
    "PUSH_QUEUE_RECORDS_MAX": 12,
    "AUTHORS_PER_PAGE_MAX": 2,
    "PULL_BYTES_MAX": 4_000,
    "RECORDS_PER_FRAME_MAX": 3,
    "STEPS_AHEAD_MAX": 10,
}
# So small that snapshots are made, sought and used within a run of some seconds, and that a replay takes a while.
SNAPSHOT_LIMITS = {
    "STEPS_AHEAD_MAX": 10,
    "SNAPSHOT_BEHIND_MIN": 20,
}
_MISSING_LIMITS = {"SNAPSHOT_MISSING_MS": 20_000}  # where what is missing is nowhere
_PULL_BYTES = (600, 4_000)  # on fast and on slow links
SNAPSHOT_AUTHORS_MIN = 2  # of three nodes one may be the joiner


class SnapshotEvent(StrEnum):
    """What may become of snapshots in a run; counted, and never demanded."""

    MADE = "made"
    USED = "used"
    STEP = "steps begun on one"
    PROVED = "proved"
    STALE = "of another set by then"
    REFUSED = "found false"
    FALSE = "false ones made"
    WRONG_FILE = "wrong files served"
    KILLED = "killed before the proof"
    CUT = "exclusions below one in use"
    DISK_LOST = "disks lost"


class Lie(StrEnum):
    """What is false in a snapshot that authors attest in concert."""

    COEFFICIENTS = "coefficients"
    SLOTS = "slots"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPlan:
    """What happens around snapshots: somebody is far behind as soon as enough authors attest one.

    Attributes:
        lie: what all but one of the first authors lie about in theirs; None: nothing.
        is_disk_lost: one of the first nodes loses its disk; else a late joiner comes.
        is_killed: a node that uses a true one dies before it can have proved it.
        is_cut: the owner excludes an author from below a true one while it is in use.
        is_served_wrong: most of the files that are served are not the true one.
    """

    lie: Lie | None
    is_disk_lost: bool
    is_killed: bool
    is_cut: bool
    is_served_wrong: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One simulated world.

    Attributes:
        run: name of the run's kind; ``manifest`` is made of it.
        honest: nodes that follow the protocol, without late joiners; the first ``outbound_only`` of the odd ones can
            only dial out: a lost link of theirs takes longer to come back.
        faults: demanded ones, sorted.
        safety_ms: how long everything breaks; then the faults stop.
        delay_ms: shortest and longest time on a link.
        loss: chance of each message to be lost, where LOSS is demanded.
        is_tight: whether TIGHT_LIMITS hold instead of the protocol's.
        is_closely_watched: whether digests are compared after every event, not only when nodes compare theirs.
        is_listed: whether the owner admits each author, at some time; else the run is open.
        exclusions: authors that the owner excludes, at some time from some step on.
        snapshot: nodes may use snapshots, and what happens to those who do; else they never do.
    """

    seed: int
    run: str
    topology: str
    honest: int
    outbound_only: int
    faults: tuple[Fault, ...]
    safety_ms: int
    delay_ms: tuple[int, int]
    loss: float
    is_tight: bool
    is_closely_watched: bool
    is_listed: bool
    exclusions: int
    snapshot: SnapshotPlan | None

    @property
    def limits(self) -> dict[str, int]:
        """What holds instead of the protocol's limits."""
        narrow = TIGHT_LIMITS if self.is_tight else {}
        if self.snapshot is None:
            return narrow
        narrow = narrow | SNAPSHOT_LIMITS | {"PULL_BYTES_MAX": _PULL_BYTES[self.delay_ms[0] >= 20]}
        return narrow | (_MISSING_LIMITS if self.snapshot.lie is Lie.SLOTS else {})

    @property
    def manifest(self) -> Manifest:
        """The run's manifest."""
        return _manifest(None if self.snapshot else self.run, self.is_listed)


@lru_cache
def _manifest(run: str | None, is_listed: bool) -> Manifest:
    manifest = small_manifest(**(_RUNS[run] if run else _SNAPSHOT_RUN))
    return (
        replace(manifest, admission=AdmissionSpec(kind=AdmissionKind.ALLOW_LIST, pow_bits=0)) if is_listed else manifest
    )


def stream(seed: int, purpose: str) -> random.Random:
    """The random numbers of one purpose: drawing more of one kind does not change those of another."""
    return random.Random(hashlib.sha256(f"sfnode simulation {seed} {purpose}".encode()).digest())


def draw(seed: int) -> Scenario:
    """The scenario of a seed. Topologies take turns; each fault is there in two of five runs, never less than two."""
    chosen = stream(seed, "scenario")
    faults = {fault for fault in Fault if chosen.random() < 0.4} | set(chosen.sample(list(Fault), 2))
    shortest_ms = chosen.choice((1, 5, 20, 80))
    honest = chosen.randint(3, 7)
    owner = stream(seed, "owner")
    is_listed = owner.random() < 0.2
    run = chosen.choice(_DRAWN)
    snapshot = _draw_snapshot(seed, faults) if is_listed else None
    if not snapshot and stream(seed, "core").random() < _DENSE:
        run = "dense"
    honest_max, delay_ms_max = (5, 320) if snapshot else (7, 960)  # runs with snapshots are the longest
    return Scenario(
        seed=seed,
        run=run,
        topology=TOPOLOGIES[seed % len(TOPOLOGIES)],
        honest=min(honest, honest_max),
        outbound_only=chosen.choice((0, 0, 1, 2)),
        faults=tuple(sorted(faults)),
        safety_ms=chosen.randrange(8_000, 16_000),
        delay_ms=(shortest_ms, min(shortest_ms * chosen.choice((2, 4, 12)), delay_ms_max)),
        loss=chosen.choice((0.01, 0.05, 0.2)),
        is_tight=chosen.random() < 0.3,
        is_closely_watched=chosen.random() < 0.2,
        is_listed=is_listed,
        exclusions=owner.choice((0, 0, 0, 1, 2)),
        snapshot=snapshot,
    )


def _draw_snapshot(seed: int, faults: set[Fault]) -> SnapshotPlan | None:
    """Three of five runs whose owner names the authors have snapshots."""
    chosen = stream(seed, "snapshot plan")
    if chosen.random() >= 0.6:
        return None
    lie = chosen.choice(list(Lie)) if chosen.random() < 0.4 else None
    return SnapshotPlan(
        lie=lie,
        is_disk_lost=Fault.LATE_JOINER not in faults or chosen.random() < 0.3,
        is_killed=lie is None and chosen.random() < 0.4,
        is_cut=lie is None and chosen.random() < 0.3,
        is_served_wrong=lie is None and chosen.random() < 0.6,
    )
