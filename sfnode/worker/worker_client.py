"""The node's side of the training worker's socket: requests, replies, and errors that name who can fix them."""

import math
import socket as sockets
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import trio

from protocol.crypto import Author
from protocol.errors import NumericError, WorkerError
from protocol.run import SignedManifest
from protocol.state import Coefficients
from sfnode.children.child_program import Stillness
from sfnode.worker_protocol import TrainingConfig, messages

_RETRY_S = 0.05
_READ_BYTES = 65_536  # replies are small
HUNG_S = 300.0  # without computing while a request waits: a disk or a card that sleeps wakes up within seconds
_LOOK_S = 5.0

R = TypeVar("R", bound=messages.Reply)
T = TypeVar("T")


class WorkerSession:
    """Handles one connection to a worker, one request at a time."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._parser = messages.MessageParser()
        self._pid = _pid_behind(stream)

    async def request(
        self,
        request: messages.Request,
        expected: type[R],
        on_progress: Callable[[int, int], None] = lambda _done, _rows: None,
    ) -> R:
        """Send ``request`` and return its reply; ``on_progress`` hears how many rows of an evaluation are done.

        Raises:
            OperatorError: a file, flag or device is wrong.
            NumericError: the loss is not finite.
            WorkerMemoryError: the model does not fit in memory.
            WorkerError: the worker is gone, failed inside, or has computed nothing for `HUNG_S`.
        """
        try:
            unsent = memoryview(messages.encode_frame(request))
            while unsent:
                unsent = unsent[await self._patiently(partial(self._stream.socket.send, unsent)) :]
            while isinstance(reply := await self._receive(), messages.Evaluating):
                if reply.rows:
                    on_progress(reply.done, reply.rows)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            raise WorkerError("the training worker has ended") from None
        if isinstance(reply, messages.WorkerFailure):
            raise messages.FAILURES.get(reply.error, WorkerError)(reply.message)
        if isinstance(reply, messages.Evaluated) and not math.isfinite(reply.loss):
            raise NumericError("the loss on the evaluation data is not finite: the weights or the dtype overflow")
        if not isinstance(reply, expected):
            raise WorkerError(f"the training worker answered {type(reply).__name__} to {type(request).__name__}")
        return reply

    async def aclose(self) -> None:
        """Close the connection; the worker drops the session."""
        await self._stream.aclose()

    async def _receive(self) -> messages.Message:
        while (reply := self._parser.next_message()) is None:
            data = await self._patiently(partial(self._stream.receive_some, _READ_BYTES))
            if not data:
                raise trio.BrokenResourceError
            self._parser.feed_untrusted(data)
        return reply

    async def _patiently(self, move: Callable[[], Awaitable[T]]) -> T:
        """Return what ``move`` does with the stream: all or, where it is cancelled, nothing. WorkerError: it hangs."""
        stillness = None if self._pid is None else Stillness(self._pid)
        while True:
            with trio.move_on_after(_LOOK_S) as scope:
                done = await move()
            if not scope.cancelled_caught:
                return done
            if stillness is not None and (still_s := stillness.look()) > HUNG_S:
                raise WorkerError(f"the training worker hangs: it has computed nothing for {still_s:.0f} s")


def _pid_behind(stream: trio.SocketStream) -> int | None:
    """Return the id of the process that listens on the other end; None if the system does not say (macOS)."""
    if not hasattr(sockets, "SO_PEERCRED"):
        return None
    pid, _, _ = struct.unpack("3i", stream.socket.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, 12))
    return int(pid) or None  # 0: a process in another namespace


def coefficients_of(coefficients: Coefficients, epochs: Iterable[int]) -> messages.SetCoefficients:
    """Return the request that puts the named epochs of ``coefficients`` into a session."""
    cores = ((epoch, coefficients.core(epoch).astype("<i8").tobytes()) for epoch in epochs)
    rows = tuple(messages.EpochCoefficients(epoch=epoch, values=values) for epoch, values in cores)
    return messages.SetCoefficients(epochs=rows)


@asynccontextmanager
async def open_session(
    socket: Path, signed: SignedManifest, training: TrainingConfig, author: Author | None = None
) -> AsyncIterator[WorkerSession]:
    """Open a session on a run with the worker on ``socket``; it is closed with the body. Raises as `request`.

    ``author``: whose private rows have their turn (`OpenSession`).
    """
    request = messages.OpenSession(manifest=signed.encode(), training=training, author=author)
    async with aclosing(await connect(socket)) as session:
        await session.request(request, messages.SessionOpened)
        yield session


async def connect(socket: Path) -> WorkerSession:
    """Open a session with the worker that listens on ``socket``; WorkerError if none does."""
    for is_last in (False, True):
        try:
            return WorkerSession(await trio.open_unix_socket(str(socket)))
        except OSError as error:
            if is_last or not isinstance(error, ConnectionRefusedError):
                raise WorkerError(f"no training worker answers on {socket}: {error.strerror or error}") from None
            await trio.sleep(_RETRY_S)  # the worker may be between bind and listen
    raise AssertionError("unreachable")
