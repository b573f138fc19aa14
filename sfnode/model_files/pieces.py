"""A model's files in pieces of 1 MiB: given to others where they lie, and put together as they come.

Nothing here waits for anybody: whoever calls does so in a thread, but for `PieceIndex.find`.
"""

from __future__ import annotations

import errno
import os
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Final

from protocol.errors import OperatorError
from protocol.limits import MODEL_PIECE_BYTES
from protocol.run import FileSpec, piece_count
from sfnode.model_files.verify import hash_file
from sfnode.storage import sync_folder

HASH_BYTES: Final = 32
_PART: Final = ".part"
_REST_S: Final = 0.003  # after each piece that is hashed


def piece_bytes(file: FileSpec, number: int) -> int:
    """Length of a piece: the last one may be shorter."""
    return min(MODEL_PIECE_BYTES, file.bytes - number * MODEL_PIECE_BYTES)


# --- giving


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePiece:
    """A piece of a file, read where it lies."""

    path: Path
    start: int
    total: int

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Bytes of the piece from ``offset`` on, none beyond its end. OSError."""
        with self.path.open("rb") as file:
            file.seek(self.start + offset)
            return file.read(max(0, min(bytes_max, self.total - offset)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceList:
    """The hashes of a file's pieces, end to end."""

    data: bytes

    @property
    def total(self) -> int:
        """Its length in bytes."""
        return len(self.data)

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Bytes from ``offset`` on, none beyond the end."""
        return self.data[offset : offset + bytes_max]


class PieceIndex:
    """What this node can give of the model, by SHA-256."""

    def __init__(self) -> None:
        self._pieces: dict[str, FilePiece] = {}
        self._lists: dict[str, PieceList] = {}

    def add(self, path: Path, file: FileSpec, hashes: bytes) -> None:
        """A file that was found to be the run's; ``hashes``: of its pieces, end to end."""
        self._lists[file.pieces] = PieceList(data=hashes)
        for number in range(piece_count(file)):
            start = number * HASH_BYTES
            piece = FilePiece(path=path, start=number * MODEL_PIECE_BYTES, total=piece_bytes(file, number))
            self._pieces[hashes[start : start + HASH_BYTES].hex()] = piece

    def find(self, digest: str) -> FilePiece | PieceList | None:
        """The piece or list with this hash. A piece is read and hashed once more: the file may have changed."""
        piece = self._pieces.get(digest)
        if piece is None:
            return self._lists.get(digest)
        try:
            is_right = sha256(piece.read(0, piece.total)).hexdigest() == digest
        except OSError:
            return None
        return piece if is_right else None


def hashes_of(path: Path, file: FileSpec) -> bytes | None:
    """The hashes of a file's pieces, end to end; None when it is not the run's file. OSError.

    Without haste: half a minute for each 10 GB is left to the disk's other readers, such as the worker.
    """
    if path.stat().st_size != file.bytes:
        return None
    whole, listed = sha256(), bytearray()
    with path.open("rb") as opened:
        while piece := opened.read(MODEL_PIECE_BYTES):
            whole.update(piece)
            listed += sha256(piece).digest()
            time.sleep(_REST_S)
    is_right = whole.hexdigest() == file.sha256 and sha256(listed).hexdigest() == file.pieces
    return bytes(listed) if is_right else None


# --- taking


def is_there(folder: Path, file: FileSpec) -> bool:
    """Whether a file of the run lies there, whole. Reads it. OperatorError when it cannot be read."""
    path = folder / file.name
    return path.is_file() and path.stat().st_size == file.bytes and hash_file(path) == file.sha256


def part_of(folder: Path, file: FileSpec) -> Path:
    """Return where a file lies until it is whole."""
    return folder / (file.name + _PART)


class PartialFile:
    """A file whose pieces come in any order: NAME.part until it is whole. Pieces of an earlier life are kept.

    Several nodes of this machine may fill one file at a time, each with the same bytes. The first that is done gives it
    its name; for the others it is then there, and their NAME.part is gone.
    """

    def __init__(self, folder: Path, file: FileSpec, hashes: bytes) -> None:
        """``hashes``: of its pieces, end to end."""
        assert len(hashes) == HASH_BYTES * piece_count(file)
        self.file = file
        self._path = folder / file.name
        self._part = part_of(folder, file)
        self._hashes = hashes

    def hash_of(self, number: int) -> str:
        """SHA-256 of a piece, hex."""
        return self._hashes[number * HASH_BYTES : (number + 1) * HASH_BYTES].hex()

    def missing(self) -> Sequence[int]:
        """The numbers of the pieces that are not there; makes the file where there is none. OSError.

        4 bytes for each at most: a file may have a million pieces.
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
            return array("I", (number for number in numbers if self._is_other(number, part.read(MODEL_PIECE_BYTES))))

    def _is_other(self, number: int, data: bytes) -> bool:
        return sha256(data).hexdigest() != self.hash_of(number)

    def write(self, number: int, data: bytes) -> None:
        """Put a piece in its place; its hash is right. OSError."""
        try:
            descriptor = os.open(self._part, os.O_WRONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            if not self._path.exists():
                raise
            return  # another node was faster: `finish` looks whether what it has made is whole
        try:
            written = os.pwrite(descriptor, data, number * MODEL_PIECE_BYTES)
            if written < len(data):  # the disk is full: the next write says so
                os.pwrite(descriptor, data[written:], number * MODEL_PIECE_BYTES + written)
        finally:
            os.close(descriptor)

    def finish(self) -> None:
        """All pieces are there: give the file its name. OSError; OperatorError when it is not the run's file."""
        try:
            with self._part.open("rb") as part:
                is_right = file_digest(part, "sha256").hexdigest() == self.file.sha256
                os.fsync(part.fileno())
                if not os.path.samestat(os.fstat(part.fileno()), os.stat(self._part)):
                    raise FileNotFoundError(errno.ENOENT, "another node has begun it again", str(self._part))
            if is_right:
                os.replace(self._part, self._path)
            else:
                self._part.unlink()
        except FileNotFoundError:
            if not is_there(self._path.parent, self.file):
                raise  # tried again
            return
        if not is_right:
            raise OperatorError(
                f"{self._path} is not the run's file, although each of its pieces is: the manifest contradicts itself, "
                "or this disk has changed what was written. Start again; if that does not help, ask the run's owner"
            )
        sync_folder(self._path.parent)
