"""Finds the bases that a run's owner has renewed: on the disk, or at the neighbours."""

from __future__ import annotations

import hashlib

import trio

from protocol.errors import Reject
from protocol.events import BasisArrived, Event, FetchBasis, FetchFailed
from protocol.run import Manifest
from protocol.subspace import basis_file
from sfnode.network import Wanted
from sfnode.node.file_fetcher import FileFetcher
from sfnode.reporter import Reporter
from sfnode.slips import Slips
from sfnode.storage import DataDirectory, disk


class BasisFetcher:
    """Fetches the bases that the core asks for."""

    def __init__(self, manifest: Manifest, data_dir: DataDirectory, reporter: Reporter) -> None:
        self._manifest = manifest
        self._bases = data_dir.bases
        self._reporter = reporter
        self._told: set[tuple[str, str]] = set()  # event and SHA-256: each once

    async def run(
        self,
        files: FileFetcher,
        slips: Slips,
        wanted: trio.MemoryReceiveChannel[FetchBasis],
        inbox: trio.MemorySendChannel[Event],
    ) -> None:
        """Answer requests one by one until cancelled. OperatorError if a basis cannot be stored."""
        async for effect in wanted:
            event: Event = FetchFailed(sha256=effect.sha256)  # after any exception, too: the core waits for an answer
            with slips.contained("fetching a basis"):
                is_stored = self._is_stored(effect.sha256)
                event = BasisArrived(sha256=effect.sha256) if is_stored else await self._fetch(files, effect)
            await inbox.send(event)

    def _is_stored(self, sha256: str) -> bool:
        path = self._bases.path_of(self._manifest, sha256)
        if not path.exists():
            return False
        if hashlib.sha256(disk.read_bytes(path, "the basis")).hexdigest() == sha256:
            return True
        text = f"{path} is not the basis that the owner published: fetching it again"
        self._tell_once("basis_damaged", text, sha256, file=str(path))
        return False

    async def _fetch(self, files: FileFetcher, effect: FetchBasis) -> Event:
        sha256, epoch = effect.sha256, effect.from_epoch
        data = await files.fetch(Wanted.basis(self._manifest, sha256))
        if data is None:
            text = f"no neighbour has the basis from epoch {epoch} on yet; without it this node does not train there"
            self._tell_once("basis_missing", text, sha256, from_epoch=epoch)
            return FetchFailed(sha256=sha256)
        try:
            basis_file.decode_basis_untrusted(self._manifest, data, sha256)
        except Reject as reject:
            text = f"the basis that the owner published from epoch {epoch} on cannot be used: {reject.detail}. "
            text += "Nobody trains from there on, unless the owner replaces it"
            self._tell_once("basis_useless", text, sha256, from_epoch=epoch)
            return FetchFailed(sha256=sha256, is_lasting=True)
        path = self._bases.store(self._manifest, data, origin="the basis", sha256=sha256)
        text = f"the basis from epoch {epoch} on is here: {path}"
        self._reporter.event("basis_fetched", text, file=str(path), from_epoch=epoch)
        return BasisArrived(sha256=sha256)

    def _tell_once(self, name: str, text: str, sha256: str, **fields: str | int) -> None:
        if (name, sha256) not in self._told:
            self._told.add((name, sha256))
            self._reporter.event(name, text, sha256=sha256, **fields)
