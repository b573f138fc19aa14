"""Gives files to neighbours: the model's if they are exactly the run's, and public data if the operator allows it."""

from contextlib import suppress
from pathlib import Path

from protocol.run import ModelSpec, Sharing, TaskSpec
from sfnode.model_files import PieceIndex, model_folder as files, pieces
from sfnode.network import Pace, sessions
from sfnode.node.model_fetcher import in_disk_thread
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
            with suppress(OSError):
                hashes = await in_disk_thread(pieces.hashes_of, path, file)
            if hashes is not None:
                self.pieces.add(path, file, hashes)
                given += file.bytes
        if given:
            text = f"neighbours can get {given / 1e6:.1f} MB of the model from this node; --no-share-model keeps it"
            self._reporter.event("model_shared", text, bytes=given)


class DataSharing:
    """Serves the file of the run's public data, by its hash, as long as it is as it was at the start."""

    def __init__(self, task: TaskSpec, file: Path | None, bytes_per_s: float) -> None:
        """Take the file, or None to serve nothing; ``bytes_per_s`` for all peers together, 0 for no limit."""
        self._sha256 = task.data_sha256
        self._file = None if file is None else disk.HeldFile(file)
        self.bytes = 0 if self._file is None else self._file.total
        self._pace = Pace(bytes_per_s)

    def find(self, sha256: str) -> sessions.FileSource | None:
        """Return the file with this hash; None if it is not served, or has changed or gone."""
        if self._file is None or sha256 != self._sha256:
            return None
        with suppress(OSError):
            self._file.read(0, 0)
            return sessions.PacedFile(source=self._file, pace=self._pace)
        return None
