"""`sfnode list`, and how a node of this machine is named: by its name, the beginning of it, or not at all."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from protocol.run.manifest import sign_manifest
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.key_file import KeyFile
from sfnode.storage.record_store import Store
from tests.cli.test_commands import STATUS
from tests.support.cli_calls import assert_teaches, call
from tests.support.manifests import OWNER, OWNER_SEED, small_manifest

INVITED = small_manifest(admission="invite")


def make(home: Path, name: str) -> DataDirectory:
    made = DataDirectory(home / ".sfnode" / name)
    Store(made, sign_manifest(INVITED, OWNER)).close()
    made.identity.made_seed()
    return made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".sfnode" / "models" / "x").mkdir(parents=True)
    return tmp_path


def test_list__no_node__says_how_to_get_one(home: Path) -> None:
    assert "sfnode join" in call("list").stdout
    assert json.loads(call("list", "--json").stdout) == []


def test_list__nodes__are_shown_with_what_they_do(home: Path) -> None:
    first, damaged = make(home, "my-run-0123456789ab"), make(home, "other-cdef01234567")
    first.end.write("the disk is full")
    first.status_file.write_text(json.dumps(STATUS.to_json()))
    damaged.manifest_file.write_bytes(b"{")
    rows = json.loads(call("list", "--json").stdout)
    assert [row["node"] for row in rows] == ["my-run-0123456789ab", "other-cdef01234567"]
    assert rows[0]["run"] == INVITED.name and "the disk is full" in rows[0]["state"]
    assert rows[0]["key"] == STATUS.node.author[:16] and str(damaged.manifest_file) in rows[1]["state"]
    assert all(row["node"] in call("list").stdout for row in rows)


@pytest.mark.parametrize(
    "words", [("my-run-0123456789ab",), ("my",), ("--data-dir", "my"), ("--data-dir", "~/.sfnode/my-run-0123456789ab")]
)
def test_node__name_or_its_beginning__is_as_good_as_its_directory(words: tuple[str, ...], home: Path) -> None:
    node = make(home, "my-run-0123456789ab")
    make(home, "other-cdef01234567")
    told = json.loads(call("id", "show", *words, "--json").stdout)
    assert told["author"] == node.identity.signer().author.hex()
    assert json.loads(call("log", "verify", *words, "--json").stdout)["ok"]


def test_node__only_one__need_not_be_named(home: Path) -> None:
    node = make(home, "my-run-0123456789ab")
    assert json.loads(call("pause", "--json").stdout)["paused"] and node.control.is_paused()
    assert call("config", "set", "threads", "2").code == 0 and node.node_file.exists()
    assert "my-run-0123456789ab" in call("top", "--once").stdout
    KeyFile(home / "owner.key").store(OWNER_SEED)
    make(home, "old-cdef01234567").manifest_file.write_bytes(b"{")  # damaged: it is no reason to refuse this
    assert call("run", "invite", "--owner-key", "owner.key", "--for", "Ann").stdout.startswith("invite:")


def test_node__several__are_listed_and_none_is_taken(home: Path) -> None:
    make(home, "my-run-0123456789ab")
    make(home, "my-run-cdef01234567")
    assert_teaches(call("status"), "my-run-0123456789ab, my-run-cdef01234567", "sfnode list")
    outcome = call("status", "my-run")
    assert outcome.code == 2 and "my-run-0123456789ab, my-run-cdef01234567" in outcome.stderr
    assert_teaches(call("status", "my-run-0", "--data-dir", "my-run-c"), "two nodes are named")


def test_node__folder_of_that_name_is_here__is_the_one_that_is_meant(home: Path) -> None:
    make(home, "my-run-0123456789ab")
    (home / "my-run").mkdir()
    assert_teaches(call("log", "verify", "my-run"), "my-run is not a node's data directory")


def test_node__folder_that_the_user_may_not_enter__is_passed_over_and_refused_in_words(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One such folder below ~/.sfnode, and any path below one, ended commands in a traceback."""
    make(home, "my-run-0123456789ab")
    closed, stat = make(home, "other-cdef01234567").path, os.stat

    def stat_as_a_stranger(path: object, **given: Any) -> os.stat_result:
        if str(path).startswith(f"{closed}/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return stat(path, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", stat_as_a_stranger)
    assert [row["node"] for row in json.loads(call("list", "--json").stdout)] == ["my-run-0123456789ab"]
    for command in (("status", "--data-dir"), ("id", "show", "--key")):
        assert_teaches(call(*command, closed / "node"), f"{closed}/node", "Permission denied", "change the permissions")


def test_run_exclude__key_of_another_run__does_not_take_this_node(home: Path) -> None:
    make(home, "my-run-0123456789ab")
    KeyFile(home / "other.key").made_seed()
    given = ("run", "exclude", "ff" * 32, "--from-step", 0, "--owner-key", "other.key")
    assert_teaches(call(*given), "--data-dir", "--run FILE", "0 nodes")


def test_list__import_was_killed_or_is_at_work__is_no_node(home: Path) -> None:
    """Commands without a name said that there were two nodes, and `sfnode list` showed the one in the making."""
    node = make(home, "my-run-0123456789ab")
    make(home, "other-cdef01234567.import-s05ed85l")
    assert [row["node"] for row in json.loads(call("list", "--json").stdout)] == [node.path.name]
    assert call("pause").code == 0


def test_forget__an_import_into_the_directory_was_killed__goes_with_the_node(home: Path) -> None:
    """It was called a folder that no node writes, and stayed."""
    node = make(home, "my-run-0123456789ab")
    make(node.path.parent, "x").path.rename(node.path / ".import-s05ed85l")
    assert call("forget", node, "--yes").code == 0 and not node.path.exists()


@pytest.mark.parametrize("manifest", [b'"format":5', b"damaged"])
def test_node__manifest_of_another_release_or_damaged__can_be_stopped_and_forgotten(
    manifest: bytes, home: Path
) -> None:
    """Just what an upgrade leaves behind: `forget` asked for an older sfnode, and `stop` left the old process alone."""
    node = make(home, "my-run-0123456789ab")
    node.manifest_file.write_bytes(node.manifest_file.read_bytes().replace(b'"format":6', manifest))
    assert_teaches(call("config", "show"), "manifest")
    assert_teaches(call("status"), "no node runs on")
    assert_teaches(call("stop"), "no node runs on")
    assert call("pause").code == 0 and node.control.is_paused()
    assert call("resume").code == 0 and not node.control.is_paused()
    outcome = call("forget", node, "--yes")
    assert outcome.code == 0 and "cannot read" in outcome.stdout and not node.path.exists()


def test_stop__node_that_has_only_begun_to_start__is_started_by_join_again(tmp_path: Path) -> None:
    """It named `sfnode start`, which refuses a directory whose node has never run."""
    (place := DataDirectory(tmp_path / "node")).claim()
    start = place.lock_start()

    def end_when_asked() -> None:
        while not place.control.is_asked_to_stop():
            time.sleep(0.01)
        os.close(start)

    (node := threading.Thread(target=end_when_asked)).start()
    outcome = call("stop", place)
    node.join()
    assert f"next     sfnode join --data-dir {place} ..." in outcome.stdout
