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


async def share_model(
    spec: ModelSpec, options: SharingOptions, folder: Path, given: PieceIndex, reporter: Reporter
) -> None:
    """Check which files of the model's folder are the run's, and add them to those that are ``given``.

    A file that cannot be read is left out; all are where the owner or the operator forbids it.
    """
    if spec.sharing is not Sharing.PEERS or options.no_share_model:
        return
    size = 0
    for file in spec.files:
        path, hashes = files.place_of(folder, file.name), None
        with suppress(OSError):
            hashes = await in_disk_thread(pieces.hashes_of, path, file)
        if hashes is not None:
            given.add(path, file, hashes)
            size += file.bytes
    if size:
        text = f"neighbours can get {size / 1e6:.1f} MB of the model from this node; --no-share-model keeps it"
        reporter.event("model_shared", text, bytes=size)


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
