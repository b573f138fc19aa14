"""``sfnode forget``: what a node wrote goes, what somebody else put there stays, and nothing goes unasked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from protocol.errors import OperatorError
from protocol.run.manifest import sign_manifest
from sfnode.cli import cli
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests.support.manifests import OWNER, small_manifest

SIGNED = sign_manifest(small_manifest(), OWNER)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDirectory:
    """A directory as a node leaves it."""
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path / "models"))
    data_dir = DataDirectory(tmp_path / "node")
    Store(data_dir, SIGNED).close()
    data_dir.adopt(SIGNED)
    data_dir.control.pause()
    (tmp_path / "my.key").write_text("kept elsewhere")
    (data_dir.path / "identity.key").symlink_to(tmp_path / "my.key")
    for name in ("snapshot-0000008-0123456789abcdef.bin", "web.token", "halt.json", "data-0123456789abcdef.jsonl"):
        (data_dir.path / name).write_bytes(b"x")
    (data_dir.path / "statements").mkdir()
    return data_dir


def forget(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["forget", *map(str, arguments)])
    return result.exit_code, result.output if result.exception is None else f"{result.output}{result.exception}"


def test_forget__agreed__removes_the_directory_and_not_the_key_that_lies_elsewhere(
    node: DataDirectory, tmp_path: Path
) -> None:
    code, output = forget(node, "--yes")
    assert code == 0 and "sfnode id backup" in output and str(tmp_path / "models") in output
    assert not node.path.exists() and (tmp_path / "my.key").read_text() == "kept elsewhere"


def test_forget__file_that_no_node_writes__stays_and_is_named(node: DataDirectory) -> None:
    (node.path / "train.jsonl").write_text("{}")
    code, output = forget(node, "--yes", "--json")
    assert (code, json.loads(output)["kept"]) == (0, [str(node.path / "train.jsonl")])
    assert [path.name for path in node.path.iterdir()] == ["train.jsonl"]


def test_forget__files_whose_names_resemble_a_nodes__stay(node: DataDirectory) -> None:
    """Whatever began with "halt" or "data-", and every .tmp, went with the node."""
    mine = {"data-mine.jsonl", "halting-problem.txt", "draft.tmp", "snapshot-of-us.bin"}
    for name in (*mine, "status.json.0123456789abcdef.tmp", "halt-snapshot.bin", "ledger.sqlite3-wal"):
        (node.path / name).write_text("x")
    assert forget(node, "--yes")[0] == 0
    assert {path.name for path in node.path.iterdir()} == mine


def test_forget__nobody_can_be_asked__removes_nothing(node: DataDirectory) -> None:
    code, output = forget(node)
    assert code == 1 and "--yes is missing" in output and node.manifest_file.exists()


@pytest.mark.parametrize("lock", [DataDirectory.lock, DataDirectory.lock_start])
def test_forget__node_runs_or_starts__is_refused_with_the_command_that_stops_it(
    lock: Callable[[DataDirectory], int], node: DataDirectory
) -> None:
    """The folder of a node that looked for its key went, and then its key with it."""
    held = lock(node)
    try:
        code, output = forget(node, "--yes")
        with pytest.raises(OperatorError, match="in use by another sfnode"):  # one that began after the question
            node.remove()
    finally:
        os.close(held)
    assert code == 1 and f"sfnode stop --data-dir {node}" in output and node.manifest_file.exists()


def test_forget__folder_of_something_else__is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    code, output = forget(tmp_path, "--yes")
    assert code == 1 and "is not a node's data directory" in output and (tmp_path / "thesis.tex").exists()
