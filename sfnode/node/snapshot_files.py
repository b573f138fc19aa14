"""A node's snapshot files: stores and serves its own, and fetches one for a joiner from its neighbours."""

from contextlib import suppress
from pathlib import Path

import trio

from protocol import events
from protocol.errors import OperatorError
from protocol.events import SnapshotOutcome
from protocol.run import Manifest
from protocol.state import Replica, snapshot
from sfnode.network import Wanted
from sfnode.node.file_fetcher import FileFetcher
from sfnode.reporter import Reporter
from sfnode.storage import DataDirectory, disk
from sfnode.unexpected_errors import Slips

_KEPT = 2  # a joiner may still be fetching the older one
_TEXTS = {
    SnapshotOutcome.USED: "training on the snapshot of {authors} authors while the ledger is replayed",
    SnapshotOutcome.PROVED: "the replay has proved the snapshot of {authors} authors: every bit is the same",
    SnapshotOutcome.UNPROVED: "the updates have changed since the snapshot: going on with what was replayed",
    SnapshotOutcome.USELESS: "{authors} authors attest a file that is not a snapshot of this run: replaying first",
}


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
            for path in sorted(self._data_dir.path.glob("snapshot-*.bin"))[:-_KEPT]:
                path.unlink(missing_ok=True)
        except (OperatorError, OSError) as error:
            return str(error)
        return ""
