"""Runs the training worker's process, and starts it again when it ends: after 1, 2, 4 ... 60 s."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import trio

from protocol.errors import OperatorError, WorkerError
from sfnode.children.awaited import running
from sfnode.children.program import Program, Stillness
from sfnode.storage import describe_os_error
from sfnode.worker.client import WorkerSession, connect
from sfnode.worker.training_config import TrainingConfig

STILL_S = 60.0  # without computing anything, on its first start: a disk that wakes up takes seconds
COMPUTING_S = 300.0  # of processor time; importing torch takes 3 s of it, and ten times as much on an old machine
STOP_S = 2.0
LEAVE_S = 0.5  # when we are gone: it removes its socket, unless it is in the middle of a forward pass
_PATIENCE_MAX = 16  # times these limits: they double each time that a worker did not come up within them
_RESTART_S_MAX = 60.0  # a worker that dies at once is started again more and more rarely
_FOLDER_BYTES_MAX = 90  # with the socket's name it stays below the 104 bytes that macOS allows
_POLL_S = 0.05


class NotUpError(WorkerError):
    """A worker lives and does not come up: a slow machine may need more patience."""


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
    pause_s, patience = 1.0, 1
    while True:
        started = trio.current_time()
        try:
            async with worker_socket(config, patience) as socket:
                patience = 1
                await serve(await connect(socket))
        except WorkerError as error:
            if isinstance(error, NotUpError):
                patience = min(2 * patience, _PATIENCE_MAX)
            pause_s = 1.0 if trio.current_time() - started > _RESTART_S_MAX else min(2 * pause_s, _RESTART_S_MAX)
            await tell_lost(error, pause_s)
        await trio.sleep(pause_s)


@asynccontextmanager
async def worker_socket(config: TrainingConfig, patience: int = 1) -> AsyncIterator[Path]:
    """The socket of the worker that the config names, or of one that runs while the body does: `worker_process`."""
    if config.worker_socket is not None:
        yield config.worker_socket
        return
    async with worker_process(threads=config.threads, patience=patience) as socket:
        yield socket


@asynccontextmanager
async def worker_process(*, threads: int | None = None, patience: int = 1) -> AsyncIterator[Path]:
    """Run a worker process while the body runs; yields its socket. The body's sessions may come and go.

    Raises WorkerError when it does not come up, or with how it ended when the body found it gone; OperatorError when
    there is no place for its socket. The process ends with the body, or when this process dies.

    Args:
        patience: how many times the usual limits it is given to come up.
    """
    with _socket_folder() as folder:
        socket = Path(folder) / "worker.sock"
        arguments = ("--socket", str(socket), "--threads", str(threads or default_threads()))
        # Its stdout is not ours: a node prints JSON there. What it has to say to people comes on stderr.
        program = Program(module="sfnode.training", arguments=arguments, leave_s=LEAVE_S)
        child = running(program, is_heard=False, leave_s=STOP_S)
        async with AsyncExitStack() as stack:
            try:
                process = await stack.enter_async_context(child)
            except OSError as error:
                raise WorkerError(f"the training worker cannot be started: {error.strerror}") from None
            try:
                await _wait_until_listening(process, socket, patience)
                yield socket
            except NotUpError:
                raise
            except WorkerError as error:
                raise WorkerError(f"{error}{await _fate(process)}") from None


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


async def _wait_until_listening(process: trio.Process, socket: Path, patience: int) -> None:
    """Wait for the socket as long as the worker gets on: on a busy machine it may take minutes. WorkerError.

    NotUpError after ``patience`` times `STILL_S` in which it computed nothing, or `COMPUTING_S` in which it did.
    """
    stillness = Stillness(process.pid)
    while not await trio.Path(socket).exists():
        if process.poll() is not None:
            raise WorkerError("the training worker ended at once")
        still_s, computed_s = stillness.look(), stillness.computed_s
        if still_s > patience * STILL_S or computed_s > patience * COMPUTING_S:
            further = min(2 * patience, _PATIENCE_MAX)
            raise NotUpError(
                f"the training worker did not start: it had computed for {computed_s:.1f} s, and did nothing for "
                f"{still_s:.0f} s. The next one is given {further * STILL_S:.0f} s without doing anything, and "
                f"{further * COMPUTING_S:.0f} s of computing"
            )
        await trio.sleep(_POLL_S)
