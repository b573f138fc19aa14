"""A run's public data by their hash: from the disk, from a node that gives them, or not at all."""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from protocol.errors import OperatorError
from protocol.run.task import DATA_PRIVATE, TaskSpec
from sfnode.network import bounds
from sfnode.network.sessions.file_server import ServedRun
from sfnode.node.model_sharing import DataSharing
from sfnode.reporter import Reporter
from sfnode.run.public_data import find_public_data, is_of_peers, public_data_path, shared_data
from sfnode.run.run_address import RunAddress
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.example_files import training_file
from tests.support.manifests import small_manifest
from tests.support.network_nodes import MANIFEST, RUN_ID, network_of, start

DATA = b'{"sentence": "good", "label": 1}\n' * 3_000  # four parts
PRIVATE = replace(small_manifest().task, data=DATA_PRIVATE, data_sha256="")
TASK = replace(PRIVATE, data="file:train.jsonl", data_sha256=hashlib.sha256(DATA).hexdigest())
NOBODY = RunAddress()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "BACKOFF_BOOTSTRAP_MAX_S", 0.01)


def file_with(folder: Path, data: bytes = DATA) -> Path:
    path = folder / "train.jsonl"
    path.write_bytes(data)
    return path


async def fetched(
    folder: Path, given: DataSharing, *, data_bytes: int = len(DATA), limit_s: float = 5.0
) -> Path | None:
    """What a joiner gets of a node that gives that."""
    served = ServedRun(run_id=RUN_ID, manifest_bytes=MANIFEST, find_file=given.find)
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network_of(1, served))
        told = RunAddress(nodes=node.addresses, run_data_bytes=data_bytes)
        found = None
        with trio.move_on_after(limit_s):
            found = await find_public_data(TASK, told, DataDirectory(folder), Reporter(stream=io.StringIO()))
        nursery.cancel_scope.cancel()
    return found


async def test_public_data__node_gives_them__are_here_and_need_nobody_afterwards(tmp_path: Path) -> None:
    found = await fetched(tmp_path, DataSharing(TASK, file_with(tmp_path), 0))
    path = public_data_path(DataDirectory(tmp_path), TASK)
    assert found == path and path.read_bytes() == DATA
    assert await find_public_data(TASK, NOBODY, DataDirectory(tmp_path), Reporter(stream=io.StringIO())) == found


async def test_public_data__node_lies__nothing_is_stored(tmp_path: Path) -> None:
    lie = file_with(tmp_path, DATA[:-2] + b" \n")
    assert await fetched(tmp_path, DataSharing(TASK, lie, 0), limit_s=0.6) is None
    assert not public_data_path(DataDirectory(tmp_path), TASK).exists()


async def test_public_data__operator_does_not_give_them__nothing_comes(tmp_path: Path) -> None:
    assert await fetched(tmp_path, DataSharing(TASK, None, 0), limit_s=0.6) is None


async def test_public_data__file_was_damaged__is_not_taken(tmp_path: Path) -> None:
    public_data_path(DataDirectory(tmp_path), TASK).write_bytes(DATA[1:])
    with pytest.raises(OperatorError, match=r"data-\w+\.jsonl, the run's data, is damaged: join again by the string"):
        await find_public_data(TASK, NOBODY, DataDirectory(tmp_path), Reporter(stream=io.StringIO()))
    assert await fetched(tmp_path, DataSharing(TASK, file_with(tmp_path), 0)) is not None
    assert public_data_path(DataDirectory(tmp_path), TASK).read_bytes() == DATA


async def test_public_data__file_has_gone_and_no_string_is_remembered__no_node_is_said_to_refuse_them(
    tmp_path: Path,
) -> None:
    """`sfnode start` said of data that nodes had given, and would give again, that they do not."""
    assert await fetched(tmp_path, DataSharing(TASK, file_with(tmp_path), 0)) is not None
    public_data_path(DataDirectory(tmp_path), TASK).unlink()
    assert await find_public_data(TASK, NOBODY, DataDirectory(tmp_path), Reporter(stream=io.StringIO())) is None
    with pytest.raises(OperatorError, match=r"public data, train\.jsonl, or join by a string of nodes that give them"):
        training_file(TASK, None)


def test_data_sharing__another_hash_or_a_file_that_has_gone__is_not_there(tmp_path: Path) -> None:
    path = file_with(tmp_path)
    given = DataSharing(TASK, path, 0)
    found = given.find(TASK.data_sha256)
    assert found is not None and found.read(0, len(DATA)) == DATA
    assert given.find("ab" * 32) is None
    path.unlink()
    assert given.find(TASK.data_sha256) is None


@pytest.mark.parametrize("is_found_before", [False, True])
def test_data_sharing__file_changes_while_the_node_runs__is_not_given_any_more(
    is_found_before: bool, tmp_path: Path
) -> None:
    """Its owner added a row: every joiner got the whole file, took it for a lie, and began again without end."""
    path = file_with(tmp_path)
    given = DataSharing(TASK, path, 0)
    found = given.find(TASK.data_sha256) if is_found_before else None
    with path.open("ab") as file:
        file.write(DATA)
    assert given.find(TASK.data_sha256) is None
    if found is not None:
        with pytest.raises(OSError, match="has changed"):
            found.read(0, 1)


@pytest.mark.parametrize(
    ("task", "data", "expected"),
    [
        (TASK, None, True),
        (TASK, "mine.jsonl", False),
        (PRIVATE, None, False),
        (replace(TASK, data="embedded:reviews"), None, False),
    ],
)
def test_is_of_peers__public_files_that_nobody_has_named__are(task: TaskSpec, data: str | None, expected: bool) -> None:
    assert is_of_peers(task, data) == expected


@pytest.mark.parametrize(
    ("task", "words"),
    [(PRIVATE, "private"), (replace(TASK, data="embedded:reviews"), "part of sfnode"), (TASK, "Add --data FILE")],
)
def test_share_data__nothing_to_give__says_why(task: TaskSpec, words: str) -> None:
    with pytest.raises(OperatorError, match=words):
        shared_data(task, None)


def test_share_data__file_is_too_large__says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file_with(tmp_path)
    assert shared_data(TASK, path) == path
    monkeypatch.setattr(bounds, "DATA_FILE_BYTES_MAX", len(DATA) - 1)
    with pytest.raises(OperatorError, match="publish the file elsewhere"):
        shared_data(TASK, path)
