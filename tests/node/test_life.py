"""One life of a node: while it starts, others see that it does, and no second one begins there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from protocol.errors import OperatorError
from protocol.run.manifest import sign_manifest
from sfnode.api.joining import join
from sfnode.doctor import Examination, Finding, Verdict
from sfnode.doctor.data_directory_check import check_directory
from sfnode.node import Life
from sfnode.run import JoinOptions, RunSource
from sfnode.status import read_status
from sfnode.storage import DataDirectory, Store
from sfnode.storage.exclusive_folder import START_FILE
from tests.support.cli_calls import call
from tests.support.manifests import OWNER, small_manifest


def claimed(folder: Path) -> DataDirectory:
    data_dir = DataDirectory(folder)
    data_dir.claim()
    return data_dir


def test_commands__node_that_has_only_begun_to_start__say_so(tmp_path: Path) -> None:
    """`pause` and `doctor` called it no node's directory, and `doctor` a stopped node once the manifest was there."""
    life, data_dir, said = Life(), claimed(tmp_path / "node"), list[Finding]()
    with life:
        life.announce(data_dir)
        for command in ("pause", "resume"):
            outcome = call(command, data_dir.path)
            assert outcome.code == 1 and f"the node on {data_dir} has only begun to start" in outcome.stderr, outcome
        options = JoinOptions(source=RunSource(data_dir=data_dir))
        Examination(options, None, said.append, is_new=False)._read_manifest()
        assert "has only begun to start" in said[0].text and said[0].advice == ""
        assert said[0].verdict is Verdict.UNKNOWN, "nothing is wrong with it: the exit code was 1"
        data_dir.adopt(sign_manifest(small_manifest(), OWNER))
        outcome = call("pause", data_dir.path)
        assert outcome.code == 0 and "the node has not said that it follows" in outcome.stdout
        found = check_directory(data_dir, small_manifest())
        assert found.verdict is Verdict.OK and f"a node has been starting on {data_dir} for " in found.text


async def test_join__another_node_starts_in_the_directory__is_refused_and_changes_nothing(tmp_path: Path) -> None:
    """A node of this interface once took the directory of one that looked for its key, and its request to stop."""
    life, data_dir = Life(), claimed(tmp_path / "node")
    (tmp_path / "my.run").write_bytes(sign_manifest(small_manifest(), OWNER).encode())
    with life:
        life.announce(data_dir)
        data_dir.control.ask_to_stop()
        with pytest.raises(OperatorError, match="in use by another sfnode"):
            async with join(tmp_path / "my.run", folder=data_dir.path, is_relay=True):
                raise AssertionError("the block began")
        assert data_dir.control.is_asked_to_stop() and data_dir.end.describe() == ""
    assert data_dir.starting_s() is None


def test_announce__node_begins_between_two_looks__is_left_alone_and_the_start_may_be_shown_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start of one that is refused was shown as that of the one that runs, until it had ended."""
    life, data_dir, held = Life(), claimed(tmp_path), list[int]()
    lock_start = DataDirectory.lock_start

    def after_another(folder: DataDirectory) -> int:
        held.extend([] if held else [folder.lock()])
        return lock_start(folder)

    monkeypatch.setattr(DataDirectory, "lock_start", after_another)
    with life:
        data_dir.control.ask_to_stop()
        life.announce(data_dir)
        assert data_dir.starting_s() is None and data_dir.control.is_asked_to_stop()
        os.close(held[0])
        life.announce(data_dir)
        assert data_dir.starting_s() is not None and not data_dir.control.is_asked_to_stop()


def test_announce__daemon_rests_between_two_lives__another_node_neither_starts_there_nor_writes_how_it_ended(
    tmp_path: Path,
) -> None:
    """After a slip a daemon lets the lock go for a second or more. A second node that began then wrote its own end over
    the first one's, or took the lock, and the first one ended."""
    first, second, data_dir = Life(), Life(), claimed(tmp_path)
    with first:
        first.announce(data_dir)
        held = data_dir.lock()
        first.begin(data_dir)
        assert data_dir.starting_s() is None
        os.close(held)  # the pause after the slip
        assert data_dir.is_in_use() and data_dir.starting_s() is not None
        with pytest.raises(OperatorError, match="in use by another sfnode"), second:
            second.announce(data_dir)
        held = data_dir.lock()
        assert "it was killed" in data_dir.end.describe(), "the first one runs, and its end is not known yet"
    os.close(held)
    assert "in good order" in data_dir.end.describe() and not data_dir.is_in_use()


def test_status__daemon_rests_between_two_lives__counts_from_the_last_ones_end_and_names_it(tmp_path: Path) -> None:
    """`status` said of a node that had run for three days that it had been starting for three days, and `config` that
    one need but start it."""
    life, data_dir = Life(), claimed(tmp_path / "node")
    with life:
        life.announce(data_dir)
        store = Store(data_dir, sign_manifest(small_manifest(), OWNER))
        life.begin(data_dir)
        os.utime(data_dir.path / START_FILE, (0.0, 0.0))
        store.close()
        with pytest.raises(OperatorError, match=r"starting for [0-5] s: .* or rests after a fault of its own\."):
            read_status(data_dir)
        outcome = call("config", "set", "threads", "2", "--data-dir", data_dir)
        assert "next     stop the node and start it again" in outcome.stdout


def test_life__node_fails_at_the_lock_of_one_that_announced_nothing__its_end_is_not_the_runners(tmp_path: Path) -> None:
    """One that announces itself while a node runs shows no start. If it begins once that one has ended, its end and
    requests to stop it are its own; another one, which began to start in between, leaves the end alone."""
    first, second, data_dir = Life(), Life(), claimed(tmp_path)
    held = data_dir.lock()
    first.announce(data_dir)
    os.close(held)
    second.announce(data_dir)
    held = data_dir.lock()
    with first:
        first.begin(data_dir)
        with pytest.raises(OperatorError, match="in use by another sfnode"), second:
            data_dir.lock()
        assert "it was killed" in data_dir.end.describe(), "the first one runs, and its end is not known yet"
    os.close(held)
    assert "in good order" in data_dir.end.describe()
