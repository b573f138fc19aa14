"""Fetches a file from several neighbours at once when only the hash of the whole is known: a snapshot.

Segments come from up to eight neighbours, as pieces of a model do, but a single segment cannot be checked. If the whole
is wrong, neighbours are asked one after the other for all of it. A neighbour that then sends a wrong file is caught by
the hash. The right file shows which segments were wrong, and who gave them.
"""

import hashlib
from dataclasses import replace

from protocol.limits import PART_BYTES_MAX
from protocol.wire import PeerId
from sfnode.network import Pace, Wanted, sessions
from sfnode.node.piece_fetcher import KnownNeighbours, PieceFetcher

SEGMENT_BYTES = 4 * PART_BYTES_MAX  # a snapshot of 1 MiB has eight: one for each neighbour


class FileFetcher:
    """Fetches files from neighbours. Neighbours that were too slow for one file are asked last for the next."""

    def __init__(self, sources: sessions.NeighbourFiles) -> None:
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
            return wanted.segment(number * SEGMENT_BYTES, SEGMENT_BYTES)

        if not await self._fetcher().fetch(count, segment, keep, waits_for_ever=False):
            return None
        if hashlib.sha256(data).hexdigest() == wanted.sha256:
            return bytes(data)
        right = await self._fetch_from_one(wanted)
        if right is None:
            return None
        # Where the right file differs from the assembled one, the giver of that segment sent false bytes.
        places = {number: slice(number * SEGMENT_BYTES, (number + 1) * SEGMENT_BYTES) for number in givers}
        for liar in sorted({givers[number] for number, place in places.items() if data[place] != right[place]}):
            self._sources.gave_false_bytes(liar, wanted.name)
        return right

    async def _fetch_from_one(self, wanted: Wanted) -> bytes | None:
        """Return the file as one single neighbour has it; None if none gives it. At most two are asked at a time."""
        found: list[bytes] = []

        async def keep(_number: int, data: bytes, _giver: PeerId) -> None:
            found.append(data)

        whole = replace(wanted, is_of_one_peer=True)
        await self._fetcher().fetch(1, lambda _: whole, keep, waits_for_ever=False)
        return found[0] if found else None

    def _fetcher(self) -> PieceFetcher:
        """Return a new fetcher for a file, which asks again the neighbours that lacked the one before."""
        return PieceFetcher(self._sources, Pace(0.0), streams=1, known=self._known)
