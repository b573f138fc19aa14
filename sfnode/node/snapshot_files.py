"""A node's snapshot files: its own are stored and served, one that a joiner wants is fetched from its neighbours."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from protocol.errors import OperatorError
from protocol.events import Event, Halt, SnapshotArrived
from protocol.node.node import Node
from protocol.node.snapshots import SnapshotOutcome
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.state.snapshot import encode_snapshot
from sfnode.network.network import Network
from sfnode.network.sessions.file_download import Download, snapshot_of
from sfnode.reporter import Reporter
from sfnode.storage.files import HeldFile, write_durably, write_json
from sfnode.storage.stored_bases import basis_path

_LOOK_S: Final = 0.25
_RETRY_S: Final = 2.0  # no neighbour had it
_KEPT: Final = 2  # a joiner may be fetching the one before the newest
_TEXTS: Final = {
    SnapshotOutcome.USED: "training on the snapshot of {authors} authors while the ledger is replayed",
    SnapshotOutcome.PROVED: "the replay has proved the snapshot of {authors} authors: every bit is the same",
    SnapshotOutcome.UNPROVED: "the updates are not those of the snapshot any more: going on with what was replayed",
    SnapshotOutcome.USELESS: "{authors} authors attest a file that is no snapshot of this run: replaying first",
}


def find_file(data_dir: Path, manifest: Manifest, sha256: str) -> HeldFile | None:
    """The snapshot or the published basis with this hash; None where there is none."""
    path = next(data_dir.glob(f"snapshot-*-{sha256[:16]}.bin"), basis_path(data_dir, manifest, sha256))
    with suppress(OSError):  # a snapshot's file goes when a newer one is made
        return HeldFile(path)
    return None


def save_evidence(data_dir: Path, replica: Replica, halt: Halt) -> Path:
    """What shows why the node stops; with the false snapshot beside it, where that is why."""
    if replica.overlay is not None:
        write_durably(data_dir / "halt-snapshot.bin", encode_snapshot(replica.manifest, replica.overlay.snapshot))
    evidence = {
        "detail": halt.detail,
        "ledger_root": replica.ledger.root().hex(),
        "state_digest": replica.state_digest().hex(),
        "replayed_digest": replica.replayed_digest().hex(),
        "attestations": [attestation.hex() for attestation in halt.attestations],
    }
    write_json(data_dir / "halt.json", evidence)
    return data_dir / "halt.json"


class SnapshotFiles:
    """Between a node core, its data directory and its neighbours."""

    def __init__(self, node: Node, data_dir: Path, reporter: Reporter) -> None:
        self._node = node
        self._data_dir = data_dir
        self._reporter = reporter
        self._told = SnapshotOutcome.NONE

    async def run(self, network: Network, inbox: trio.MemorySendChannel[Event]) -> None:
        """Until cancelled."""
        while True:
            made, self._node.snapshots.made = self._node.snapshots.made, None
            if made is not None and (reason := await trio.to_thread.run_sync(self._store, *made)):
                self._reporter.event("snapshot_not_stored", f"the snapshot is not stored: {reason}", reason=reason)
            is_missing = not await self._fetch(network, inbox)
            self._report()
            await trio.sleep(_RETRY_S if is_missing else _LOOK_S)

    def _store(self, step: int, sha256: str, data: bytes) -> str:
        """Why it could not be stored, in words; that stops nothing: others have it."""
        try:
            write_durably(self._data_dir / f"snapshot-{step:07}-{sha256[:16]}.bin", data)
            for path in sorted(self._data_dir.glob("snapshot-*.bin"))[:-_KEPT]:
                path.unlink(missing_ok=True)
        except (OperatorError, OSError) as error:
            return str(error)
        return ""

    async def _fetch(self, network: Network, inbox: trio.MemorySendChannel[Event]) -> bool:
        """Whether there is no snapshot to wait for any more."""
        agreed = self._node.snapshots.wanted(self._node.sync)
        if not agreed:
            return True
        data = await network.fetch(Download(snapshot_of(agreed[0].sha256.hex(), agreed[0].file_bytes)))
        if data is not None:
            await inbox.send(SnapshotArrived(data=data))
        return data is not None

    def _report(self) -> None:
        snapshots = self._node.snapshots
        if snapshots.outcome is self._told:
            return
        self._told = snapshots.outcome
        authors = [each.author.hex() for each in snapshots.signed_by]
        text = f"{_TEXTS[self._told].format(authors=len(authors))} (steps before {snapshots.signed_by[0].step})"
        self._reporter.event(f"snapshot_{self._told}", text, step=snapshots.signed_by[0].step, authors=authors)
