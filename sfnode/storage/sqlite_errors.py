"""SQLite's errors in an operator's words: what failed, where, and what to do."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from protocol.errors import OperatorError, StorageDamagedError

_PERMISSIONS = "check the permissions of the file and its folder, or use another --data-dir"
# Errors that the operator can fix. All other errors of SQLite count as damage.
_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk is full. Free some space and start again; nothing that was stored is lost",
    sqlite3.SQLITE_IOERR: "the disk refused to read or write. Check its space and health, and start again",
    sqlite3.SQLITE_READONLY: _PERMISSIONS,
    sqlite3.SQLITE_CANTOPEN: _PERMISSIONS,
    sqlite3.SQLITE_PERM: _PERMISSIONS,
    sqlite3.SQLITE_BUSY: "another program has locked it. Close that one and start again",
    sqlite3.SQLITE_LOCKED: "another program has locked it. Close that one and start again",
}


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours: OperatorError if the operator can fix them, otherwise StorageDamagedError."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        primary = code & 0xFF if isinstance(code, int) else None
        if primary in _ADVICE:
            raise OperatorError(f"cannot use {path} ({error}): {_ADVICE[primary]}") from None
        raise damaged(path, str(error)) from None
    except UnicodeDecodeError as error:
        raise damaged(path, str(error)) from None
    except MemoryError:  # SQLite reports lengths in some damaged pages as a lack of memory
        raise damaged(path, "or this machine is out of memory: SQLite could not read a page") from None


def damaged(path: Path, detail: str) -> StorageDamagedError:
    """Return the error for a damaged database at ``path``; it says what to do."""
    return StorageDamagedError(
        f"{path} is damaged ({detail}). Move it away and start again: the node fetches the ledger anew from its "
        f"peers; keep identity.key"
    )
