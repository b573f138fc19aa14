"""Whole files, written so that a crash leaves the old content or the new one, never a part."""

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import psutil

from protocol.errors import OperatorError
from protocol.limits import BASIS_BYTES_MAX

READ_BYTES_MAX = BASIS_BYTES_MAX  # a basis: the longest file that is held in memory
_LFS = "a Git LFS pointer, not the file itself: run `git lfs pull` in its folder (once `git lfs install` has run)"
_PAGE = "a web page, not the file itself: look at it in a browser, which may ask you to log in"
_PLACEHOLDERS = {  # what a file begins with, in lower case, that stands in the place of another
    b"version https://git-lfs.github.com/spec/": _LFS,
    b"version https://hawser.github.com/spec/": _LFS,  # its name before 2015
    b"/annex/objects/": "a git-annex pointer, not the file itself: run `git annex get` in its folder",
    b"<!doctype html": _PAGE,
    b"<html": _PAGE,
}
_TEMPORARY = re.compile(r"\.([0-9a-f]{8})[0-9a-f]{8}\.tmp")  # follows a file's name while a process writes it
_BEGINNING_BYTES = 64
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)  # what FAT, and others that have no hard links, answer


def write_durably(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write ``data`` to ``path`` through a temporary file, fsync and rename. OperatorError says what to do."""
    _replace(path, (data,), mode, is_durable=True)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk. OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF):  # of file systems that cannot sync a folder
            raise
    finally:
        os.close(descriptor)


def write_new(path: Path, pieces: Iterable[bytes], *, mode: int = 0o644) -> None:
    """Write a new file as `write_durably` does, for a person; remove what a killed try has left in the folder.

    OperatorError if something exists at ``path``.
    """
    if os.path.lexists(path):
        raise _exists(path)
    with suppress(OSError):  # there is no such folder yet
        for left in os.listdir(path.parent):
            found = _TEMPORARY.fullmatch(left.removeprefix(path.name))
            if found and not psutil.pid_exists(int(found[1], 16)):
                path.with_name(left).unlink()
    _replace(path, pieces, mode, is_durable=True, is_new=True)


def write_json(path: Path, data: Any) -> None:
    """Replace ``path`` by JSON, without fsync: status files, in a folder that must not come back once it is removed."""
    _replace(path, (json.dumps(data).encode("utf-8"),), 0o644, is_durable=False)


def _exists(path: Path) -> OperatorError:
    return OperatorError(f"{path} exists, and is never overwritten: choose another name, or remove it yourself")


def _replace(path: Path, pieces: Iterable[bytes], mode: int, *, is_durable: bool, is_new: bool = False) -> None:
    # If others may write in the folder, they could place a file or a link under a predictable name.
    temporary = path.with_name(f"{path.name}.{os.getpid():08x}{secrets.token_hex(4)}.tmp")
    try:
        if is_durable:
            path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        if is_new:
            _name_newly(temporary, path)
        else:
            os.replace(temporary, path)
        if is_durable:
            sync_folder(path.parent)
    except OSError as error:
        raise OperatorError(f"cannot write {path}: {describe_os_error(error)}") from None
    finally:
        with suppress(OSError):  # it has been renamed, or the folder itself is the problem
            temporary.unlink()


def _name_newly(temporary: Path, path: Path) -> None:
    """Rename a file unless the name is taken by now. OSError, OperatorError."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        if error.errno not in _NO_LINKS or os.path.lexists(path):
            raise
        os.replace(temporary, path)


def free_disk_bytes(folder: Path) -> int | None:
    """Return the bytes that files can still take on the disk of an existing folder; None if the system does not say."""
    with suppress(OSError):
        return shutil.disk_usage(folder).free
    return None


def bytes_below(place: Path) -> int:
    """Return the length of all files below a folder, links not counted. Files may come and go during the call."""
    found = 0
    for folder, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                found += os.lstat(os.path.join(folder, name)).st_size
    return found


class HeldFile:
    """Reads a file in place: peers ask for parts of it, and it may be too large for memory."""

    def __init__(self, path: Path) -> None:
        """Take the path of a file. OSError if there is none."""
        self._path, found = path, path.stat()
        self.total, self._changed_ns = found.st_size, found.st_mtime_ns

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Return bytes from ``offset`` on, up to the end. OSError, also if the file has changed since."""
        with self._path.open("rb") as file:
            found = os.fstat(file.fileno())
            if (found.st_size, found.st_mtime_ns) != (self.total, self._changed_ns):
                raise OSError(errno.ESTALE, "the file has changed since it was looked at")
            file.seek(offset)
            return file.read(bytes_max)


def read_bytes(path: Path, what: str, bytes_max: int = READ_BYTES_MAX) -> bytes:
    """Return the content of ``path``; OperatorError: it is missing, unreadable, no file, or longer than allowed."""
    with opened_file(path, what) as file, os_errors(f"read {what} {path}"):
        size = os.fstat(file.fileno()).st_size
        if size > bytes_max:
            raise OperatorError(f"{path} has {size:,} bytes: too many for {what}: {bytes_max:,} at most")
        return file.read(max(size, 1 << 16))  # with bytes_max, Python would make room for that many at once


def check_is_content(path: Path) -> None:
    """Raise OperatorError where ``path`` holds something else in the place of its content, such as a pointer to it."""
    beginning = b""
    with suppress(OSError), path.open("rb") as file:
        beginning = file.read(_BEGINNING_BYTES).lstrip().lower()
    for begins, fault in _PLACEHOLDERS.items():
        if beginning.startswith(begins):
            raise OperatorError(f"{path} is {fault}, or fetch it again from where it is published")


def from_home(text: str) -> Path:
    """Return the path that a text names; a leading ``~`` becomes the user's home, if that is known."""
    return Path(os.path.expanduser(text))


def opened_file(path: Path, what: str) -> BufferedReader:
    """Open a regular file to read. OperatorError, also for a pipe, which may block, or a device, which has no end."""
    if os.path.isfile(path):
        check_is_content(path)
    with os_errors(f"read {what} {path}"):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe without a writer would block already
        file = os.fdopen(descriptor, "rb")
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return file
        file.close()
    raise OperatorError(f"{path} is no file, but a folder, a pipe or a device: name the file that holds {what}")


def has_locked(descriptor: int, path: Path) -> bool:
    """Lock an open file and return True; return False if another has locked it. OperatorError: it cannot be locked."""
    with os_errors(f"lock {path}, as a folder on a disk of this machine would allow"), suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextmanager
def os_errors(doing: str, advice: str = "") -> Iterator[None]:
    """Turn an OSError into an OperatorError: what cannot be done (``doing``), why, and what to do (also ``advice``)."""
    try:
        yield
    except OSError as error:
        raise OperatorError(f"cannot {doing}: {describe_os_error(error)}{advice}") from None


def describe_os_error(error: Exception) -> str:
    """Return in words what went wrong and what to do. Safetensors puts the number of a system's error into its text."""
    if not isinstance(error, OSError):
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            return str(error)
        error = OSError(int(number[1]), os.strerror(int(number[1])))
    if error.errno == errno.ENOSPC:
        return "the disk is full. Free some space and start again; nothing that was stored is lost"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{error.strerror}. Choose another place or change the permissions"
    return error.strerror or str(error)
