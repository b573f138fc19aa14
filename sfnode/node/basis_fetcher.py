"""Keeps a node's published bases complete: what the run's owner has renewed is fetched from the neighbours."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import trio

from protocol.errors import Reject
from protocol.events import BasisArrived, Event
from protocol.run.manifest import Manifest
from protocol.subspace.basis_file import decode_basis_untrusted
from sfnode.network.network import Network
from sfnode.network.sessions.file_download import Download, basis_of
from sfnode.reporter import Reporter
from sfnode.storage.files import read_bytes
from sfnode.storage.stored_bases import basis_path, store_basis

_LOOK_S: Final = 1.0
_RETRY_S: Final = 5.0  # no neighbour had it


class BasisFetcher:
    """Sees to it that every basis that the owner has named lies in the data directory, whole."""

    def __init__(
        self, manifest: Manifest, data_dir: Path, renewals: Callable[[], Mapping[int, str]], reporter: Reporter
    ) -> None:
        """``renewals``: what the statements say at the moment (`Roster.renewals`)."""
        self._manifest = manifest
        self._data_dir = data_dir
        self._renewals = renewals
        self._reporter = reporter
        self.here: set[str] = set()  # SHA-256 of those that are known to be whole
        self._told: set[tuple[str, str]] = set()  # event and SHA-256: each once
        self._useless: set[str] = set()

    async def run(self, network: Network, inbox: trio.MemorySendChannel[Event]) -> None:
        """Tell the node of each basis once it is here. Until cancelled; OperatorError when it cannot be stored."""
        while True:
            pause_s = _LOOK_S
            for epoch, sha256 in self._renewals().items():
                if sha256 in self.here | self._useless:
                    continue
                if self._is_stored(sha256) or await self._fetch(network, epoch, sha256):
                    self.here.add(sha256)
                    await inbox.send(BasisArrived(sha256=sha256))
                else:
                    pause_s = _RETRY_S
            await trio.sleep(pause_s)

    def _is_stored(self, sha256: str) -> bool:
        path = basis_path(self._data_dir, self._manifest, sha256)
        if not path.exists():
            return False
        if hashlib.sha256(read_bytes(path, "the basis")).hexdigest() == sha256:
            return True
        text = f"{path} is not the basis that the owner published: fetching it again"
        self._tell_once("basis_damaged", text, sha256, file=str(path))
        return False

    async def _fetch(self, network: Network, epoch: int, sha256: str) -> bool:
        data = await network.fetch(Download(basis_of(self._manifest, sha256)))
        if data is None:
            text = f"no neighbour has the basis from epoch {epoch} on yet; without it this node does not train there"
            self._tell_once("basis_missing", text, sha256, from_epoch=epoch)
            return False
        try:
            decode_basis_untrusted(self._manifest, data, sha256)
        except Reject as reject:
            self._useless.add(sha256)
            text = f"the basis that the owner published from epoch {epoch} on is of no use: {reject.detail}. "
            text += "Nobody trains in it; the owner can publish another one"
            self._tell_once("basis_useless", text, sha256, from_epoch=epoch)
            return False
        path = store_basis(self._manifest, data, origin="the basis", data_dir=self._data_dir, sha256=sha256)
        text = f"the basis from epoch {epoch} on is here: {path}"
        self._reporter.event("basis_fetched", text, file=str(path), from_epoch=epoch)
        return True

    def _tell_once(self, name: str, text: str, sha256: str, **fields: Any) -> None:
        if (name, sha256) not in self._told:
            self._told.add((name, sha256))
            self._reporter.event(name, text, sha256=sha256, **fields)
