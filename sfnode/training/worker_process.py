"""The training worker: one process that serves the sessions of several nodes over a Unix socket.

Sessions with the same model, device, dtype and memory limit share the base weights. The worker serves the requests of
all connections one by one. It prints ``ready`` once it listens. It ends on SIGTERM or with its parent
(`sfnode.children`), and never by itself.
"""

import argparse
import logging
import os
import selectors
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from protocol.crypto import Author, RunId
from protocol.errors import NumericError, OperatorError, Reject, SfnodeError, WorkerError, WorkerMemoryError, first_line
from protocol.run import decode_run_untrusted
from sfnode.children.child_program import yield_to_others
from sfnode.model_files import resolve_model
from sfnode.reporter import telling
from sfnode.storage import disk, stored_basis
from sfnode.training.devices import choose_device
from sfnode.training.estimator import Estimator
from sfnode.training.model import check_model, loading
from sfnode.training.shared_model import SharedModel, load_shared
from sfnode.training.task import AnswerJudge, read_task
from sfnode.worker_protocol import messages

log = logging.getLogger("sfnode.worker")

READ_BYTES = 1 << 20
SEND_TIMEOUT_S = 10.0  # replies are small; a node that does not read one within this time is gone


class ModelPool:
    """Keeps models in memory, one per (folder, device, dtype, limit of its weights), while the worker lives."""

    def __init__(self) -> None:
        self._models: dict[tuple[Path, str, str, int | None], tuple[SharedModel, PreTrainedTokenizerBase]] = {}
        self._checked: set[tuple[Path, RunId]] = set()

    def open(self, request: messages.OpenSession) -> tuple[SharedModel, Estimator, str]:
        """Open a session on the model that ``request`` names, and return its precision; the first one loads it."""
        manifest, training = decode_run_untrusted(request.manifest).manifest, request.training
        assert training.model is not None, "it is found before a worker is asked for anything"
        with telling() as report:
            folder = resolve_model(training.model, manifest.model.revision, report)
        if (folder.path, manifest.run_id) not in self._checked:
            check_model(folder.path, manifest.model)
            loading.check_positions(folder.path, manifest.task.max_tokens)
            self._checked.add((folder.path, manifest.run_id))
        devices, limit = training.devices, training.devices.device_memory
        precision = devices.precision(manifest.model.weight_bytes)
        device = choose_device(devices.device)
        key = (folder.path, str(device), precision, limit)
        if key not in self._models:
            self._models[key] = load_shared(precision, folder.path, device, limit), loading.load_tokenizer(folder.path)
        shared, tokenizer = self._models[key]
        bases = stored_basis.read_bases(manifest, training.basis)
        stops = loading.named_stops(folder.path, manifest.model.usage)
        judge = AnswerJudge.of(tokenizer, manifest.task, training.private_reward, stops)
        token_rows = loading.token_rows(shared.model)
        data = read_task(tokenizer, manifest.task, training.data, training.eval_data, judge, token_rows)
        author = None if request.author is None else Author(request.author)
        return shared, Estimator(shared, bases, data, training.noise, author), precision


class Service:
    """Answers the requests of one connection."""

    def __init__(self, pool: ModelPool) -> None:
        self._pool = pool
        self._session: Estimator | None = None

    def answer(
        self, request: messages.Message, on_progress: Callable[[int, int], None] = lambda _done, _rows: None
    ) -> messages.Reply:
        """Return the reply to ``request``; any exception becomes a WorkerFailure.

        ``on_progress`` hears how many of how many rows of an evaluation are done, and 0 of 0 at an answer.
        """
        try:
            if isinstance(request, messages.OpenSession):
                return self._open(request)
            return self._serve(request, on_progress)
        except Exception as error:  # boundary: no request may take the other nodes' sessions down
            return failure_of(error)

    def _open(self, request: messages.OpenSession) -> messages.SessionOpened:
        self.end()
        shared, self._session, precision = self._pool.open(request)
        return messages.SessionOpened(
            device=shared.device.type,
            dtype=precision,
            is_widened=shared.is_widened,
            data_rows=len(self._session.data.examples),
            model_parameters=shared.parameters,
        )

    def _serve(self, request: messages.Message, on_progress: Callable[[int, int], None]) -> messages.Reply:
        if self._session is None:
            raise WorkerError("no session is open on this connection")
        if (judge := self._session.data.judge) is not None:
            judge.on_answer = lambda: on_progress(0, 0)
        match request:
            case messages.SetCoefficients(epochs=epochs):
                for entry in epochs:
                    self._session.set_coefficients(entry.epoch, np.frombuffer(entry.values, dtype="<i8"))
                return messages.CoefficientsSet()
            case messages.EstimateRequest(step=step, seed=seed, directions=directions):
                return self._session.estimate(seed, step, directions)
            case messages.EvaluateRequest():
                return self._session.evaluate(on_progress=on_progress)
            case _:
                raise WorkerError(f"a {type(request).__name__} is not a request")

    def end(self) -> None:
        """Close the session, with the node's own command for rewards."""
        if self._session is not None and self._session.data.judge is not None:
            self._session.data.judge.close()
        self._session = None


