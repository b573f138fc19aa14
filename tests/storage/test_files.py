"""Whole files on the disk: what a power cut cannot take back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sfnode.storage.files import write_durably


def test_write_durably__new_file__content_is_synced_and_then_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut could take a new identity.key back, name and all, after its public key had been shown."""
    synced: list[int] = []
    monkeypatch.setattr("sfnode.storage.files.os.fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    write_durably(tmp_path / "identity.key", b"seed")
    assert synced == [(tmp_path / "identity.key").stat().st_ino, tmp_path.stat().st_ino]
