"""A data directory that has lost its database, or a part of it: no step is signed again; errors say what to do."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from protocol.run.manifest import sign_manifest
from sfnode.storage.data_directory import LEDGER_FILE, DataDirectory
from sfnode.storage.record_store import Store
from tests.support.manifests import OWNER, small_manifest

SIGNED = sign_manifest(small_manifest(), OWNER)


def reserve(directory: Path, step: int) -> None:
    with closing(Store(DataDirectory(directory), SIGNED)) as store:
        store.reserve_step(step)


def test_ledger__moved_away_as_the_error_advises__reservation_stays(tmp_path: Path) -> None:
    reserve(tmp_path, 7)
    for path in tmp_path.glob(f"{LEDGER_FILE}*"):
        path.unlink()
    with closing(Store(DataDirectory(tmp_path), SIGNED)) as store:
        assert (store.reserved_step, store.has_lost_records) == (7, True)
        store.reserve_step(8)
        assert (store.reserved_step, store.has_lost_records) == (8, False)


def test_ledger__restored_from_an_older_copy__reservation_stays(tmp_path: Path) -> None:
    reserve(tmp_path, 7)
    shutil.copy(tmp_path / LEDGER_FILE, tmp_path / "copy")
    reserve(tmp_path, 9)
    shutil.copy(tmp_path / "copy", tmp_path / LEDGER_FILE)
    with closing(Store(DataDirectory(tmp_path), SIGNED)) as store:
        assert (store.reserved_step, store.has_lost_records) == (9, True)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"seven", b"-3"], ids=["empty", "binary", "word", "low"])
def test_reservation__file_beside_the_ledger_is_damaged__that_in_the_ledger_holds(
    content: bytes, tmp_path: Path
) -> None:
    reserve(tmp_path, 7)
    DataDirectory(tmp_path).reserved_file.write_bytes(content)
    with closing(Store(DataDirectory(tmp_path), SIGNED)) as store:
        assert store.reserved_step == 7


def test_manifest__damaged__error_says_what_to_put_in_its_place(tmp_path: Path) -> None:
    reserve(tmp_path, 0)
    directory = DataDirectory(tmp_path)
    directory.manifest_file.write_bytes(b"?")
    with pytest.raises(OperatorError, match=r"manifest.run: not a run file.*Put the owner's run file in its place"):
        directory.signed_manifest()
    directory.manifest_file.write_bytes(SIGNED.encode())
    assert directory.signed_manifest() == SIGNED
