"""Gives files to neighbours: the model's if they are exactly the run's, and public data if the operator allows it."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import trio

from protocol.run import ModelSpec, Sharing, TaskSpec
from sfnode.model_files import PieceIndex, model_folder as files, pieces
from sfnode.network import Pace, sessions
from sfnode.reporter import Reporter
from sfnode.run import SharingOptions
from sfnode.storage import disk


class ModelSharing:
    """Checks the files in the model's folder, and serves those that are the run's."""

    def __init__(self, spec: ModelSpec, options: SharingOptions, reporter: Reporter) -> None:
        self._files = spec.files
        self._is_shared = spec.sharing is Sharing.PEERS and not options.no_share_model
        self._reporter = reporter
        self.pieces = PieceIndex()

    async def share(self, folder: Path) -> None:
        """Check which files of this folder are the run's, and serve them. A file that cannot be read is not served."""
        if not self._is_shared:
            return
        given = 0
        for file in self._files:
            path, hashes = files.place_of(folder, file.name), None
            look = partial(pieces.hashes_of, path, file)
            with suppress(OSError):
                hashes = await trio.to_thread.run_sync(look, abandon_on_cancel=True)  # type: ignore[call-arg]  # old stubs
            if hashes is not None:
                self.pieces.add(path, file, hashes)
                given += file.bytes
        if given:
            text = f"neighbours can get {given / 1e6:.1f} MB of the model from this node; --no-share-model keeps it"
            self._reporter.event("model_shared", text, bytes=given)


class DataSharing:
    """Serves the file of the run's public data, by its hash."""

    def __init__(self, task: TaskSpec, file: Path | None, bytes_per_s: float) -> None:
        """Take the file, or None to serve nothing; ``bytes_per_s`` for all peers together, 0 for no limit."""
        self.bytes = 0 if file is None else file.stat().st_size
        self._sha256 = task.data_sha256
        self._file = file
        self._pace = Pace(bytes_per_s)

    def find(self, sha256: str) -> sessions.FileSource | None:
        """Return the file with this hash; None if it is not served, or no longer exists."""
        if self._file is None or sha256 != self._sha256:
            return None
        try:
            return sessions.PacedFile(source=disk.HeldFile(self._file), pace=self._pace)
        except OSError:
            return None
