"""A model's files in pieces of 1 MiB: served from where they are, and assembled as they arrive.

All functions here block. Call them in a thread, except `PieceIndex.find`.
"""

import errno
import os
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path

from protocol.errors import OperatorError
from protocol.limits import MODEL_PIECE_BYTES
from protocol.run import FileSpec, piece_count
from sfnode.model_files.verify import hash_in_pieces
from sfnode.storage import disk

HASH_BYTES = 32
_PART = ".part"
_REST_S = 0.003  # pause after each hashed piece
_BLOCK_BYTES = 512  # what stat counts in


def piece_bytes(file: FileSpec, number: int) -> int:
    """Return the length of a piece: the last one may be shorter than the others."""
    return min(MODEL_PIECE_BYTES, file.bytes - number * MODEL_PIECE_BYTES)


# --- giving


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """Reads one piece of a file in place, as the file was when the piece was checked."""

    file: disk.HeldFile
    start: int
    total: int

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Return bytes of the piece from ``offset`` on, up to its end. OSError, also if the file has changed since."""
        return self.file.read(self.start + offset, max(0, min(bytes_max, self.total - offset)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceList:
    """Holds the concatenated hashes of a file's pieces."""

    data: bytes

    @property
    def total(self) -> int:
        """Return its length in bytes."""
        return len(self.data)

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Return bytes from ``offset`` on, up to the end."""
        return self.data[offset : offset + bytes_max]


class PieceIndex:
    """Finds the pieces that this node can give of the model, by SHA-256."""

    def __init__(self) -> None:
        self._pieces: dict[str, tuple[Path, int, int]] = {}  # its file, its place there, and its length
        self._lists: dict[str, PieceList] = {}

    def add(self, path: Path, file: FileSpec, hashes: bytes) -> None:
        """Add a file that was checked to be the run's; ``hashes`` are the concatenated hashes of its pieces."""
        self._lists[file.pieces] = PieceList(data=hashes)
        for number in range(piece_count(file)):
            start = number * HASH_BYTES
            piece = path, number * MODEL_PIECE_BYTES, piece_bytes(file, number)
            self._pieces[hashes[start : start + HASH_BYTES].hex()] = piece

    def find(self, digest: str) -> FilePiece | PieceList | None:
        """Return the piece or list with this hash. A piece is hashed again, because its file may have changed."""
        if digest not in self._pieces:
            return self._lists.get(digest)
        path, start, total = self._pieces[digest]
        try:
            piece = FilePiece(file=disk.HeldFile(path), start=start, total=total)
            is_right = sha256(piece.read(0, piece.total)).hexdigest() == digest
        except OSError:
            return None
        return piece if is_right else None


def hashes_of(path: Path, file: FileSpec) -> bytes | None:
    """Return the concatenated hashes of a file's pieces; None if it is not the run's file. OSError.

    It pauses after each piece, half a minute for each 10 GB, to leave the disk to other readers such as the worker.
    """
    if path.stat().st_size != file.bytes:
        return None
    _, whole, listed = hash_in_pieces(path, _REST_S)
    return listed if whole == file.sha256 and sha256(listed).hexdigest() == file.pieces else None


# --- taking


def is_there(folder: Path, file: FileSpec) -> bool:
    """Return whether the folder has this file of the run, complete; reads it. OSError."""
    path = folder / file.name
    if not path.is_file() or path.stat().st_size != file.bytes:
        return False
    with path.open("rb") as held:
        return file_digest(held, "sha256").hexdigest() == file.sha256


def part_of(folder: Path, file: FileSpec) -> Path:
    """Return the path of a file until it is complete."""
    return folder / (file.name + _PART)


def bytes_to_come(folder: Path, files: Iterable[FileSpec]) -> int:
    """Return how many bytes these files will still take: their lengths less what partial files already occupy."""
    needed = 0
    for file in files:
        held = 0
        with suppress(OSError, AttributeError):  # there is no such file yet; Windows has no block counts
            held = part_of(folder, file).lstat().st_blocks * _BLOCK_BYTES  # fewer than its length if it has holes
        needed += max(0, file.bytes - held)
    return needed


class PartialFile:
    """Assembles a file from pieces in any order, as NAME.part until it is complete. Pieces of an earlier life are kept.

    Several nodes of this machine may fill one file at the same time, each with the same bytes. The first one to finish
    renames it. For the others the file then exists, and NAME.part is gone.
    """

    def __init__(self, folder: Path, file: FileSpec, hashes: bytes) -> None:
        """Take the file's folder and entry; ``hashes`` are the concatenated hashes of its pieces."""
        assert len(hashes) == HASH_BYTES * piece_count(file)
        self.file = file
        self._path = folder / file.name
        self._part = part_of(folder, file)
        self._hashes = hashes

    def hash_of(self, number: int) -> str:
        """Return the SHA-256 of a piece, in hex."""
        return self._hashes[number * HASH_BYTES : (number + 1) * HASH_BYTES].hex()

    def missing(self) -> Sequence[int]:
        """Return the numbers of the missing pieces; create the file if there is none. OSError.

        It takes at most 4 bytes of memory for each: a file may have a million pieces.
        """
        if not self._part.exists() and is_there(self._path.parent, self.file):
            return []
        descriptor = os.open(self._part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "r+b") as part:
            is_new = part.seek(0, os.SEEK_END) == 0
            part.truncate(self.file.bytes)
            part.seek(0)
            numbers = range(piece_count(self.file))
            if is_new:
                return numbers
            found = (sha256(part.read(MODEL_PIECE_BYTES)).hexdigest() for _ in numbers)
            return array("I", (number for number, digest in enumerate(found) if digest != self.hash_of(number)))

    def write(self, number: int, data: bytes) -> None:
        """Write a piece, whose hash the caller has checked, to its place. OSError."""
        try:
            descriptor = os.open(self._part, os.O_WRONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            if not self._path.exists():
                raise
            return  # another node was faster: `finish` checks whether its file is complete
        try:
            written = os.pwrite(descriptor, data, number * MODEL_PIECE_BYTES)
            if written < len(data):  # the disk is full: the next write raises the error
                os.pwrite(descriptor, data[written:], number * MODEL_PIECE_BYTES + written)
        finally:
            os.close(descriptor)

    def finish(self) -> None:
        """Check the complete file, and rename it. OSError; OperatorError if it is not the run's file."""
        try:
            with self._part.open("rb") as part:
                is_right = file_digest(part, "sha256").hexdigest() == self.file.sha256
                os.fsync(part.fileno())
                # Another node may have replaced the file while it was hashed.
                if not os.path.samestat(os.fstat(part.fileno()), os.stat(self._part)):
                    raise FileNotFoundError(errno.ENOENT, "another node has begun it again", str(self._part))
            if is_right:
                os.replace(self._part, self._path)
            else:
                self._part.unlink()
        except FileNotFoundError:
            if not is_there(self._path.parent, self.file):
                raise  # the caller tries again
            return
        if not is_right:
            raise OperatorError(
                f"{self._path} is not the run's file, although each of its pieces is: the manifest contradicts itself, "
                "or this disk has changed what was written. Start again; if that does not help, ask the run's owner"
            )
        disk.sync_folder(self._path.parent)
