"""Keeps the folder of a node's key and records to one user: nobody else can read, plant or lock a file in it."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

from protocol.errors import OperatorError
from sfnode.storage.disk import has_locked, os_errors

LOCK_FILE = "lock"
START_FILE = "starting"
_LOCK_TRIES, _LOCK_PAUSE_S = 5, 0.01
_MODE = 0o700
_PATH_BYTES_MAX = 480  # SQLite opens files with paths of at most 504 bytes, and the ledger is one in the folder
_ROOT = 0  # may do anything anyway; a separate volume has its "lost+found"


class ExclusiveFolder:
    """Closes a folder to other users, and to other processes while one holds its lock.

    Attributes:
        marks: a folder with any of these is the program's, and may be closed: other programs have no files so named.
    """

    marks: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, path: Path) -> None:
        self.path = path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExclusiveFolder) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def lock_file(self) -> Path:
        return self.path / LOCK_FILE

    def claim(self) -> bool:
        """Make the folder, or close it to other users; return whether they could enter it until now. OperatorError."""
        with os_errors(f"use the data directory {self}"):
            if (length := len(os.fsencode(self.path.resolve()))) > _PATH_BYTES_MAX:
                text = f"the path of the data directory {self} has {length} bytes, and {_PATH_BYTES_MAX} are allowed"
                raise OperatorError(f"{text}. Use a shorter --data-dir")
            self.path.mkdir(parents=True, exist_ok=True, mode=_MODE)
            self.check()
            was_open = self.is_open_to_others()
            if was_open:
                found = {path.name for path in self.path.iterdir()} - {"lost+found"}
                if found and not found & self.marks:  # it may be somebody's home
                    raise OperatorError(
                        f"{self} holds other files, such as {min(found)!r}. A data directory is closed to the other "
                        "users of this machine, so this one stays as it is. Use a new or an empty --data-dir"
                    )
                self.path.chmod(_MODE)
            is_open = self.is_open_to_others()
        if is_open:
            text = f"other users of this machine can enter the data directory {self}"
            raise OperatorError(f"{text}, and its file system does not let that be changed. Use another --data-dir")
        return was_open

    def check(self) -> None:
        """Raise OperatorError if it, or something in it, is another user's: neither could use what the other writes."""
        with os_errors(f"use the data directory {self}"):
            owner = self.path.stat().st_uid
            if owner != os.geteuid():
                user = f"'#{owner}'"  # to sudo, a user without a name
                with suppress(KeyError):
                    user = self.path.owner()
                how = f"Use another --data-dir, or run the command as that user: `sudo -u {user} sfnode ...`"
                raise OperatorError(f"the data directory {self} belongs to another user of this machine. {how}")
            for path in (self.path, *self.path.iterdir()):
                if _is_foreign(path):
                    text = f"{path} belongs to another user of this machine, who has put it there"
                    raise OperatorError(f"{text}. Look what it is and remove it, or use another --data-dir")

    def is_open_to_others(self) -> bool:
        """Return whether anybody but its owner can enter, list or change the folder. OSError."""
        return self.path.stat().st_mode & 0o077 != 0

    def lock(self) -> int:
        """Claim the folder and lock it; return a descriptor, which holds the lock until it is closed. OperatorError."""
        self.claim()
        return self._locked(self.lock_file)

    def lock_start(self) -> int:
        """Show that a node starts in this folder of ours; return a descriptor as `lock` does. OperatorError."""
        self.check()
        descriptor = self._locked(self.path / START_FILE)
        os.utime(descriptor)
        return descriptor

    def _locked(self, path: Path) -> int:
        with os_errors(f"use the data directory {self}"):
            # Anybody who can open the file, even to read, can lock it. So the folder and the file are closed to others.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        for _ in range(_LOCK_TRIES):  # one may fail because somebody looks, by `is_locked`, at this very moment
            if has_locked(descriptor, path):
                return descriptor
            time.sleep(_LOCK_PAUSE_S)
        os.close(descriptor)
        text = f"the data directory {self} is in use by another sfnode. Stop that one, or use another --data-dir"
        raise OperatorError(text, "in_use")

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Let one command at a time read and replace a small file of the folder; others wait until the block ends."""
        descriptor = None
        with suppress(OSError):  # no folder yet, or a file system that locks no folder
            descriptor = os.open(self.path, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def starting_s(self) -> float | None:
        """Return for how many seconds a node starts here, or starts again, and has no lock yet; None: none does."""
        with suppress(OSError):
            age_s = time.time() - (self.path / START_FILE).stat().st_mtime
            return max(0.0, age_s) if self.is_locked(START_FILE) and not self.is_locked() else None
        return None

    def is_in_use(self) -> bool:
        """Return whether a node starts in the folder, or holds it."""
        return self.is_locked(START_FILE) or self.is_locked()

    def is_locked(self, name: str = LOCK_FILE) -> bool:
        """Return whether a node holds the folder now."""
        try:
            descriptor = os.open(self.path / name, os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that look are no node to each other
        except OSError as error:
            return isinstance(error, BlockingIOError)  # where nothing can be locked, no node runs
        finally:
            os.close(descriptor)
        return False


def _is_foreign(path: Path) -> bool:
    """Return whether a file, or a link itself, belongs neither to us nor to root."""
    try:
        return path.lstat().st_uid not in (os.geteuid(), _ROOT)
    except FileNotFoundError:
        return False  # a temporary file of a node that runs here, gone by now
