"""Which pieces are missing, and who is asked for which. Pure: no clock, no sockets."""

from __future__ import annotations

from collections import Counter, deque
from statistics import median
from typing import Final

from protocol.wire import PeerId

WAIT_MIN_S: Final = 1.0  # however fast the others were: a neighbour may be busy for a moment
WAIT_FACTOR: Final = 4  # times the median of the last pieces: a neighbour may be slower than the others
ASKED_MAX: Final = 2  # peers for one piece at once: a duplicate costs a piece, and only at the end
BYTES_PER_S_MIN: Final = 200_000  # of a neighbour, while no pace is known: 5 s for a piece of the model
_TIMES_KEPT: Final = 16  # pieces whose times tell the pace now


class PieceBoard:
    """Each piece is asked of one peer; of a second one when it takes far longer than the others did, and no piece is
    left that nobody is asked for. When both are too slow a third takes the place of the first, and so on.

    A peer that lost a piece so gets twice the time for it at its next turn: in the end it comes, however slow all are.
    """

    def __init__(self, count: int, start_s: float) -> None:
        """``start_s``: the time for a piece while no pace is known."""
        self.start_s = start_s
        self._lost: Counter[tuple[int, PeerId]] = Counter()
        self._missing = deque(range(count))
        self._asked: dict[int, dict[PeerId, float]] = {}  # piece -> who is asked for it, and since when
        self._left = set(range(count))
        self._times_s: deque[float] = deque(maxlen=_TIMES_KEPT)

    @property
    def is_done(self) -> bool:
        """Whether every piece has come."""
        return not self._left

    def take(self, peer: PeerId, now_s: float) -> int | None:
        """A piece to ask this peer for; None: nothing now."""
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
        """Whether this peer is still the one, or one of the two, for the piece."""
        return peer in self._asked.get(piece, {})

    def waits_s(self, now_s: float) -> dict[PeerId, float]:
        """Who is asked for something now, and for how long its oldest piece has been on its way."""
        waits: dict[PeerId, float] = {}
        for asked in self._asked.values():
            for peer, since_s in asked.items():
                waits[peer] = max(waits.get(peer, 0.0), now_s - since_s)
        return waits

    def came(self, piece: int, peer: PeerId, now_s: float) -> None:
        """The piece is here, from this peer."""
        asked = self._asked.pop(piece, {})
        if peer in asked:
            self._times_s.append(now_s - asked[peer])
        self._left.discard(piece)

    def failed(self, piece: int, peer: PeerId) -> None:
        """This peer does not bring the piece. Another may be at it, or may have brought it."""
        asked = self._asked.get(piece, {})
        asked.pop(peer, None)
        if piece in self._asked and not asked:
            del self._asked[piece]
            self._missing.appendleft(piece)

    def patience_s(self) -> float:
        """For how long one peer alone may take for a piece, by the pace of the last ones."""
        if not self._times_s:
            return self.start_s
        return max(WAIT_MIN_S, WAIT_FACTOR * median(self._times_s))

    def _overdue(self, peer: PeerId, now_s: float) -> int | None:
        """The piece that has been waited for longest, where that is too long."""
        patience_s = self.patience_s()

        def is_slow(piece: int, other: PeerId, since_s: float) -> bool:
            allowed_s: float = patience_s * 2 ** self._lost[piece, other]
            return now_s - since_s >= allowed_s

        waits = [
            (min(asked.values()), piece)
            for piece, asked in self._asked.items()
            if peer not in asked and all(is_slow(piece, other, since_s) for other, since_s in asked.items())
        ]
        return min(waits)[1] if waits else None
