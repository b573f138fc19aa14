"""A training worker without torch: it answers from a script, and can fail in every way that a real one can."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import trio

from sfnode.worker_protocol.messages import (
    CoefficientsSet,
    Estimated,
    EstimateRequest,
    Evaluated,
    EvaluateRequest,
    Message,
    MessageParser,
    OpenSession,
    Reply,
    SessionOpened,
    SetCoefficients,
    encode_frame,
)

Script = Callable[[Message], Reply | bytes]


def healthy(request: Message) -> Reply:
    """What a worker answers when all is well."""
    match request:
        case OpenSession():
            return SessionOpened(device="cpu", dtype="fp32", is_widened=False, data_rows=16, model_parameters=1_000)
        case SetCoefficients():
            return CoefficientsSet()
        case EstimateRequest(step=step):
            return Estimated(scalars=(step + 1,), loss=0.5, rows=32)
        case EvaluateRequest():
            return Evaluated(accuracy=0.75, f1=0.5, loss=0.25, rows=8, predictions=(0, 1))
        case _:
            raise AssertionError(request)


@dataclass(slots=True)
class FakeWorker:
    """``script``: a reply, or raw bytes to send before it hangs up. ``requests``: all that came."""

    path: Path
    script: Script = healthy
    requests: list[Message] = field(default_factory=list)
    connections: int = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer one connection until either side hangs up."""
        self.connections += 1
        async with stream:
            parser = MessageParser()
            while (request := await receive(stream, parser)) is not None:
                reply = await self.answer(request)
                if isinstance(reply, bytes):
                    await stream.send_all(reply)
                    return
                await stream.send_all(encode_frame(reply))

    async def answer(self, request: Message) -> Reply | bytes:
        """The reply to one request."""
        self.requests.append(request)
        return self.script(request)

    def asked(self, kind: type[Message]) -> list[Message]:
        """The requests of one kind."""
        return [request for request in self.requests if isinstance(request, kind)]


Worker = TypeVar("Worker", bound=FakeWorker)


async def receive(stream: trio.SocketStream, parser: MessageParser) -> Message | None:
    """The next message; None when the other side has hung up."""
    while (message := parser.next_message()) is None:
        data = await stream.receive_some(65_536)
        if not data:
            return None
        parser.feed_untrusted(data)
    return message


@asynccontextmanager
async def fake_worker(folder: Path, script: Script = healthy) -> AsyncIterator[FakeWorker]:
    """Listens on a socket in ``folder`` while the body runs."""
    async with listening(FakeWorker(path=folder / "worker.sock", script=script)) as worker:
        yield worker


@asynccontextmanager
async def listening(worker: Worker) -> AsyncIterator[Worker]:
    """``worker`` listens on its socket while the body runs."""
    listener = trio.socket.socket(trio.socket.AF_UNIX)
    await listener.bind(str(worker.path))
    listener.listen(128)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, worker.serve, [trio.SocketListener(listener)])
        yield worker
        nursery.cancel_scope.cancel()
