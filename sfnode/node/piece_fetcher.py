"""Fetches pieces from several neighbours at once, in spite of neighbours that lie, stall, leave or are slow."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import trio

from protocol.wire import PeerId
from sfnode.network import Download, Pace, RefusedError, Wanted, sessions
from sfnode.node.piece_board import BYTES_PER_S_MIN, WAIT_MIN_S, PieceBoard

PEERS_MAX = 8  # asked at once: with 2 MiB on the way from each, more would cost memory and not be faster
STREAMS = 2  # per neighbour: while one piece ends, the other flows
REST_START_S = 2.0  # the rest of a neighbour that gave no piece; it doubles each time
REST_MAX_S = 60.0  # the neighbour may get the model later, or make room
_LOOK_S = 0.25  # how often to look for neighbours whose rest is over, and for pieces that take too long


Keep = Callable[[int, bytes, PeerId], Awaitable[None]]


@dataclass(slots=True)
class KnownNeighbours:
    """Remembers how often each neighbour lost a piece to a faster one, and which neighbours have given any."""

    losses: Counter[PeerId] = field(default_factory=Counter)
    givers: set[PeerId] = field(default_factory=set)

    def forget_all_but(self, peers: frozenset[PeerId]) -> None:
        self.losses = Counter({peer: count for peer, count in self.losses.items() if peer in peers})
        self.givers &= peers


class PieceFetcher:
    """Fetches the pieces of one model. What it learns about neighbours lasts from one `fetch` to the next."""

    def __init__(
        self,
        sources: sessions.NeighbourFiles,
        pace: Pace,
        *,
        streams: int = STREAMS,
        known: KnownNeighbours | None = None,
    ) -> None:
        """Create a fetcher with ``streams`` to each neighbour; ``known`` may be shared with other fetchers."""
        self.received_bytes = 0
        self._sources = sources
        self._pace = pace
        self._streams_max = streams
        self._known = known or KnownNeighbours()
        self._tried: set[PeerId] = set()
        self._rests: dict[PeerId, _Rest] = {}
        self._streams: Counter[PeerId] = Counter()

    def givers(self) -> int:
        """Count the neighbours that are asked now and have given a piece before."""
        return sum(1 for peer in self._streams if peer in self._known.givers)

    async def fetch(
        self, count: int, wanted: Callable[[int], Wanted], keep: Keep, *, waits_for_ever: bool = True
    ) -> bool:
        """Fetch ``count`` pieces; pass each to ``keep`` with its number and giver, perhaps twice. OSError of ``keep``.

        Wait without limit for neighbours that have the pieces; or, if not ``waits_for_ever``, return False once all
        have been asked in vain.
        """
        start_s = max(WAIT_MIN_S, wanted(0).size / BYTES_PER_S_MIN) if count else 0.0
        fetching = _Fetching(wanted=wanted, keep=keep, board=PieceBoard(count, start_s))
        async with trio.open_nursery() as nursery:
            while not fetching.board.is_done and fetching.failure is None:
                self._ask_neighbours(fetching, nursery)
                rests = [self._rests.get(peer) for peer in self._sources.peers()]
                is_in_vain = not +self._streams and all(rest is not None and rest.is_in_vain for rest in rests)
                if is_in_vain and not waits_for_ever:
                    break
                fetching.changed = trio.Event()
                with trio.move_on_after(_LOOK_S):
                    await fetching.changed.wait()
            nursery.cancel_scope.cancel()
        if fetching.failure is not None:
            raise fetching.failure
        return fetching.board.is_done

    def _ask_neighbours(self, fetching: "_Fetching", nursery: trio.Nursery) -> None:
        now_s, peers = trio.current_time(), self._sources.peers()
        self._rests = {peer: rest for peer, rest in self._rests.items() if peer in peers}
        ready = [peer for peer in sorted(peers) if peer not in self._rests or self._rests[peer].until_s <= now_s]
        random.shuffle(ready)  # an attacker chooses its ids
        # First the neighbours that give now, then those that lost the fewest pieces, then known givers.
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

    def _make_room(self, fetching: "_Fetching", ready: list[PeerId]) -> None:
        """Stop the slowest neighbour if all places are taken, another one waits, and one of two conditions holds.

        Either the slowest takes too long, or a waiting neighbour has not been tried: all eight may be equally slow. If
        our own line is the bottleneck, this would never end. So each neighbour is tried once, and "too long" doubles
        for all after each time until a piece comes, from anybody: with a patience of 4 s, it is 4, 8, 16 ... s.
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

    def _take(self, fetching: "_Fetching", stream: "_Giving") -> None:
        """Assign a piece to the stream. Streams that lose the piece to this peer stop at once."""
        piece = stream.piece = fetching.board.take(stream.peer, trio.current_time())
        if piece is not None:
            board, at_it = fetching.board, [other for other in fetching.streams if other.piece == piece]
            self._stop([other for other in at_it if not board.is_asked(piece, other.peer)])
            fetching.streams.append(stream)

    async def _use_stream(self, fetching: "_Fetching", stream: "_Giving") -> None:
        """Fetch piece after piece, as long as there are any and the peer brings them in time."""
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

    async def _get_all(self, fetching: "_Fetching", stream: "_Giving") -> None:
        """Fetch pieces on one stream. RefusedError: a piece did not come. Cancelled: another neighbour was faster."""
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

    def _stop(self, slow: "Sequence[_Giving]") -> None:
        """End these streams, which have lost their piece; their peers come last from now on."""
        for stream in slow:
            if not stream.scope.cancel_called:
                self._known.losses[stream.peer] += 1
                stream.scope.cancel()

    def _rest(self, peer: PeerId, *, has_given: bool) -> None:
        """Leave a peer alone for a while, each time twice as long unless it gave something."""
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
    """Holds the state of a stream to one neighbour: the piece that is asked for, and how many have come."""

    peer: PeerId
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    piece: int | None = None
    came: int = 0


@dataclass(slots=True, kw_only=True)
class _Fetching:
    """Holds the state of one call of `fetch`."""

    wanted: Callable[[int], Wanted]
    keep: Keep
    board: PieceBoard
    changed: trio.Event = field(default_factory=trio.Event)
    failure: OSError | None = None
    streams: list[_Giving] = field(default_factory=list)  # waiting for a piece
    room_made_s: float = field(default_factory=trio.current_time)
    rooms_made: int = 0  # since the last piece came
