"""The node's side of the training worker: start its process, talk to it, notice when it is gone."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import trio

from protocol.errors import NumericError, OperatorError, WorkerError, WorkerMemoryError
from protocol.state.coefficients import Coefficients
from sfnode.storage.files import describe_os_error
from sfnode.worker.messages import (
    EpochCoefficients,
    Evaluated,
    FailureKind,
    Reply,
    Request,
    SetCoefficients,
    WorkerFailure,
    decode_body,
    encode_frame,
    new_parser,
    next_body,
)

START_S = 120.0  # importing torch takes 3 s on an idle machine, 20 s when 32 processes start at once
STOP_S = 2.0
_FOLDER_BYTES_MAX = 90  # with the socket's name it stays below the 104 bytes that macOS allows
_POLL_S = 0.05
_READ_BYTES = 65_536  # replies are small

R = TypeVar("R", bound=Reply)


class WorkerSession:
    """One connection to a worker. One request at a time."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._parser = new_parser()

    async def request(self, request: Request, expected: type[R]) -> R:
        """Send ``request`` and return its reply.

        Raises:
            OperatorError: a file, flag or device is wrong, or the model does not fit in memory.
            NumericError: the loss is not finite.
            WorkerError: the worker is gone, or failed inside.
        """
        try:
            await self._stream.send_all(encode_frame(request))
            body = await self._receive_body()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise WorkerError("the training worker has ended") from None
        reply = decode_body(body)
        if isinstance(reply, WorkerFailure):
            raise _error_of(reply)
        if isinstance(reply, Evaluated) and not math.isfinite(reply.loss):
            raise NumericError("the loss on the evaluation data is not finite: the weights or the dtype overflow")
        if not isinstance(reply, expected):
            raise WorkerError(f"the training worker answered {type(reply).__name__} to {type(request).__name__}")
        return reply

    async def aclose(self) -> None:
        """Hang up; the worker drops the session."""
        await self._stream.aclose()

    async def _receive_body(self) -> bytes:
        while (body := next_body(self._parser)) is None:
            data = await self._stream.receive_some(_READ_BYTES)
            if not data:
                raise trio.BrokenResourceError
            self._parser.feed_untrusted(data)
        return body


def coefficients_of(coefficients: Coefficients, epochs: Iterable[int]) -> SetCoefficients:
    """The request that puts the named epochs of ``coefficients`` into a session."""
    return SetCoefficients(
        epochs=tuple(
            EpochCoefficients(epoch=epoch, values=coefficients.flat(epoch).astype("<i8").tobytes()) for epoch in epochs
        )
    )


def _error_of(failure: WorkerFailure) -> OperatorError | NumericError | WorkerError:
    match failure.kind:
        case FailureKind.OPERATOR:
            return OperatorError(failure.message)
        case FailureKind.MEMORY:
            return WorkerMemoryError(failure.message)
        case FailureKind.NUMERIC:
            return NumericError(failure.message)
        case FailureKind.INTERNAL:
            return WorkerError(failure.message)


async def connect(socket: Path) -> WorkerSession:
    """A session with the worker that listens on ``socket``; WorkerError when none does."""
    for is_last in (False, True):
        try:
            return WorkerSession(await trio.open_unix_socket(str(socket)))
        except ConnectionRefusedError as error:  # it may be between bind and listen
            if is_last:
                raise WorkerError(f"no training worker answers on {socket}: {error.strerror}") from None
            await trio.sleep(_POLL_S)
        except OSError as error:
            raise WorkerError(f"no training worker answers on {socket}: {error.strerror or error}") from None
    raise AssertionError("unreachable")


@asynccontextmanager
async def worker_process(*, threads: int | None = None) -> AsyncIterator[Path]:
    """Run a worker process while the body runs; yields its socket. The body's sessions may come and go.

    Raises WorkerError when it does not come up, or with how it ended when the body found it gone; OperatorError when
    there is no place for its socket. The process ends with the body, or when this process dies.
    """
    with _socket_folder() as folder:
        socket = Path(folder) / "worker.sock"
        process = await _start(socket, threads or default_threads())
        try:
            await _wait_until_listening(process, socket)
            yield socket
        except WorkerError as error:
            raise WorkerError(f"{error}{await _fate(process)}") from None
        finally:
            with trio.CancelScope(shield=True):
                await _end(process)


def _socket_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder with a short path: that of a data directory may exceed the 107 bytes of a socket's address."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="sfnode-", ignore_cleanup_errors=True)
    except OSError as error:
        text = f"cannot make a folder for the training worker's socket: {describe_os_error(error)}. TMPDIR says where"
        raise OperatorError(text) from None
    if len(os.fsencode(folder.name)) > _FOLDER_BYTES_MAX:
        folder.cleanup()
        raise OperatorError(f"{folder.name} is too long a path for a socket: set TMPDIR to a shorter one, such as /tmp")
    return folder


async def _start(socket: Path, threads: int) -> trio.Process:
    command = [
        sys.executable,
        "-m",
        "sfnode.training.worker_process",
        "--socket",
        str(socket),
        "--threads",
        str(threads),
    ]
    try:
        # Its stdout is not ours: a node prints JSON there. What it has to say to people comes on stderr.
        return await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=_environment()
        )
    except OSError as error:
        raise WorkerError(f"the training worker cannot be started: {error.strerror}") from None


async def _fate(process: trio.Process) -> str:
    """How the process ended, for people; empty while it lives."""
    with trio.move_on_after(_POLL_S):
        await process.wait()
    if process.returncode is None:
        return ""
    if process.returncode == -signal.SIGKILL:
        return " (killed by SIGKILL: perhaps the system ran out of memory)"
    if process.returncode < 0:
        return f" (killed by {signal.Signals(-process.returncode).name})"
    return f" (exit code {process.returncode}; its last output says why)"


def default_threads() -> int:
    """All cores but one, which belongs to the network: a step on a machine with no core to spare is 15 times slower."""
    return max(1, (os.cpu_count() or 1) - 1)


def _environment() -> dict[str, str]:
    """OpenMP threads sleep at a barrier: spinning ones starve whatever else runs on the same cores."""
    return {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}


async def _wait_until_listening(process: trio.Process, socket: Path) -> None:
    with trio.move_on_after(START_S) as scope:
        while not await trio.Path(socket).exists():
            if process.poll() is not None:
                raise WorkerError("the training worker ended at once")
            await trio.sleep(_POLL_S)
    if scope.cancelled_caught:
        raise WorkerError(f"the training worker did not start within {START_S:.0f} s")


async def _end(process: trio.Process) -> None:
    """Close its stdin, which tells it to end; kill it when it does not."""
    if process.stdin:
        await process.stdin.aclose()
    if process.poll() is None:
        process.terminate()
    with trio.move_on_after(STOP_S):
        await process.wait()
    if process.poll() is None:
        process.kill()
        await process.wait()
