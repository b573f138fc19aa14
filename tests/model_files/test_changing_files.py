"""Files of a model that change, cannot be read for a moment, or are being made."""

from __future__ import annotations

import errno
import fcntl
import os
from hashlib import sha256
from pathlib import Path

import pytest

from protocol.run import FileSpec
from protocol.run.model import file_of
from sfnode.model_files import conversion, pieces
from sfnode.model_files.pieces import PieceIndex


def test_piece__file_is_replaced_while_it_is_given__ends_as_if_it_were_not_there(tmp_path: Path) -> None:
    """What the new file had at that place was sent on, and the giver was banned for a day."""
    path, data = tmp_path / "model.safetensors", bytes(100_000)
    path.write_bytes(data)
    index = PieceIndex()
    index.add(path, file_of(path.name, data), sha256(data).digest())
    piece = index.find(sha256(data).hexdigest())
    assert piece is not None and piece.read(0, 10) == data[:10]
    path.write_bytes(b"another")
    with pytest.raises(OSError, match="has changed"):
        piece.read(10, 10)
    assert index.find(sha256(data).hexdigest()) is None


def test_is_there__no_descriptor_is_free__is_an_error_that_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was an operator's error, which ends a node."""
    file: FileSpec = file_of("config.json", b"{}")
    (tmp_path / file.name).write_bytes(b"{}")
    assert pieces.is_there(tmp_path, file)

    def refuse(*_arguments: object, **_named: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        pieces.is_there(tmp_path, file)


def test_left_overs__folder_looks_old_and_its_process_lives__stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock had been set forward, and the model that was being made was removed."""
    monkeypatch.setattr(conversion, "cache_folder", lambda: tmp_path)
    living, left = tmp_path / f"{conversion._MAKING}1", tmp_path / f"{conversion._MAKING}2"
    for folder in (living, left):
        folder.mkdir()
        os.utime(folder, (0, 0))
    held = os.open(living, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    conversion.clear_left_overs()
    os.close(held)
    assert living.exists() and not left.exists()


def test_making__one_that_waits_gives_up__the_others_still_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: it took away the file with the lock, and the next one made the same model a second time."""
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "models"))

    def give_up(*_progress: object) -> None:
        raise KeyboardInterrupt

    with conversion.making_alone("tiny", give_up):
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt), conversion.making_alone("tiny", give_up):
                pytest.fail("two make one model")
    assert not list((tmp_path / "models").iterdir())
