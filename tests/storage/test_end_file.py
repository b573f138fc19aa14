"""How a node ended is there to read afterwards: also where the disk is full, and whatever the file holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import OperatorError
from sfnode.storage.data_directory import DataDirectory


def test_last_words__longer_than_there_is_room__take_no_more_of_the_disk(tmp_path: Path) -> None:
    DataDirectory(tmp_path).end.expect()
    expected = (tmp_path / "end.json").stat()
    DataDirectory(tmp_path).end.write("no space left on \U0001f4be " * 1_000)
    after = (tmp_path / "end.json").stat()
    assert (after.st_ino, after.st_size) == (expected.st_ino, expected.st_size)
    assert "no space left on \U0001f4be" in DataDirectory(tmp_path).end.describe()


def test_last_words__node_that_never_began__are_kept_as_well(tmp_path: Path) -> None:
    DataDirectory(tmp_path).end.write("is not the run's data")
    assert DataDirectory(tmp_path).end.describe().endswith(": is not the run's data")


def test_last_words__no_data_directory__none_is_made(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="No such file"):
        DataDirectory(tmp_path / "none").end.write("text")
    assert not (tmp_path / "none").exists() and DataDirectory(tmp_path / "none").end.describe() == ""


def test_last_words__place_is_taken_by_a_link__is_refused(tmp_path: Path) -> None:
    (tmp_path / "end.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OperatorError, match=r"end\.json"):
        DataDirectory(tmp_path).end.write("text")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"time": 1e300, "text": "x"}', b'{"time": "now", "text": "x"}', b"\xff\xfe", b"[" * 4_096],
)
def test_last_words__file_of_nonsense__nothing_is_said(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "end.json").write_bytes(content)
    assert DataDirectory(tmp_path).end.describe() == ""


def test_life_of_a_node__next_one_begins__the_last_end_is_forgotten(tmp_path: Path) -> None:
    DataDirectory(tmp_path).end.write("text")
    DataDirectory(tmp_path).end.expect()
    assert "it was killed" in DataDirectory(tmp_path).end.describe()
