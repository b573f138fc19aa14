"""A training worker as a child process, with a blocking client: for tests of the worker itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final

from protocol.run import Manifest
from sfnode.children.child_program import Program
from sfnode.worker_protocol.messages import Evaluating, Message, MessageParser, Request, encode_frame
from tests.support.fork_server import start_child

_LEAVE_S: Final = 30.0  # an idle worker ends at once, a starved one was killed after the supervisor's half second


class WorkerProcess:
    """Started on entry, its standard input closed on exit."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "worker.sock"
        self._stderr = (folder / "worker.err").open("wb")
        arguments = ("--socket", str(self.path), "--threads", "1")
        program = Program(module="sfnode.training", arguments=arguments, leave_s=_LEAVE_S)
        self.process = start_child(program, stderr=self._stderr.fileno())

    def __enter__(self) -> WorkerProcess:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=2 * _LEAVE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self._stderr.close()

    def connect(self) -> WorkerClient:
        """A new connection: a new node."""
        return WorkerClient(self.path)


@contextmanager
def paced_worker(socket: Path, manifest: Manifest, pace_ms: int) -> Iterator[int]:
    """A worker without torch, of which an estimate takes ``pace_ms``; its process id."""
    arguments = ("--socket", str(socket), "--scalars", str(manifest.method.scalars), "--pace-ms", str(pace_ms))
    with start_child(Program(module="tests.netlab.worker", arguments=arguments), stderr=2) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.kill()


class WorkerClient:
    """One request at a time."""

    def __init__(self, path: Path) -> None:
        self._stream = socket.socket(socket.AF_UNIX)
        self._stream.connect(str(path))
        self._parser = MessageParser()

    def ask(self, request: Request) -> Message:
        """Send ``request`` and wait for the reply; EOFError when the worker closes the connection instead."""
        self._stream.sendall(encode_frame(request))
        while (reply := self._parser.next_message()) is None or isinstance(reply, Evaluating):
            if reply is not None:
                continue  # how far it is: the reply comes last
            data = self._stream.recv(65_536)
            if not data:
                raise EOFError
            self._parser.feed_untrusted(data)
        return reply

    def send_raw(self, data: bytes) -> bytes:
        """Send any bytes; what comes back first, empty when the worker closes."""
        self._stream.sendall(data)
        return self._stream.recv(1)

    def close(self) -> None:
        """Hang up."""
        self._stream.close()
