"""Reputation of peers: scores that decay, and discouraged peers. Pure: no clock, no files.

A fault is something that an honest node does never or rarely. Old, early, double or void records are not faults.
"""

import math
from dataclasses import dataclass
from enum import Enum

from protocol.wire import PeerId
from sfnode.network import bounds


class Fault(Enum):
    """A fault of a peer; the value is its penalty."""

    GARBAGE = -100.0  # bytes that no honest node can send: fatal at once
    STALLED = -15.0  # did not read for WRITE_S; a closed laptop does so too, but not four times in ten minutes
    SILENT = -14.0  # opened a session and said nothing for HELLO_S
    STREAMS = -2.0  # one stream more than a peer may have


class PeerVerdict(Enum):
    """The consequence of a fault."""

    TOLERATED = "tolerated"
    DISCOURAGED = "discouraged"  # end the session; neither dial nor accept the peer
    SPARED = "spared"  # end the session, rest for SPARED_S: too many peers seem bad, so the fault is probably ours


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscouragedRow:
    """The record of a discouraged peer on disk."""

    peer: str
    until_unix_s: int


@dataclass(slots=True)
class _Score:
    points: float
    updated_s: float

    def at(self, now_s: float) -> float:
        """Return the score now, decayed towards 0."""
        return self.points * math.exp2((self.updated_s - now_s) / bounds.SCORE_HALF_LIFE_S)


class Reputation:
    """Holds scores and discouraged peers, both bounded. ``now_s`` is the time of a monotonic clock."""

    def __init__(self) -> None:
        self._scores: dict[PeerId, _Score] = {}
        self._until_s: dict[PeerId, float] = {}
        self._met_s: dict[PeerId, float] = {}  # when a session with the peer last began or ran
        self._hit_s: dict[PeerId, float] = {}  # when a peer that was met was last discouraged or spared

    def met(self, peer: PeerId, now_s: float) -> None:
        """Record that a session with the peer runs: the breaker counts bad peers among these."""
        self._met_s.pop(peer, None)
        self._met_s[peer] = now_s
        while len(self._met_s) > bounds.SCORES_MAX:
            del self._met_s[next(iter(self._met_s))]

    def penalise(self, peer: PeerId, fault: Fault, now_s: float) -> PeerVerdict:
        """Lower the peer's score by a fault; return the consequence."""
        points = self.score(peer, now_s) + fault.value
        if points > bounds.SCORE_DISCOURAGED:
            self._scores[peer] = _Score(points, now_s)
            if len(self._scores) > bounds.SCORES_MAX:
                del self._scores[max(self._scores, key=lambda each: self._scores[each].at(now_s))]
            return PeerVerdict.TOLERATED
        self._scores.pop(peer, None)
        if self._is_breaker_open(peer, now_s):
            self._discourage(peer, now_s + bounds.SPARED_S)
            return PeerVerdict.SPARED
        self._discourage(peer, now_s + bounds.DISCOURAGED_S)
        return PeerVerdict.DISCOURAGED

    def score(self, peer: PeerId, now_s: float) -> float:
        """Return the peer's score, at most 0."""
        held = self._scores.get(peer)
        return held.at(now_s) if held else 0.0

    def is_pushed_to(self, peer: PeerId, now_s: float) -> bool:
        """Return whether new records are flooded to the peer."""
        return self.score(peer, now_s) > bounds.SCORE_NOT_PUSHED

    def is_discouraged(self, peer: PeerId, now_s: float) -> bool:
        """Return whether the peer is neither dialled nor accepted."""
        return self._until_s.get(peer, now_s) > now_s

    def discouraged(self, now_s: float) -> frozenset[PeerId]:
        """Return all discouraged peers; forget those whose time is over."""
        self._until_s = {peer: until_s for peer, until_s in self._until_s.items() if until_s > now_s}
        return frozenset(self._until_s)

    # --- persistence

    def rows(self, now_s: float, unix_ms: int) -> tuple[DiscouragedRow, ...]:
        """Return the discouraged peers for the disk, ordered by peer. ``unix_ms``: ``now_s`` by the wall clock."""
        return tuple(
            DiscouragedRow(peer=peer, until_unix_s=round(unix_ms / 1_000 + self._until_s[peer] - now_s))
            for peer in sorted(self.discouraged(now_s))
        )

    def restore(self, rows: tuple[DiscouragedRow, ...], now_s: float, unix_ms: int) -> None:
        """Take over the ``rows`` of an earlier start.

        No peer is discouraged for longer than DISCOURAGED_S, even if the wall clock has jumped.
        """
        for row in rows[: bounds.DISCOURAGED_MAX]:
            left_s = min(row.until_unix_s - unix_ms / 1_000, bounds.DISCOURAGED_S)
            if left_s > 0:
                self._discourage(PeerId(row.peer), now_s + left_s)

    # --- helpers

    def _discourage(self, peer: PeerId, until_s: float) -> None:
        self._until_s[peer] = max(until_s, self._until_s.get(peer, until_s))  # being spared shortens nothing
        if len(self._until_s) > bounds.DISCOURAGED_MAX:
            del self._until_s[min(self._until_s, key=self._until_s.__getitem__)]

    def _is_breaker_open(self, peer: PeerId, now_s: float) -> bool:
        """Return whether too many of the peers with a session seem bad. A peer without a session never counts."""
        since_s = now_s - bounds.BREAKER_S
        self._met_s = {met: at_s for met, at_s in self._met_s.items() if at_s >= since_s}
        self._hit_s = {hit: at_s for hit, at_s in self._hit_s.items() if at_s >= since_s}
        if peer not in self._met_s:
            return False
        # A bug of ours makes many peers seem bad at once: beyond a part of the peers met, further ones are spared.
        self._hit_s[peer] = now_s
        return len(self._hit_s) > max(bounds.BREAKER_FREE, len(self._met_s) // bounds.BREAKER_PART)
