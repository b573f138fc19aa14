"""Fetches a file of which the hash of the whole alone is known, a basis or a snapshot, from several neighbours at once.

Segments come from up to eight neighbours, as pieces of a model do. Nobody can tell whether one segment is right. So
where the whole is wrong, one neighbour after the other is asked for all of it: who then sends another file is caught by
its hash, and the right file shows which segments were wrong, and who gave them.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Final, Protocol

from protocol.limits import PART_BYTES_MAX
from protocol.wire import PeerId
from sfnode.network import Pace, Wanted, segment_of
from sfnode.node.piece_fetcher import KnownNeighbours, PieceFetcher, PieceSources

SEGMENT_BYTES: Final = 4 * PART_BYTES_MAX  # a basis of 1 MiB has eight: one for each neighbour


class FileSources(PieceSources, Protocol):
    """Where files come from: `NeighbourFiles`."""

    def gave_false_bytes(self, peer: PeerId, name: str) -> None:
        """Hold it against one of them."""


class FileFetcher:
    """Files from neighbours. Those that were too slow for one file are asked last for the next."""

    def __init__(self, sources: FileSources) -> None:
        self._sources = sources
        self._known = KnownNeighbours()

    async def fetch(self, wanted: Wanted) -> bytes | None:
        """Return the file, whose length and hash are known; None when no neighbour has all of it now."""
        assert wanted.total is not None
        self._known.forget_all_but(self._sources.peers())
        data, givers = bytearray(wanted.total), dict[int, PeerId]()

        async def keep(number: int, segment: bytes, giver: PeerId) -> None:
            data[number * SEGMENT_BYTES : number * SEGMENT_BYTES + len(segment)] = segment
            givers[number] = giver

        count = -(-wanted.total // SEGMENT_BYTES)

        def segment(number: int) -> Wanted:
            return segment_of(wanted, number * SEGMENT_BYTES, SEGMENT_BYTES)

        if not await self._fetcher().fetch(count, segment, keep, waits_for_ever=False):
            return None
        if hashlib.sha256(data).hexdigest() == wanted.sha256:
            return bytes(data)
        right = await self._fetch_from_one(wanted)
        if right is None:
            return None
        places = {number: slice(number * SEGMENT_BYTES, (number + 1) * SEGMENT_BYTES) for number in givers}
        for liar in sorted({givers[number] for number, place in places.items() if data[place] != right[place]}):
            self._sources.gave_false_bytes(liar, wanted.name)
        return right

    async def _fetch_from_one(self, wanted: Wanted) -> bytes | None:
        """Return the file as one neighbour alone has it; None when none gives it. Two are asked at once at most."""
        found: list[bytes] = []

        async def keep(_number: int, data: bytes, _giver: PeerId) -> None:
            found.append(data)

        whole = replace(wanted, is_of_one_peer=True)
        await self._fetcher().fetch(1, lambda _: whole, keep, waits_for_ever=False)
        return found[0] if found else None

    def _fetcher(self) -> PieceFetcher:
        """A new one for each file: neighbours that had none of the last one are asked for this."""
        return PieceFetcher(self._sources, Pace(0.0), streams=1, known=self._known)
