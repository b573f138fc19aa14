"""How a node ended is there to read afterwards: also where the disk is full, and whatever the file holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import OperatorError
from sfnode.storage import describe_last_end, expect_end, write_end
from sfnode.storage.end_file import _END_FILE


def test_last_words__longer_than_there_is_room__take_no_more_of_the_disk(tmp_path: Path) -> None:
    expect_end(tmp_path)
    expected = (tmp_path / _END_FILE).stat()
    write_end(tmp_path, "no space left on \U0001f4be " * 1_000)
    after = (tmp_path / _END_FILE).stat()
    assert (after.st_ino, after.st_size) == (expected.st_ino, expected.st_size)
    assert "no space left on \U0001f4be" in describe_last_end(tmp_path)


def test_last_words__node_that_never_began__are_kept_as_well(tmp_path: Path) -> None:
    write_end(tmp_path, "is not the run's data")
    assert describe_last_end(tmp_path).endswith(": is not the run's data")


def test_last_words__no_data_directory__none_is_made(tmp_path: Path) -> None:
    write_end(tmp_path / "none", "text")
    assert not (tmp_path / "none").exists() and describe_last_end(tmp_path / "none") == ""


def test_last_words__place_is_taken_by_a_link__is_refused(tmp_path: Path) -> None:
    (tmp_path / _END_FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OperatorError, match=r"end\.json"):
        write_end(tmp_path, "text")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b'{"time": 1e300, "text": "x"}', b'{"time": "now", "text": "x"}', b"\xff\xfe", b"[" * 4_096],
)
def test_last_words__file_of_nonsense__nothing_is_said(content: bytes, tmp_path: Path) -> None:
    (tmp_path / _END_FILE).write_bytes(content)
    assert describe_last_end(tmp_path) == ""


def test_life_of_a_node__next_one_begins__the_last_end_is_forgotten(tmp_path: Path) -> None:
    write_end(tmp_path, "text")
    expect_end(tmp_path)
    assert "it was killed" in describe_last_end(tmp_path)
