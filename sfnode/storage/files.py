"""Whole files, written so that a crash leaves the old content or the new one, never a piece."""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from protocol.errors import OperatorError


def write_durably(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write ``data`` to ``path`` through a temporary file, fsync and rename. OperatorError says what to do."""
    _replace(path, (data,), mode, is_durable=True)


def write_pieces_durably(path: Path, pieces: Iterable[bytes]) -> None:
    """As write_durably, for what is too long to be held in memory at once."""
    _replace(path, pieces, 0o644, is_durable=True)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk. OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, data: Any) -> None:
    """Replace ``path`` by ``data`` as JSON; without fsync, for status files that are rewritten all the time."""
    _replace(path, (json.dumps(data).encode("utf-8"),), 0o644, is_durable=False)


def _replace(path: Path, pieces: Iterable[bytes], mode: int, *, is_durable: bool) -> None:
    # Where others may write in the folder, a file or a link could wait under a name that they can foresee.
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if is_durable:
            sync_folder(path.parent)
    except OSError as error:
        raise OperatorError(f"cannot write {path}: {describe_os_error(error)}") from None
    finally:
        with suppress(OSError):  # it has been moved, or the folder itself is what is wrong
            temporary.unlink()


def free_disk_bytes(folder: Path) -> int | None:
    """What files in a folder that exists can still take on its disk; None where the system does not say."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


class HeldFile:
    """A file that is read where it lies: peers ask for it in parts, and it may be too large for the memory."""

    def __init__(self, path: Path) -> None:
        """OSError when there is none."""
        self._path = path
        self.total = path.stat().st_size

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Bytes from ``offset`` on, none beyond the end. OSError."""
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(bytes_max)


def read_bytes(path: Path, what: str) -> bytes:
    """Content of ``path``; OperatorError names ``what`` is missing or unreadable."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise OperatorError(f"cannot read {what} {path}: {describe_os_error(error)}") from None


def describe_os_error(error: OSError) -> str:
    """What went wrong and what to do, in words."""
    if error.errno == errno.ENOSPC:
        return "the disk is full. Free some space and start again; nothing that was stored is lost"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{error.strerror}. Choose another place or change the permissions"
    return error.strerror or str(error)
