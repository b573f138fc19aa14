"""The worker's process: however it ends, and wherever it cannot start, the error says so."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import trio

from protocol.errors import OperatorError, WorkerError
from sfnode.worker import supervisor
from sfnode.worker.supervisor import default_threads, worker_process

AUTOGROUP = Path("/proc/self/autogroup")


@pytest.fixture
def fake_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shell script that is started in place of Python; $4 is the path of the socket."""
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
    monkeypatch.setattr(supervisor, "START_S", 0.2)
    with pytest.raises(WorkerError, match="did not start within 0 s"):
        async with worker_process():
            raise AssertionError("never up")


async def test_worker_process__ignores_all_hints__is_killed_and_its_folder_removed(
    fake_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_script(fake_python, "trap '' TERM\ntouch $4\nwhile :; do sleep 0.1; done")
    monkeypatch.setattr(supervisor, "STOP_S", 0.2)
    with trio.fail_after(5):
        async with worker_process() as socket:
            assert socket.exists()
    assert not socket.parent.exists()


async def test_worker_process__killed_while_in_use__says_how_it_ended(fake_python: Path) -> None:
    write_script(fake_python, "echo $$ > $4.new\nmv $4.new $4\nexec sleep 60")
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
    assert default_threads() == max(1, (os.cpu_count() or 1) - 1)