def failure_of(error: Exception) -> messages.WorkerFailure:
    """Return the failure that says what the node should raise; log the traceback of a bug."""
    kind: type[Exception] = WorkerError
    text = str(error)
    if isinstance(error, NumericError):
        kind = NumericError
    elif isinstance(error, OperatorError | Reject):
        kind = OperatorError
    elif isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in text:
        kind, hint = WorkerMemoryError, "not enough memory for the model or the batch"
        text = f"{hint}: use a smaller dtype, model or batch ({first_line(error)})"
    else:
        text = f"{type(error).__name__}: {text}"
        if not isinstance(error, SfnodeError):
            log.error("request failed", exc_info=error)
    return messages.WorkerFailure(error=kind.__name__, message=text)


@dataclass(slots=True)
class Connection:
    """Holds one node's socket, the bytes received of its next messages, and its session."""

    stream: socket.socket
    service: Service
    received: messages.MessageParser = field(default_factory=messages.MessageParser)


class Worker:
    """Accepts connections and serves whole requests in the order in which they were completed."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._pool = ModelPool()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._pending: deque[tuple[Connection, messages.Message]] = deque()

    def run(self) -> None:
        """Serve requests for ever."""
        while True:
            for key, _ in self._selector.select(0 if self._pending else None):
                if key.fileobj is self._listener:
                    stream, _ = self._listener.accept()
                    stream.settimeout(SEND_TIMEOUT_S)
                    connection = Connection(stream=stream, service=Service(self._pool))
                    self._selector.register(stream, selectors.EVENT_READ, connection)
                else:
                    self._receive(key.data)
            if self._pending:
                self._answer(*self._pending.popleft())

    def _receive(self, connection: Connection) -> None:
        try:
            data = connection.stream.recv(READ_BYTES)
            connection.received.feed_untrusted(data)
            request = connection.received.next_message()
        except (OSError, WorkerError):
            self._close(connection)
            return
        if not data:  # closed by the node
            self._close(connection)
        elif request is not None:
            self._pending.append((connection, request))

    def _answer(self, connection: Connection, request: messages.Message) -> None:
        def report(done: int, rows: int) -> None:
            try:
                connection.stream.sendall(messages.encode_frame(messages.Evaluating(done=done, rows=rows)))
            except OSError as error:
                raise WorkerError(f"the node has gone: {error}") from None

        try:
            connection.stream.sendall(messages.encode_frame(connection.service.answer(request, report)))
            if (further := connection.received.next_message()) is not None:  # sent without waiting for the reply
                self._pending.append((connection, further))
        except (OSError, WorkerError):
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        connection.service.end()
        if connection.stream.fileno() != -1:
            self._selector.unregister(connection.stream)
            connection.stream.close()


def leave(socket_path: Path) -> None:
    """Remove the socket and end the process at once; it holds nothing worth saving."""
    socket_path.unlink(missing_ok=True)
    os._exit(0)


def listen(path: Path) -> socket.socket:
    """Return a Unix socket at ``path`` that only this user can connect to; OperatorError when it cannot be made."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    except OSError as error:
        help_ = "; give a path of at most 100 bytes" if error.errno is None else ""  # Python itself finds it too long
        raise OperatorError(f"worker socket {path}: {disk.describe_os_error(error)}{help_}") from None
    finally:
        os.umask(before)
    listener.listen(128)
    return listener


def main() -> None:
    """Run the worker process from its command line."""
    parser = argparse.ArgumentParser(description="training worker of sfnode; started by the node, not by hand")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=0, help="torch threads; 0: torch's choice")
    parser.add_argument("--nice", type=int, default=10, help="added to the process's niceness")
    options = parser.parse_args()
    logging.basicConfig(
        stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the node decides when we end
    signal.signal(signal.SIGTERM, lambda *_: leave(options.socket))
    yield_to_others(options.nice)
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        listener = listen(options.socket)
    except OperatorError as error:
        sys.exit(str(error))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    Worker(listener).run()
