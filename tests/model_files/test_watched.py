"""A process that fills a folder is watched: its progress, its words, its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from sfnode.model_files import conversion
from sfnode.model_files.conversion import WeightForm, convert_weights
from sfnode.model_files.resolve import resolve_model
from sfnode.model_files.watched_process import run_watched
from sfnode.storage import disk
from tests.children.made_up_programs import made_up
from tests.support.small_disk import small_disk
from tests.support.stored_models import demo_tensors, pickled_folder

WRITES = "import sys, time; open('{}', 'wb').write(bytes(5_000)); time.sleep(1); sys.exit('what went wrong')"


def test_process__that_ends__is_told_of_with_its_last_words(tmp_path: Path) -> None:
    told: list[int] = []
    program = made_up(tmp_path, WRITES.format(tmp_path / "file"))
    assert run_watched(program, tmp_path, told.append, 30, "") == (1, "what went wrong")
    assert told and told[-1] >= 5_000


def test_process__its_folder__is_its_place_for_temporary_files(tmp_path: Path) -> None:
    """pip gathers a wheel in one before it puts it where it was told: nothing would seem to come."""
    program = made_up(tmp_path, "import sys, tempfile; sys.exit(tempfile.gettempdir())")
    assert run_watched(program, tmp_path, lambda _bytes: None, 30, "") == (1, str(tmp_path))


def test_bytes_below__links_and_folders__count_what_lies_there(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(bytes(1_000))
    os.symlink("/dev/zero", tmp_path / "gone")
    assert 1_000 <= disk.bytes_below(tmp_path) < 1_100


@pytest.mark.parametrize(
    ("outcome", "complaint"),
    [
        ((3, "some noise\nmodel.bin: it is no model"), r"^model\.bin: it is no model$"),
        ((-9, ""), "the process that converted it was killed by signal 9; it may need more memory"),
        ((1, "Traceback\nKeyError: 'x'"), "the process that converted it failed: KeyError: 'x'"),
        ((1, ""), "the process that converted it failed: it ended without a word"),
        (None, "converting it stood still for 300 s, and was ended"),
    ],
)
def test_conversion__process_does_not_succeed__operator_is_told_in_one_line(
    outcome: tuple[int, str] | None, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: object) -> tuple[int, str]:
        if outcome is None:
            raise OperatorError(str(arguments[-1]))
        return outcome

    monkeypatch.setattr(conversion, "run_watched", run)
    (tmp_path / "work").mkdir()
    source = pickled_folder(tmp_path / "model", demo_tensors())
    with pytest.raises(OperatorError, match=complaint):
        convert_weights(WeightForm.PICKLES, source, tmp_path / "work", lambda *_progress: None)


def test_conversion__something_is_not_installed__operator_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "find_spec", lambda name: None if name == "gguf" else name)
    with pytest.raises(OperatorError, match="converting it needs gguf, which this install lacks"):
        convert_weights(WeightForm.GGUF, tmp_path / "tiny.gguf", tmp_path, lambda *_progress: None)


def test_conversion__disk_is_full__operator_is_told_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pickled_folder(tmp_path / "model", demo_tensors())
    with small_disk(tmp_path / "disk", kilobytes=256) as disk:
        monkeypatch.setenv("SFNODE_MODELS", str(disk))
        with pytest.raises(OperatorError, match="the disk is full"):
            resolve_model(str(source))
        assert not list(disk.iterdir())
