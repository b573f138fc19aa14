"""A training worker without torch for many nodes, which pauses when it is told to.

    python -m tests.netlab.worker --socket PATH --scalars 8 --pace-ms 200

Reads orders on its standard input, one on a line: ``pause``, ``resume``. It ends with its input.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
import trio

from protocol.errors import Reject, WorkerError
from sfnode.worker_protocol.messages import Estimated, EstimateRequest, Message, Reply
from tests.support.fake_worker import FakeWorker, healthy, listening

_SPREAD = 64  # scalars lie within +-64, as an honest author's mostly do


@dataclass(slots=True)
class PacedWorker(FakeWorker):
    """Scalars follow from the seed; an estimate takes ``pace_s``, and waits while the worker pauses.

    ``rows_max``: of a dense message, whose first number says its rows; 0: of other messages.
    """

    scalars: int = 8
    rows_max: int = 0
    pace_s: float = 0.2
    running: trio.Event = field(default_factory=trio.Event)

    async def serve(self, stream: trio.SocketStream) -> None:
        """As any worker. It hangs up on what it cannot read; a node killed in the middle of its request is no fault."""
        with suppress(trio.BrokenResourceError, WorkerError, Reject):
            await FakeWorker.serve(self, stream)

    async def answer(self, request: Message) -> Reply | bytes:
        """As a healthy worker, in its own time; nothing is remembered."""
        if not isinstance(request, EstimateRequest):
            return healthy(request)
        await trio.sleep(self.pace_s)
        await self.running.wait()
        drawn = hashlib.shake_128(request.seed.to_bytes(8, "little")).digest(self.scalars)
        q = tuple(byte % (2 * _SPREAD + 1) - _SPREAD for byte in drawn)
        if self.rows_max:
            q = (1 + drawn[0] % self.rows_max, *q[1:])
        return Estimated(scalars=q, loss=0.5, rows=16)

    async def obey(self) -> None:
        """Carry out orders until there come no more."""
        async for line in _orders():
            match line:
                case "pause":
                    self.running = trio.Event()
                case "resume":
                    self.running.set()
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


async def _orders() -> AsyncIterator[str]:
    """Lines of the standard input."""
    rest = b""
    async with trio.lowlevel.FdStream(os.dup(0)) as stream:
        async for data in stream:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                yield line.decode("ascii")


async def _serve(worker: PacedWorker) -> None:
    worker.running.set()
    async with listening(worker):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await worker.obey()


@click.command()
@click.option("--socket", "path", type=click.Path(path_type=Path), required=True)
@click.option("--scalars", default=8, show_default=True, help="In each answer: directions x local steps of the run.")
@click.option("--pace-ms", default=200, show_default=True, help="How long one estimate takes.")
def main(path: Path, scalars: int, pace_ms: int) -> None:
    """Serve nodes until the standard input ends."""
    trio.run(_serve, PacedWorker(path=path, scalars=scalars, pace_s=pace_ms / 1_000))


if __name__ == "__main__":
    main()
