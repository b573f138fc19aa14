"""Fetches pieces from several neighbours at once: from whoever has them, however many lie, stall or leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

import trio

from protocol.wire import PeerId
from sfnode.network import Ask, Download, Pace, RefusedError, Wanted
from sfnode.node.piece_board import PieceBoard

PEERS_MAX: Final = 8  # that are asked at once: with 2 MiB of each on the way, more would cost memory and bring no pace
STREAMS: Final = 2  # to one neighbour: while one piece ends, the other flows
REST_START_S: Final = 2.0  # a neighbour that gave no piece is asked again after this, then twice as long, ...
REST_MAX_S: Final = 60.0  # it may get the model, or make room
_LOOK_S: Final = 0.25  # how often is looked for neighbours that may be asked again, and for pieces that take too long

Keep = Callable[[int, bytes], Awaitable[None]]


class PieceSources(Protocol):
    """Where pieces come from: `NeighbourFiles`."""

    def peers(self) -> frozenset[PeerId]:
        """Those who can be asked now."""

    def asking(self, peer: PeerId) -> AbstractAsyncContextManager[Ask]:
        """A stream to one of them. RefusedError."""


class PieceFetcher:
    """One model's pieces. What it has learnt of its neighbours lasts from one `fetch` to the next."""

    def __init__(self, sources: PieceSources, pace: Pace) -> None:
        self.received_bytes = 0
        self._sources = sources
        self._pace = pace
        self._rests: dict[PeerId, _Rest] = {}
        self._streams: Counter[PeerId] = Counter()
        self._givers: set[PeerId] = set()

    def givers(self) -> int:
        """How many neighbours are at it that have given a piece."""
        return sum(1 for peer in self._streams if peer in self._givers)

    async def fetch(self, count: int, wanted: Callable[[int], Wanted], keep: Keep) -> None:
        """So many pieces, each with its number to ``keep``, perhaps twice. OSError of ``keep``.

        Waits for ever for neighbours that have them.
        """
        fetching = _Fetching(wanted=wanted, keep=keep, board=PieceBoard(count))
        async with trio.open_nursery() as nursery:
            while not fetching.board.is_done and fetching.failure is None:
                self._ask_neighbours(fetching, nursery)
                fetching.changed = trio.Event()
                with trio.move_on_after(_LOOK_S):
                    await fetching.changed.wait()
            nursery.cancel_scope.cancel()
        if fetching.failure is not None:
            raise fetching.failure

    def _ask_neighbours(self, fetching: _Fetching, nursery: trio.Nursery) -> None:
        now_s, peers = trio.current_time(), self._sources.peers()
        self._rests = {peer: rest for peer, rest in self._rests.items() if peer in peers}
        ready = [peer for peer in sorted(peers) if peer not in self._rests or self._rests[peer].until_s <= now_s]
        for peer in sorted(ready, key=lambda peer: (-self._streams[peer], peer not in self._givers)):
            has_place = self._streams[peer] or len(+self._streams) < PEERS_MAX
            while has_place and self._streams[peer] < STREAMS:
                piece = fetching.board.take(peer, now_s)
                if piece is None:
                    break
                self._streams[peer] += 1
                nursery.start_soon(self._use_stream, fetching, peer, piece)

    async def _use_stream(self, fetching: _Fetching, peer: PeerId, piece: int | None) -> None:
        """One piece after the other, as long as there are any and the peer brings them."""
        came = 0
        try:
            async with self._sources.asking(peer) as ask:
                while piece is not None:
                    await self._get(fetching, ask, peer, piece)
                    came += 1
                    piece = fetching.board.take(peer, trio.current_time())
        except RefusedError:
            if piece is not None:
                fetching.board.failed(piece, peer)
            self._rest(peer, has_given=came > 0)
        finally:
            self._streams[peer] -= 1
            self._streams = +self._streams
            fetching.changed.set()

    async def _get(self, fetching: _Fetching, ask: Ask, peer: PeerId, piece: int) -> None:
        """RefusedError: it did not come, or another neighbour was faster and the stream is full of the rest."""
        with trio.CancelScope() as scope:
            fetching.scopes[piece, peer] = scope
            try:
                data = await ask(Download(fetching.wanted(piece), pace=self._pace))
            finally:
                del fetching.scopes[piece, peer]
        if scope.cancelled_caught:
            raise RefusedError("another neighbour was faster")
        for (other, _), slower in fetching.scopes.items():
            if other == piece:
                slower.cancel()
        self.received_bytes += len(data)
        self._givers.add(peer)
        try:
            await fetching.keep(piece, data)
        except OSError as error:
            fetching.failure = error
            return
        fetching.board.came(piece, peer, trio.current_time())

    def _rest(self, peer: PeerId, *, has_given: bool) -> None:
        """Leave it alone for a while, each time longer, unless it gave something. Its streams end together."""
        now_s, last = trio.current_time(), self._rests.get(peer)
        if last is not None and last.until_s > now_s:
            return
        longer_s = 0.0 if last is None or has_given else 2 * last.pause_s
        pause_s = min(max(longer_s, REST_START_S), REST_MAX_S)
        self._rests[peer] = _Rest(until_s=now_s + pause_s, pause_s=pause_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rest:
    until_s: float
    pause_s: float


@dataclass(slots=True, kw_only=True)
class _Fetching:
    """One call of `fetch`."""

    wanted: Callable[[int], Wanted]
    keep: Keep
    board: PieceBoard
    changed: trio.Event = field(default_factory=trio.Event)
    failure: OSError | None = None
    scopes: dict[tuple[int, PeerId], trio.CancelScope] = field(default_factory=dict)
