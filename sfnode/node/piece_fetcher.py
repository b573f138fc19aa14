"""Fetches pieces from several neighbours at once: from those who has them, whoever lies, crawls, stalls or leaves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from protocol.wire import PeerId
from sfnode.network import Ask, Download, Pace, RefusedError, Wanted
from sfnode.node.piece_board import BYTES_PER_S_MIN, WAIT_MIN_S, PieceBoard

PEERS_MAX: Final = 8  # that are asked at once: with 2 MiB of each on the way, more would cost memory and bring no pace
STREAMS: Final = 2  # to one neighbour: while one piece ends, the other flows
REST_START_S: Final = 2.0  # a neighbour that gave no piece is asked again after this, then twice as long, ...
REST_MAX_S: Final = 60.0  # it may get the model, or make room
_LOOK_S: Final = 0.25  # how often is looked for neighbours that may be asked again, and for pieces that take too long


Keep = Callable[[int, bytes, PeerId], Awaitable[None]]


class PieceSources(Protocol):
    """Where pieces come from: `NeighbourFiles`."""

    def peers(self) -> frozenset[PeerId]:
        """Those who can be asked now."""

    def asking(self, peer: PeerId) -> AbstractAsyncContextManager[Ask]:
        """A stream to one of them. RefusedError."""


@dataclass(slots=True)
class KnownNeighbours:
    """What is known of neighbours: how often each has lost a piece to a faster one, and who has given any."""

    losses: Counter[PeerId] = field(default_factory=Counter)
    givers: set[PeerId] = field(default_factory=set)

    def forget_all_but(self, peers: frozenset[PeerId]) -> None:
        """Forget those that are no neighbours any more."""
        self.losses = Counter({peer: count for peer, count in self.losses.items() if peer in peers})
        self.givers &= peers


class PieceFetcher:
    """One model's pieces. What it has learnt of its neighbours lasts from one `fetch` to the next."""

    def __init__(
        self,
        sources: PieceSources,
        pace: Pace,
        *,
        streams: int = STREAMS,
        known: KnownNeighbours | None = None,
    ) -> None:
        """``streams``: to one neighbour. ``known``: by other fetchers, too."""
        self.received_bytes = 0
        self._sources = sources
        self._pace = pace
        self._streams_max = streams
        self._known = known or KnownNeighbours()
        self._tried: set[PeerId] = set()
        self._rests: dict[PeerId, _Rest] = {}
        self._streams: Counter[PeerId] = Counter()

    def givers(self) -> int:
        """How many neighbours are at it that have given a piece."""
        return sum(1 for peer in self._streams if peer in self._known.givers)

    async def fetch(
        self, count: int, wanted: Callable[[int], Wanted], keep: Keep, *, waits_for_ever: bool = True
    ) -> bool:
        """Fetch so many pieces; each goes to ``keep`` with number and giver, perhaps twice. OSError of ``keep``.

        Waits for ever for neighbours that have them; or returns False when all have been asked in vain.
        """
        start_s = max(WAIT_MIN_S, wanted(0).size / BYTES_PER_S_MIN) if count else 0.0
        fetching = _Fetching(wanted=wanted, keep=keep, board=PieceBoard(count, start_s))
        async with trio.open_nursery() as nursery:
            while not fetching.board.is_done and fetching.failure is None:
                self._ask_neighbours(fetching, nursery)
                if not waits_for_ever and self._is_in_vain():
                    break
                fetching.changed = trio.Event()
                with trio.move_on_after(_LOOK_S):
                    await fetching.changed.wait()
            nursery.cancel_scope.cancel()
        if fetching.failure is not None:
            raise fetching.failure
        return fetching.board.is_done

    def _is_in_vain(self) -> bool:
        """Whether nobody is asked now, and nobody is left who has given something before its rest."""
        return not +self._streams and all(
            peer in self._rests and self._rests[peer].is_in_vain for peer in self._sources.peers()
        )

    def _ask_neighbours(self, fetching: _Fetching, nursery: trio.Nursery) -> None:
        now_s, peers = trio.current_time(), self._sources.peers()
        self._rests = {peer: rest for peer, rest in self._rests.items() if peer in peers}
        ready = [peer for peer in sorted(peers) if peer not in self._rests or self._rests[peer].until_s <= now_s]
        random.shuffle(ready)  # an attacker chooses its ids
        ready.sort(key=lambda peer: (-self._streams[peer], self._known.losses[peer], peer not in self._known.givers))
        self._make_room(fetching, ready)
        for peer in ready:
            has_place = self._streams[peer] or len(+self._streams) < PEERS_MAX
            while has_place and self._streams[peer] < self._streams_max:
                stream = _Giving(peer=peer)
                self._take(fetching, stream)
                if stream.piece is None:
                    break
                self._streams[peer] += 1
                self._tried.add(peer)
                nursery.start_soon(self._use_stream, fetching, stream)

    def _make_room(self, fetching: _Fetching, ready: list[PeerId]) -> None:
        """Where all places are taken and somebody waits for one: the slowest of the eight loses its own, if it takes
        too long, or if somebody has not been tried. All eight may be slow, and so alike.

        Where our own line is the slow one that would go on for ever: each is tried once, and "too long" is twice as
        long after each time, until a piece comes.
        """
        now_s, waiting = trio.current_time(), [peer for peer in ready if not self._streams[peer]]
        waits_s = fetching.board.waits_s(now_s)
        if not waiting or not waits_s or len(+self._streams) < PEERS_MAX:
            return
        slowest = max(waits_s, key=lambda peer: waits_s[peer])
        is_trial = now_s - fetching.room_made_s >= fetching.board.start_s and not self._tried.issuperset(waiting)
        if is_trial or waits_s[slowest] >= fetching.board.patience_s() * 2**fetching.rooms_made:
            fetching.room_made_s = now_s
            fetching.rooms_made += 1
            self._stop([stream for stream in fetching.streams if stream.peer == slowest])

    def _take(self, fetching: _Fetching, stream: _Giving) -> None:
        """Find a piece to ask for on the stream. Who loses it to this peer stops at once."""
        piece = stream.piece = fetching.board.take(stream.peer, trio.current_time())
        if piece is not None:
            board, at_it = fetching.board, [other for other in fetching.streams if other.piece == piece]
            self._stop([other for other in at_it if not board.is_asked(piece, other.peer)])
            fetching.streams.append(stream)

    async def _use_stream(self, fetching: _Fetching, stream: _Giving) -> None:
        """One piece after the other, as long as there are any and the peer brings them in time."""
        try:
            with stream.scope, suppress(RefusedError):
                await self._get_all(fetching, stream)
            if stream.piece is not None:
                fetching.board.failed(stream.piece, stream.peer)
                self._rest(stream.peer, has_given=stream.came > 0)
        finally:
            if stream in fetching.streams:
                fetching.streams.remove(stream)
            self._streams[stream.peer] -= 1
            self._streams = +self._streams
            fetching.changed.set()

    async def _get_all(self, fetching: _Fetching, stream: _Giving) -> None:
        """RefusedError: a piece did not come. Cancelled: another neighbour was faster."""
        async with self._sources.asking(stream.peer) as ask:
            while (piece := stream.piece) is not None:
                data = await ask(Download(fetching.wanted(piece), pace=self._pace))
                fetching.streams.remove(stream)
                self._stop([other for other in fetching.streams if other.piece == piece])
                self.received_bytes += len(data)
                self._known.givers.add(stream.peer)
                try:
                    await fetching.keep(piece, data, stream.peer)
                except OSError as error:
                    fetching.failure = error
                    return
                fetching.board.came(piece, stream.peer, trio.current_time())
                fetching.rooms_made = 0
                stream.came += 1
                self._take(fetching, stream)

    def _stop(self, slow: Sequence[_Giving]) -> None:
        """End these streams, which have lost their piece; their peers come last from now on."""
        for stream in slow:
            if not stream.scope.cancel_called:
                self._known.losses[stream.peer] += 1
                stream.scope.cancel()

    def _rest(self, peer: PeerId, *, has_given: bool) -> None:
        """Leave it alone for a while, each time longer, unless it gave something. Its streams end together."""
        now_s, last = trio.current_time(), self._rests.get(peer)
        if last is not None and last.until_s > now_s:
            return
        longer_s = 0.0 if last is None or has_given else 2 * last.pause_s
        pause_s = min(max(longer_s, REST_START_S), REST_MAX_S)
        self._rests[peer] = _Rest(until_s=now_s + pause_s, pause_s=pause_s, is_in_vain=not has_given)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    until_s: float
    pause_s: float
    is_in_vain: bool


@dataclass(slots=True, kw_only=True, eq=False)
class _Giving:
    """To one neighbour: the piece that it is asked for now, and how many have come."""

    peer: PeerId
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    piece: int | None = None
    came: int = 0


@dataclass(slots=True, kw_only=True)
class _Fetching:
    """One call of `fetch`."""

    wanted: Callable[[int], Wanted]
    keep: Keep
    board: PieceBoard
    changed: trio.Event = field(default_factory=trio.Event)
    failure: OSError | None = None
    streams: list[_Giving] = field(default_factory=list)  # that wait for a piece
    room_made_s: float = field(default_factory=trio.current_time)
    rooms_made: int = 0  # since the last piece came
