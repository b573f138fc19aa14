"""Tracks which pieces are missing, and which peers are asked for them. Pure: no clock, no sockets."""

from collections import Counter, deque
from statistics import median

from protocol.wire import PeerId

WAIT_MIN_S = 1.0  # even if the others were faster: a neighbour may be busy for a moment
WAIT_FACTOR = 4  # times the median of the last pieces: a neighbour may be slower than the others
ASKED_MAX = 2  # peers for one piece at a time: a duplicate costs one piece, and occurs only at the end
BYTES_PER_S_MIN = 200_000  # of a neighbour, until a pace is measured: 5 s for a piece of the model
_TIMES_KEPT = 16  # pieces whose times give the present pace


class PieceBoard:
    """Assigns pieces to peers, each piece to one peer at first.

    Once none is unassigned, another peer is asked, too, for one that takes far longer than others did. A peer that
    loses a piece gets twice the time at its next turn, so the piece comes in the end, even if all peers are slow.
    The last piece, where the others took 1 s, and the patience is 4 s:

        0 s    A is asked
        4      A is too slow: B is asked, too
        8      both are: C takes the place of A, which has lost the piece once
        12     B and C are: A takes the place of B, and has 8 s now
        20     A and C are: D takes the place of C
    """

    def __init__(self, count: int, start_s: float) -> None:
        """Create a board of ``count`` pieces; ``start_s`` is the time for a piece until a pace is measured."""
        self.start_s = start_s
        self._lost: Counter[tuple[int, PeerId]] = Counter()
        self._missing = deque(range(count))
        self._asked: dict[int, dict[PeerId, float]] = {}  # piece -> peers asked for it, and since when
        self._left = set(range(count))
        self._times_s: deque[float] = deque(maxlen=_TIMES_KEPT)

    @property
    def is_done(self) -> bool:
        return not self._left

    def take(self, peer: PeerId, now_s: float) -> int | None:
        """Return a piece to request from this peer; None if there is none for it now."""
        piece = self._missing.popleft() if self._missing else self._overdue(peer, now_s)
        if piece is None:
            return None
        asked = self._asked.setdefault(piece, {})
        if len(asked) >= ASKED_MAX:
            slowest = min(asked, key=lambda other: asked[other])
            del asked[slowest]
            self._lost[piece, slowest] += 1
        asked[peer] = now_s
        return piece

    def is_asked(self, piece: int, peer: PeerId) -> bool:
        return peer in self._asked.get(piece, {})

    def waits_s(self, now_s: float) -> dict[PeerId, float]:
        """Return for each peer that is asked now how long its oldest piece has been on its way."""
        waits: dict[PeerId, float] = {}
        for asked in self._asked.values():
            for peer, since_s in asked.items():
                waits[peer] = max(waits.get(peer, 0.0), now_s - since_s)
        return waits

    def came(self, piece: int, peer: PeerId, now_s: float) -> None:
        asked = self._asked.pop(piece, {})
        if peer in asked:
            self._times_s.append(now_s - asked[peer])
        self._left.discard(piece)

    def failed(self, piece: int, peer: PeerId) -> None:
        """Record that this peer does not bring the piece. Another peer may be asked for it, or may have brought it."""
        asked = self._asked.get(piece, {})
        asked.pop(peer, None)
        if piece in self._asked and not asked:
            del self._asked[piece]
            self._missing.appendleft(piece)

    def patience_s(self) -> float:
        """Return how long a single peer may take for a piece, by the pace of the last ones."""
        if not self._times_s:
            return self.start_s
        return max(WAIT_MIN_S, WAIT_FACTOR * median(self._times_s))

    def _overdue(self, peer: PeerId, now_s: float) -> int | None:
        """Return the piece that has been awaited longest, if all its peers are too slow; else None."""
        patience_s = self.patience_s()

        def is_slow(piece: int, other: PeerId, since_s: float) -> bool:
            # Each loss of the piece doubles the time that a peer gets for it.
            allowed_s: float = patience_s * 2 ** self._lost[piece, other]
            return now_s - since_s >= allowed_s

        waits = [
            (min(asked.values()), piece)
            for piece, asked in self._asked.items()
            if peer not in asked and all(is_slow(piece, other, since_s) for other, since_s in asked.items())
        ]
        return min(waits)[1] if waits else None
