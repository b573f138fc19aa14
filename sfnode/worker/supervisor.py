"""Runs the training worker's process, and restarts it: after 1 s, or after 2, 4 ... 60 s if it ends within a minute."""

import errno
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import trio

from protocol.errors import OperatorError, WorkerError
from sfnode.children.async_child import running
from sfnode.children.child_program import Program, Stillness
from sfnode.storage import disk
from sfnode.worker.worker_client import WorkerSession, connect
from sfnode.worker_protocol import TrainingConfig

STILL_S = 60.0  # without computing, before the socket is there: a disk that wakes up takes seconds
COMPUTING_S = 300.0  # of processor time: importing torch takes 3 s, and ten times as much on an old machine
STOP_S = 2.0
_LEAVE_S = 0.5  # once we are gone: it removes its socket, unless it is in the middle of a forward pass
_PATIENCE_MAX = 16  # times these limits, which double each time that a worker did not start within them
_RESTART_S_MAX = 60.0  # a worker that dies at once is started less and less often
_FOLDER_BYTES_MAX = 90  # with the socket's name it stays within the 104 bytes that macOS allows
_POLL_S = 0.05
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)  # passes by itself, sooner or later


class NotUpError(WorkerError):
    """Raised when a worker lives but does not start up in time: a slow machine may need more patience."""


async def supervise(
    config: TrainingConfig,
    serve: Callable[[WorkerSession], Awaitable[None]],
    tell_lost: Callable[[WorkerError, float], Awaitable[None]],
) -> None:
    """Keep a worker alive until cancelled; exceptions other than WorkerError pass through.

    ``serve`` uses a session until the worker is gone; ``tell_lost`` gets the reason and the seconds until the restart.
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
    """Yield the socket of the configured worker, or of a `worker_process` that runs during the body."""
    if config.worker_socket is not None:
        yield config.worker_socket
        return
    async with worker_process(threads=config.threads, patience=patience) as socket:
        yield socket


@asynccontextmanager
async def worker_process(*, threads: int | None = None, patience: int = 1) -> AsyncIterator[Path]:
    """Run a worker process during the body; yield its socket. The body may open and close sessions.

    Raises WorkerError if it does not start, or, with how it ended, when the body found it gone; OperatorError if its
    socket can have no place. The process ends with the body, or when this process dies. ``patience``: multiple of the
    usual limits for its start.
    """
    with _socket_folder() as folder:
        socket = Path(folder) / "worker.sock"
        arguments = ("--socket", str(socket), "--threads", str(threads or TrainingConfig.default_threads()))
        # Its stdout must not be ours: a node prints JSON there. Its messages for people come on stderr.
        program = Program(module="sfnode.training", arguments=arguments, leave_s=_LEAVE_S)
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
    """Make a folder with a short path: a data directory's may exceed the 107 bytes of a socket's address."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="sfnode-", ignore_cleanup_errors=True)
    except OSError as error:
        kind = WorkerError if error.errno in _FULL else OperatorError
        reason = f"{disk.describe_os_error(error)}. TMPDIR says where"
        raise kind(f"cannot make a folder for the training worker's socket: {reason}") from None
    if len(os.fsencode(folder.name)) > _FOLDER_BYTES_MAX:
        folder.cleanup()
        raise OperatorError(f"{folder.name} is too long a path for a socket: set TMPDIR to a shorter one, such as /tmp")
    return folder


async def _fate(process: trio.Process) -> str:
    """Return in words how the process ended; empty while it lives."""
    with trio.move_on_after(STOP_S):  # its socket closes first, and a busy machine takes its time
        await process.wait()
    if process.returncode is None:
        return ""
    if process.returncode == -signal.SIGKILL:
        return " (killed by SIGKILL: perhaps the system ran out of memory)"
    if process.returncode < 0:
        return f" (killed by {signal.Signals(-process.returncode).name})"
    return f" (exit code {process.returncode}; its last output says why)"


async def _wait_until_listening(process: trio.Process, socket: Path, patience: int) -> None:
    """Wait for the socket while the worker makes progress: on a busy machine it may take minutes. WorkerError.

    NotUpError after ``patience`` times `STILL_S` without computing, or `COMPUTING_S` of computing.
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


def children_bytes() -> int | None:
    """Return the resident memory of the processes that this one has started; None if the system does not say."""
    try:
        children = {child for task in Path("/proc/self/task").iterdir() for child in _read(task / "children")}
        pages = [int(fields[1]) for child in sorted(children) if (fields := _read(Path("/proc", child, "statm")))]
    except (OSError, ValueError, IndexError):
        return None
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


def _read(path: Path) -> list[str]:
    """Return the words of a file; none if its process or thread has just ended."""
    try:
        return path.read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
