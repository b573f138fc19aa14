"""The node's side of the worker: every kind of answer and of silence becomes the error that says who can help."""

from __future__ import annotations

import math
import socket
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from protocol.errors import NumericError, OperatorError, SfnodeError, WorkerError, WorkerMemoryError
from sfnode.worker import worker_client
from sfnode.worker.worker_client import connect
from sfnode.worker_protocol.messages import (
    FRAME_BYTES_MAX,
    CoefficientsSet,
    EpochCoefficients,
    Estimated,
    EstimateRequest,
    Evaluated,
    EvaluateRequest,
    SetCoefficients,
    WorkerFailure,
    encode_frame,
)
from tests.support.fake_worker import fake_worker

ESTIMATE = EstimateRequest(step=3, seed=7, directions=1)


def failure(kind: str) -> WorkerFailure:
    return WorkerFailure(error=kind, message="this is why")


async def test_session__requests_one_after_the_other__get_their_replies(tmp_path: Path) -> None:
    async with fake_worker(tmp_path) as worker:
        session = await connect(worker.path)
        assert await session.request(SetCoefficients(epochs=()), CoefficientsSet) == CoefficientsSet()
        assert (await session.request(ESTIMATE, Estimated)).scalars == (4,)
        assert (await session.request(EvaluateRequest(), Evaluated)).rows == 8
        await session.aclose()
        assert [type(request) for request in worker.requests] == [SetCoefficients, EstimateRequest, EvaluateRequest]


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("OperatorError", OperatorError),
        ("WorkerMemoryError", WorkerMemoryError),
        ("NumericError", NumericError),
        ("WorkerError", WorkerError),
    ],
)
async def test_session__failure__becomes_the_error_of_its_kind(
    kind: str, error: type[SfnodeError], tmp_path: Path
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
async def test_session__unusable_answer__is_a_worker_error(reply: bytes, complaint: str, tmp_path: Path) -> None:
    async with fake_worker(tmp_path, lambda _: reply) as worker:
        session = await connect(worker.path)
        with pytest.raises(WorkerError, match=complaint):
            await session.request(ESTIMATE, Estimated)
        await session.aclose()


@pytest.mark.parametrize("loss", [math.nan, math.inf])
async def test_session__evaluation_that_overflowed__is_a_numeric_error(loss: float, tmp_path: Path) -> None:
    reply = Evaluated(accuracy=0.5, f1=None, loss=loss, rows=8, predictions=())
    async with fake_worker(tmp_path, lambda _: reply) as worker:
        session = await connect(worker.path)
        with pytest.raises(NumericError, match="not finite"):
            await session.request(EvaluateRequest(), Evaluated)
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


_SLEEPER = """
import socket, sys, time
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(sys.argv[1])
    listening.listen()
    held = listening.accept()
    time.sleep(600)
"""


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="this system does not say which process listens")
@pytest.mark.parametrize("request_bytes", [0, 1 << 22], ids=["answers nothing", "reads nothing"])
async def test_request__worker_computes_nothing__worker_error_says_that_it_hangs(
    request_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that stood still while coefficients were on their way to it was once waited for without end."""
    coefficients = SetCoefficients(epochs=(EpochCoefficients(epoch=0, values=bytes(request_bytes)),))
    monkeypatch.setattr(worker_client, "HUNG_S", 0.3)
    monkeypatch.setattr(worker_client, "_LOOK_S", 0.05)
    path = tmp_path / "worker.sock"
    async with trio.open_nursery() as nursery:
        command = [sys.executable, "-c", _SLEEPER, str(path)]
        process = await nursery.start(partial(trio.run_process, command, check=False))
        while not path.exists():
            await trio.sleep(0.02)
        session = await connect(path)
        hangs = pytest.raises(WorkerError, match="the training worker hangs: it has computed nothing for 0 s")
        with trio.fail_after(10), hangs:
            await session.request(coefficients, CoefficientsSet)
        await session.aclose()
        process.kill()
