"""A node's snapshot files: stores and serves its own, and fetches one for a joiner from its neighbours."""

import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import trio

from protocol import events
from protocol.errors import OperatorError
from protocol.events import SnapshotOutcome
from protocol.limits import PART_BYTES_MAX
from protocol.run import Manifest
from protocol.state import Replica, snapshot
from protocol.wire import PeerId
from sfnode.network import Pace, Wanted, sessions
from sfnode.node.piece_fetcher import KnownNeighbours, PieceFetcher
from sfnode.reporter import Reporter
from sfnode.storage import DataDirectory, disk
from sfnode.unexpected_errors import Slips

SEGMENT_BYTES = 4 * PART_BYTES_MAX  # a snapshot of 1 MiB has eight: one for each neighbour

_KEPT = 2  # a joiner may still be fetching the older one
_TEXTS = {
    SnapshotOutcome.USED: "training on the snapshot of {authors} authors while the ledger is replayed",
    SnapshotOutcome.PROVED: "the replay has proved the snapshot of {authors} authors: every bit is the same",
    SnapshotOutcome.UNPROVED: "the updates here are not those of the snapshot: going on with what was replayed",
    SnapshotOutcome.USELESS: "{authors} authors attest a file that is not a snapshot of this run: replaying first",
}


class FileFetcher:
    """Fetches a file from several neighbours at once when only the hash of the whole is known.

    Segments come from up to eight neighbours, as pieces of a model do, but a single segment cannot be checked. If the
    whole is wrong, neighbours are asked one after the other for all of it. A neighbour that then sends a wrong file is
    caught by the hash. The right file shows which segments were wrong, and who gave them. Neighbours that were too slow
    for one file are asked last for the next.
    """

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


class SnapshotFiles:
    """Stores, finds and fetches snapshots for the core."""

    def __init__(self, data_dir: DataDirectory, reporter: Reporter) -> None:
        self._data_dir = data_dir
        self._reporter = reporter

    def find(self, manifest: Manifest, sha256: str) -> disk.HeldFile | None:
        """Return the snapshot or the basis with this hash; None if there is none."""
        found = self._data_dir.path.glob(f"snapshot-*-{sha256[:16]}.bin")
        with suppress(OSError):  # a snapshot's file is removed when newer ones exist
            basis = [self._data_dir.basis.path] if sha256 == manifest.method.basis_sha256 else []
            return next((disk.HeldFile(path) for path in (*found, *basis)), None)
        return None

    def save_evidence(self, replica: Replica, halt: events.Halt) -> Path:
        """Write the evidence of why the node stops, with the false snapshot if there is one; return the file."""
        path = self._data_dir.path / "halt.json"
        if replica.snapshot is not None:
            disk.write_durably(
                path.with_name("halt-snapshot.bin"), snapshot.encode_snapshot(replica.manifest, replica.snapshot)
            )
        evidence = {
            "detail": halt.detail,
            "ledger_root": replica.ledger.root().hex(),
            "state_digest": replica.state_digest().hex(),
            "replayed_digest": replica.replayed_digest().hex(),
            "attestations": [attestation.hex() for attestation in halt.attestations],
        }
        disk.write_json(path, evidence)
        return path

    async def run(
        self,
        files: FileFetcher,
        slips: Slips,
        wanted: trio.MemoryReceiveChannel[events.StoreSnapshot | events.FetchSnapshot],
        inbox: trio.MemorySendChannel[events.Event],
    ) -> None:
        """Handle effects one by one until cancelled."""
        async for effect in wanted:
            if isinstance(effect, events.FetchSnapshot):
                # Also after exceptions: the core waits for an answer.
                event: events.Event = events.FetchFailed(sha256=effect.sha256)
                with slips.contained("fetching a snapshot"):
                    data = await files.fetch(Wanted.snapshot(effect.sha256, effect.file_bytes))
                    event = event if data is None else events.SnapshotArrived(data=data)
                await inbox.send(event)
                continue
            with slips.contained("storing a snapshot"):
                if reason := await trio.to_thread.run_sync(self._store, effect):
                    self._reporter.event("snapshot_not_stored", f"the snapshot is not stored: {reason}", reason=reason)

    def report(self, effect: events.ReportSnapshot) -> None:
        authors = [author.hex() for author in effect.authors]
        text = f"{_TEXTS[effect.outcome].format(authors=len(authors))} (steps before {effect.step})"
        self._reporter.event(f"snapshot_{effect.outcome}", text, step=effect.step, authors=authors)

    def _store(self, made: events.StoreSnapshot) -> str:
        """Store a snapshot; return in words why that failed. A failure stops nothing: others have the snapshot."""
        try:
            disk.write_durably(self._data_dir.path / f"snapshot-{made.step:07}-{made.sha256[:16]}.bin", made.data)
            for path in sorted(self._data_dir.path.glob(f"snapshot-*-{'?' * 16}.bin"))[:-_KEPT]:
                path.unlink(missing_ok=True)
        except (OperatorError, OSError) as error:
            return str(error)
        return ""
