"""What SQLite says, in an operator's words."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from protocol.errors import OperatorError
from sfnode.storage import stored_records


@pytest.mark.parametrize(("free", "said"), [(0, "the disk is full"), (1 << 30, "refused to read or write")])
def test_sqlite_errors__input_or_output_fails__says_whether_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, said: str
) -> None:
    """Readers make a file beside the database, too: on a full disk that is an "I/O error", and the disk was blamed."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    monkeypatch.setattr(stored_records.shutil, "disk_usage", lambda _folder: SimpleNamespace(free=free))
    with pytest.raises(OperatorError, match=said), stored_records.sqlite_errors(tmp_path / "ledger.sqlite3"):
        raise error
