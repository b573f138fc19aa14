"""The worker's process: however it ends, and wherever it cannot start, the error says so."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import psutil
import pytest
import trio
import trio.testing

from protocol.errors import OperatorError, WorkerError
from sfnode.worker import supervisor
from sfnode.worker.supervisor import NotUpError, supervise, worker_process
from sfnode.worker.worker_client import WorkerSession
from sfnode.worker_protocol.training_config import TrainingConfig

AUTOGROUP = Path("/proc/self/autogroup")


@pytest.fixture
def fake_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shell script that is started in place of Python; $7 is the path of the socket."""
    script = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(script))
    return script


def write_script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "fate"),
    [
        ("exit 3", r"ended at once \(exit code 3; its last output says why\)"),
        ("kill -9 $$", r"ended at once \(killed by SIGKILL: perhaps the system ran out of memory\)"),
        ("kill -11 $$", r"ended at once \(killed by SIGSEGV\)"),
    ],
)
async def test_worker_process__ends_at_once__says_how(text: str, fate: str, fake_python: Path) -> None:
    write_script(fake_python, text)
    with pytest.raises(WorkerError, match=fate):
        async with worker_process():
            raise AssertionError("never up")


async def test_worker_process__program_that_is_not_there__says_so(fake_python: Path) -> None:
    with pytest.raises(WorkerError, match="cannot be started: No such file or directory"):
        async with worker_process():
            raise AssertionError("never up")
    assert not fake_python.exists()


async def test_worker_process__never_listens__is_given_up(fake_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_script(fake_python, "exec sleep 60")
    monkeypatch.setattr(supervisor, "STILL_S", 0.2)
    with pytest.raises(NotUpError, match=r"did not start: it had computed for 0\.0 s, and did nothing for 0 s"):
        async with worker_process():
            raise AssertionError("never up")


@pytest.mark.process
async def test_worker_process__computes_longer_than_it_may_stand_still__is_waited_for(
    fake_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing torch takes minutes where other programs have the cores; it was killed after two, each time anew."""
    counting = "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done"
    write_script(fake_python, f"{counting}\ntouch $7\nexec sleep 60")
    monkeypatch.setattr(supervisor, "STILL_S", 0.5)
    started_s = time.monotonic()
    async with worker_process() as socket:
        assert socket.exists()
    assert time.monotonic() - started_s > supervisor.STILL_S


@pytest.mark.process
async def test_worker_process__computes_for_ever__is_given_up(
    fake_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_script(fake_python, "while :; do :; done")
    monkeypatch.setattr(supervisor, "COMPUTING_S", 0.3)
    with pytest.raises(NotUpError, match=r"had computed for 0\.\d s"):
        async with worker_process():
            raise AssertionError("never up")


@pytest.mark.process
async def test_supervise__worker_that_needs_longer_each_time__is_given_twice_as_long_and_it_is_said(
    fake_python: Path, monkeypatch: pytest.MonkeyPatch, fast_clock: trio.testing.MockClock
) -> None:
    write_script(fake_python, "sleep 0.9\ntouch $7\nexec sleep 60")
    monkeypatch.setattr(supervisor, "STILL_S", 0.3)
    told: list[WorkerError] = []
    with trio.CancelScope() as scope:

        async def hear(error: WorkerError, _pause_s: float) -> None:
            told.append(error)
            if not isinstance(error, NotUpError) or len(told) == 8:
                scope.cancel()  # it came up; nobody answers on what it has made

        await supervise(TrainingConfig(model=None, data=None), no_session, hear)
    *too_slow, up = told
    assert "no training worker answers" in str(up)
    assert len(too_slow) >= 2 and "The next one is given 1 s" in str(too_slow[0]), too_slow


async def no_session(_session: WorkerSession) -> None:
    raise AssertionError("nobody listens")


@pytest.fixture
def fast_clock() -> trio.testing.MockClock:
    """Pauses between two starts pass fifty times as fast; processes take the time that they take."""
    return trio.testing.MockClock(rate=50.0)


async def test_worker_process__ignores_all_hints__is_killed_and_its_folder_removed(
    fake_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_script(fake_python, "trap '' TERM\ntouch $7\nwhile :; do sleep 0.1; done")
    monkeypatch.setattr(supervisor, "STOP_S", 0.2)
    with trio.fail_after(5):
        async with worker_process() as socket:
            assert socket.exists()
    assert not socket.parent.exists()


async def test_worker_process__killed_while_in_use__says_how_it_ended(fake_python: Path) -> None:
    write_script(fake_python, "echo $$ > $7.new\nmv $7.new $7\nexec sleep 60")
    with pytest.raises(WorkerError, match=r"the answer never came \(killed by SIGKILL"):
        await kill_while_in_use()


async def kill_while_in_use() -> None:
    async with worker_process() as socket:
        os.kill(int(socket.read_text()), signal.SIGKILL)
        raise WorkerError("the answer never came")


async def test_worker_process__no_place_for_the_socket__says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(OperatorError, match=r"cannot make a folder for the training worker's socket: .*TMPDIR"):
        async with worker_process():
            raise AssertionError("never up")
    deep = tmp_path / ("d" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(OperatorError, match="too long a path for a socket: set TMPDIR to a shorter one"):
        async with worker_process():
            raise AssertionError("never up")
    assert list(deep.iterdir()) == []


async def test_worker_process__disk_of_the_socket_is_full__is_no_reason_to_end_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker was to come back at a bad moment; other programs soon make room in /tmp."""
    full = mock.Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(WorkerError, match="cannot make a folder for the training worker's socket: the disk is full"):
        async with worker_process():
            raise AssertionError("never up")


async def test_worker_process__of_a_session_of_its_own__leaves_the_cores_to_other_sessions() -> None:
    """32 nodes beside four workers once woke up a second late each time: niceness counts within a session only."""
    if not AUTOGROUP.exists():
        pytest.skip("this system has no autogroups: nothing to be seen here")
    expected = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    async with worker_process() as socket:
        worker = next(child for child in psutil.Process().children() if str(socket) in child.cmdline())
        assert worker.nice() == expected
        assert Path(f"/proc/{worker.pid}/autogroup").read_text().endswith(f" nice {expected}\n")


def test_default_threads__any_machine__leaves_a_core_to_the_network() -> None:
    assert TrainingConfig.default_threads() == max(1, (os.cpu_count() or 1) - 1)
