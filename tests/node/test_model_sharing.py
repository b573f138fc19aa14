"""What a node gives of its model's files: those that are the run's, byte for byte, where owner and operator let it."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import pytest

from protocol.run.model import ModelSpec, Sharing
from sfnode.model_files.pieces import FilePiece, PieceIndex, hashes_of
from sfnode.node.model_sharing import share_model
from sfnode.reporter import Reporter
from sfnode.run.node_options import SharingOptions
from tests.node.split_models import CONFIG, FILES, TOKENIZER, WEIGHTS, all_pieces, made_up_model, pieces_of, write_model


async def shared(spec: ModelSpec, folder: Path, **options: Any) -> PieceIndex:
    given, reporter = PieceIndex(), Reporter(is_json=True, stream=io.StringIO())
    await share_model(spec, SharingOptions(**options), folder, given, reporter)
    return given


async def test_sharing__folder_of_the_run__gives_every_piece_and_list(tmp_path: Path) -> None:
    index = await shared(made_up_model(), write_model(tmp_path / "model"))
    for digest, data in all_pieces().items():
        found = index.find(digest)
        assert found is not None and found.total == len(data)
        assert found.read(0, len(data) + 1) == data and found.read(7, 9) == data[7:16]
        assert found.read(len(data), 10) == found.read(len(data) + 5, 10) == b""


async def test_sharing__other_weights_under_the_runs_name__are_not_given(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model")
    (folder / WEIGHTS).write_bytes(FILES[WEIGHTS][:-1] + b"!")
    (folder / CONFIG).unlink()
    index = await shared(made_up_model(), folder)
    first = hashlib.sha256(pieces_of(FILES[WEIGHTS])[0]).hexdigest()
    assert index.find(first) is None
    assert index.find(hashlib.sha256(FILES[TOKENIZER]).hexdigest()) is not None


@pytest.mark.parametrize(("sharing", "no_share_model"), [(Sharing.NONE, False), (Sharing.PEERS, True)])
async def test_sharing__owner_or_operator_forbids_it__gives_nothing(
    tmp_path: Path, sharing: Sharing, no_share_model: bool
) -> None:
    folder = write_model(tmp_path / "model")
    index = await shared(made_up_model(sharing), folder, no_share_model=no_share_model)
    assert all(index.find(digest) is None for digest in all_pieces())


def test_pieces__file_changes_after_it_was_looked_at__what_changed_is_not_given(tmp_path: Path) -> None:
    folder, index, spec = write_model(tmp_path / "model"), PieceIndex(), made_up_model().weights[0]
    hashes = hashes_of(folder / WEIGHTS, spec)
    assert hashes is not None
    index.add(folder / WEIGHTS, spec, hashes)
    with (folder / WEIGHTS).open("r+b") as file:
        file.seek(10)
        file.write(b"changed")
    digests = [hashlib.sha256(piece).hexdigest() for piece in pieces_of(FILES[WEIGHTS])]
    assert index.find(digests[0]) is None
    assert isinstance(index.find(digests[1]), FilePiece)
    (folder / WEIGHTS).unlink()
    assert index.find(digests[1]) is None
