"""What is held against peers: scores that decay, who gets nothing pushed, who is not wanted. Pure: no clock, no files.

A fault is what an honest node does not do, or not often. Old, early, double or void records are not faults.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from protocol.wire import PeerId
from sfnode.network import bounds


class Fault(Enum):
    """What a peer did; the value is what it costs."""

    GARBAGE = -100.0  # bytes that no honest node can send: fatal at once
    STALLED = -15.0  # did not read for WRITE_S; so does a laptop that was closed, but not four times in ten minutes
    SILENT = -14.0  # opened a session and said nothing for HELLO_S
    STREAMS = -2.0  # one stream more than a peer may have


class PeerVerdict(Enum):
    """What to do about it."""

    TOLERATED = "tolerated"
    DISCOURAGED = "discouraged"  # end the session; neither dial nor accept the peer
    SPARED = "spared"  # end the session, rest for SPARED_S: so many peers seem bad that the fault is probably ours


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscouragedRow:
    """What is kept on disk of a peer that is not wanted."""

    peer: str
    until_unix_s: int


@dataclass(slots=True)
class _Score:
    points: float
    updated_s: float

    def at(self, now_s: float) -> float:
        """The score now, decayed towards 0."""
        return self.points * math.exp2((self.updated_s - now_s) / bounds.SCORE_HALF_LIFE_S)


class Reputation:
    """Scores and discouraged peers, both bounded. Times ``now_s`` are of a clock that only goes forward."""

    def __init__(self) -> None:
        self._scores: dict[PeerId, _Score] = {}
        self._until_s: dict[PeerId, float] = {}
        self._met_s: dict[PeerId, float] = {}  # when a session with the peer last began or ran
        self._hit_s: dict[PeerId, float] = {}  # when a peer that was met was last discouraged or spared

    def met(self, peer: PeerId, now_s: float) -> None:
        """A session with the peer runs: one of those among which the bad ones are counted."""
        self._met_s.pop(peer, None)
        self._met_s[peer] = now_s
        while len(self._met_s) > bounds.SCORES_MAX:
            del self._met_s[next(iter(self._met_s))]

    def penalise(self, peer: PeerId, fault: Fault, now_s: float) -> PeerVerdict:
        """Hold a fault against the peer."""
        points = self.score(peer, now_s) + fault.value
        if points > bounds.SCORE_DISCOURAGED:
            self._scores[peer] = _Score(points, now_s)
            self._bound_scores(now_s)
            return PeerVerdict.TOLERATED
        self._scores.pop(peer, None)
        if self._is_breaker_open(peer, now_s):
            self._discourage(peer, now_s + bounds.SPARED_S)
            return PeerVerdict.SPARED
        self._discourage(peer, now_s + bounds.DISCOURAGED_S)
        return PeerVerdict.DISCOURAGED

    def score(self, peer: PeerId, now_s: float) -> float:
        """At most 0."""
        held = self._scores.get(peer)
        return held.at(now_s) if held else 0.0

    def is_pushed_to(self, peer: PeerId, now_s: float) -> bool:
        """Whether new records are flooded to the peer."""
        return self.score(peer, now_s) > bounds.SCORE_NOT_PUSHED

    def is_discouraged(self, peer: PeerId, now_s: float) -> bool:
        """Whether the peer is neither dialled nor accepted."""
        return self._until_s.get(peer, now_s) > now_s

    def discouraged(self, now_s: float) -> frozenset[PeerId]:
        """All of them, forgetting those whose time is over."""
        self._until_s = {peer: until_s for peer, until_s in self._until_s.items() if until_s > now_s}
        return frozenset(self._until_s)

    # --- persistence

    def rows(self, now_s: float, unix_ms: int) -> tuple[DiscouragedRow, ...]:
        """The discouraged peers, for the disk, ordered by peer. ``unix_ms``: the same moment by the wall clock."""
        return tuple(
            DiscouragedRow(peer=peer, until_unix_s=round(unix_ms / 1_000 + self._until_s[peer] - now_s))
            for peer in sorted(self.discouraged(now_s))
        )

    def restore(self, rows: tuple[DiscouragedRow, ...], now_s: float, unix_ms: int) -> None:
        """Take over what ``rows`` returned in an earlier life. However the wall clock jumped, none stays away for
        longer than DISCOURAGED_S."""
        for row in rows[: bounds.DISCOURAGED_MAX]:
            left_s = min(row.until_unix_s - unix_ms / 1_000, bounds.DISCOURAGED_S)
            if left_s > 0:
                self._discourage(PeerId(row.peer), now_s + left_s)

    # --- small parts

    def _discourage(self, peer: PeerId, until_s: float) -> None:
        self._until_s[peer] = until_s
        if len(self._until_s) > bounds.DISCOURAGED_MAX:
            del self._until_s[min(self._until_s, key=self._until_s.__getitem__)]

    def _is_breaker_open(self, peer: PeerId, now_s: float) -> bool:
        """Strangers are not evidence of anything: only peers with whom a session ran are counted."""
        since_s = now_s - bounds.BREAKER_S
        self._met_s = {met: at_s for met, at_s in self._met_s.items() if at_s >= since_s}
        self._hit_s = {hit: at_s for hit, at_s in self._hit_s.items() if at_s >= since_s}
        if peer not in self._met_s:
            return False
        self._hit_s[peer] = now_s
        return len(self._hit_s) > max(bounds.BREAKER_FREE, len(self._met_s) // bounds.BREAKER_PART)

    def _bound_scores(self, now_s: float) -> None:
        if len(self._scores) > bounds.SCORES_MAX:
            del self._scores[max(self._scores, key=lambda peer: self._scores[peer].at(now_s))]
