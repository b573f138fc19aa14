"""Runs the training worker's process, and starts it again when it ends: after 1, 2, 4 ... 60 s."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from protocol.errors import OperatorError, WorkerError
from sfnode.storage import describe_os_error
from sfnode.worker.client import WorkerSession, connect
from sfnode.worker.training_config import TrainingConfig

START_S = 120.0  # importing torch takes 3 s on an idle machine, 20 s when 32 processes start at once
STOP_S = 2.0
_RESTART_S_MAX = 60.0  # a worker that dies at once is started again more and more rarely
_FOLDER_BYTES_MAX = 90  # with the socket's name it stays below the 104 bytes that macOS allows
_POLL_S = 0.05


async def supervise(
    config: TrainingConfig,
    serve: Callable[[WorkerSession], Awaitable[None]],
    tell_lost: Callable[[WorkerError, float], Awaitable[None]],
) -> None:
    """Keep a worker alive until cancelled; other errors than the worker's own go through.

    Args:
        serve: uses a session with it; WorkerError when the worker is gone.
        tell_lost: hears why, and after how many seconds it is started again.
    """
    pause_s = 1.0
    while True:
        started = trio.current_time()
        try:
            async with worker_socket(config) as socket:
                await serve(await connect(socket))
        except WorkerError as error:
            pause_s = 1.0 if trio.current_time() - started > _RESTART_S_MAX else min(2 * pause_s, _RESTART_S_MAX)
            await tell_lost(error, pause_s)
        await trio.sleep(pause_s)


@asynccontextmanager
async def worker_socket(config: TrainingConfig) -> AsyncIterator[Path]:
    """The socket of the worker that the config names, or of one that runs while the body does: `worker_process`."""
    if config.worker_socket is not None:
        yield config.worker_socket
        return
    async with worker_process(threads=config.threads) as socket:
        yield socket


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
        "sfnode.training",
        "--socket",
        str(socket),
        "--threads",
        str(threads),
    ]
    try:
        # Its stdout is not ours: a node prints JSON there. What it has to say to people comes on stderr. And a session
        # of its own: Ctrl-C, while it imports torch, is for this process, which then ends that one.
        return await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
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
