"""The node's side of the worker: every kind of answer and of silence becomes the error that says who can help."""

from __future__ import annotations

import math
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest
import trio
import trio.testing

from protocol.errors import NumericError, OperatorError, SfnodeError, WorkerError, WorkerMemoryError
from sfnode.worker import client as worker_client
from sfnode.worker.client import connect, default_threads, worker_process
from sfnode.worker.messages import (
    FRAME_BYTES_MAX,
    CoefficientsSet,
    Estimated,
    EstimateRequest,
    Evaluated,
    EvaluateRequest,
    FailureKind,
    SetCoefficients,
    WorkerFailure,
    encode_frame,
)
from tests.support.fake_worker import fake_worker

ESTIMATE = EstimateRequest(step=3, seed=7)


def failure(kind: FailureKind) -> WorkerFailure:
    return WorkerFailure(kind=kind, message="this is why")


async def test_session__requests_one_after_the_other__get_their_replies(tmp_path: Path) -> None:
    async with fake_worker(tmp_path) as worker:
        session = await connect(worker.path)
        assert await session.request(SetCoefficients(epochs=()), CoefficientsSet) == CoefficientsSet()
        assert (await session.request(ESTIMATE, Estimated)).q == (4,)
        assert (await session.request(EvaluateRequest(rows_max=0), Evaluated)).rows == 8
        await session.aclose()
        assert [type(request) for request in worker.requests] == [SetCoefficients, EstimateRequest, EvaluateRequest]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (FailureKind.OPERATOR, OperatorError),
        (FailureKind.MEMORY, WorkerMemoryError),
        (FailureKind.NUMERIC, NumericError),
        (FailureKind.INTERNAL, WorkerError),
    ],
)
async def test_session__failure__becomes_the_error_of_its_kind(
    kind: FailureKind, error: type[SfnodeError], tmp_path: Path
) -> None:
    async with fake_worker(tmp_path, lambda _: failure(kind)) as worker:
        session = await connect(worker.path)
        with pytest.raises(error, match="this is why"):
            await session.request(ESTIMATE, Estimated)
        await session.aclose()


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (b"", "has ended"),
        (b"\0\0", "has ended"),
        ((FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "out of step"),
        (b"\0\0\0\1\xc1", "differ in release"),
        (b"\0\0\0\2\x92\x01", "differ in release"),
        (encode_frame(CoefficientsSet()), "answered CoefficientsSet to EstimateRequest"),
    ],
)
async def test_session__answer_that_is_none__is_a_worker_error(reply: bytes, complaint: str, tmp_path: Path) -> None:
    async with fake_worker(tmp_path, lambda _: reply) as worker:
        session = await connect(worker.path)
        with pytest.raises(WorkerError, match=complaint):
            await session.request(ESTIMATE, Estimated)
        await session.aclose()


@pytest.mark.parametrize("loss", [math.nan, math.inf])
async def test_session__evaluation_that_overflowed__is_a_numeric_error(loss: float, tmp_path: Path) -> None:
    reply = Evaluated(accuracy=0.5, f1=None, loss=loss, rows=8, seconds=0.0)
    async with fake_worker(tmp_path, lambda _: reply) as worker:
        session = await connect(worker.path)
        with pytest.raises(NumericError, match="not finite"):
            await session.request(EvaluateRequest(rows_max=0), Evaluated)
        await session.aclose()


async def test_connect__nobody_listens__says_where(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"no training worker answers on .*worker.sock: No such file"):
        await connect(tmp_path / "worker.sock")
    bound = trio.socket.socket(trio.socket.AF_UNIX)
    await bound.bind(str(tmp_path / "stale.sock"))
    with pytest.raises(WorkerError, match=r"no training worker answers on .*stale.sock: Connection refused"):
        await connect(tmp_path / "stale.sock")
    bound.close()


async def test_connect__worker_between_bind_and_listen__is_waited_for(tmp_path: Path) -> None:
    listener = trio.socket.socket(trio.socket.AF_UNIX)
    await listener.bind(str(tmp_path / "worker.sock"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen_soon, listener)
        session = await connect(tmp_path / "worker.sock")
    await session.aclose()
    listener.close()


async def listen_soon(listener: trio.socket.SocketType) -> None:
    await trio.testing.wait_all_tasks_blocked()
    listener.listen(1)


# --- the process ------------------------------------------------------------------------------------------------


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
    monkeypatch.setattr(worker_client, "START_S", 0.2)
    with pytest.raises(WorkerError, match="did not start within 0 s"):
        async with worker_process():
            raise AssertionError("never up")


async def test_worker_process__ignores_all_hints__is_killed_and_its_folder_removed(
    fake_python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_script(fake_python, "trap '' TERM\ntouch $4\nwhile :; do sleep 0.1; done")
    monkeypatch.setattr(worker_client, "STOP_S", 0.2)
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


def test_default_threads__any_machine__leaves_a_core_to_the_network() -> None:
    assert default_threads() == max(1, (os.cpu_count() or 1) - 1)
