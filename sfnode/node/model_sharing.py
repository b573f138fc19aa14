"""Gives the model's files to neighbours, in pieces: those in this node's folder that are the run's, byte for byte.
And gives the run's public data to whoever joins, where the operator lets it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio

from protocol.run import FileSpec, ModelSpec, Sharing, TaskSpec
from sfnode.model_files import PieceIndex, hashes_of
from sfnode.network import FileSource, Pace, PacedFile
from sfnode.reporter import Reporter
from sfnode.run import SharingOptions
from sfnode.storage import HeldFile


class ModelSharing:
    """What is found in the folder is given from then on."""

    def __init__(self, spec: ModelSpec, options: SharingOptions, reporter: Reporter) -> None:
        self._files = spec.files
        self._is_shared = spec.sharing is Sharing.PEERS and not options.no_share_model
        self._reporter = reporter
        self.pieces = PieceIndex()

    async def share(self, folder: Path) -> None:
        """Look which files of this folder are the run's. One that cannot be read is not given."""
        if not self._is_shared:
            return
        given = sum([await self._give(folder / file.name, file) for file in self._files])
        if not given:
            return
        text = f"neighbours can get {given / 1e6:.1f} MB of the model from this node; --no-share-model keeps it"
        self._reporter.event("model_shared", text, bytes=given)

    async def _give(self, path: Path, file: FileSpec) -> int:
        """How many bytes of the file are given: all or none."""
        look = partial(hashes_of, path, file)
        try:
            hashes = await trio.to_thread.run_sync(look, abandon_on_cancel=True)  # type: ignore[call-arg]  # old stubs
        except OSError:
            return 0
        if hashes is None:
            return 0
        self.pieces.add(path, file, hashes)
        return file.bytes


class DataSharing:
    """The file of the run's public data, for whoever asks for it by its hash."""

    def __init__(self, task: TaskSpec, file: Path | None, bytes_per_s: float) -> None:
        """``file``: None where nothing is given. ``bytes_per_s``: to all together; 0: as fast as they take it."""
        self.bytes = 0 if file is None else file.stat().st_size
        self._sha256 = task.data_sha256
        self._file = file
        self._pace = Pace(bytes_per_s)

    def find(self, sha256: str) -> FileSource | None:
        """The file with this hash; None where it is not given, or not there any more."""
        if self._file is None or sha256 != self._sha256:
            return None
        try:
            return PacedFile(source=HeldFile(self._file), pace=self._pace)
        except OSError:
            return None
