"""Starts `sfnode` commands as forks of one process that has imported them: 1.2 s of processor time less for each.

Those that train, and the workers that they start (`forked_children`), are forks of one that has imported torch, too.

What is forked is a process like any other: its own memory, sockets, signals and end. Only Python's start and the
imports are not repeated, so that forks share one seed of Python's hashes; tests/protocol/test_determinism.py starts
interpreters of its own for that. The server is started at the first command and ends with the test process.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Final, NoReturn

from sfnode.children.__main__ import main as run_as_child
from sfnode.children.child_program import Program
from sfnode.cli import main
from tests import REPOSITORY
from tests.support import forked_children

MESSAGE_BYTES_MAX: Final = 1 << 18
HAS_FORKS: Final = sys.platform == "linux"  # macOS: forks of a process with its system libraries loaded may crash
_LEAVE_S: Final = 5.0
_PR_SET_PDEATHSIG: Final = 1  # of Linux: prctl(2)
_LIGHT_CHILDREN: Final = (
    "tests.netlab.worker",
    *(f"tests.attacks.{name}" for name in ("cheap_frames", "greedy_peers", "wrong_run")),
)
_NO_WORKER: Final = frozenset({"--relay", "--worker-socket"})  # options of nodes that start none
# Commands that need no torch.
_LIGHT: Final = ("config", "forget", "id", "list", "log", "pause", "report", "resume", "run", "status", "stop", "top")
_COMMANDS: Final = (
    *("sfnode.node.daemon", "sfnode.cli.join"),
    *(f"sfnode.cli.{name}" for name in _LIGHT if name != "resume"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What a fork does: its command line, and where. Its standard input, output and error come as descriptors.

    ``is_child``: the arguments follow ``python -P -m sfnode.children``, not ``sfnode``.
    """

    arguments: list[str]
    is_child: bool
    folder: str
    environment: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a command runs: its current folder and its environment."""

    folder: str
    environment: dict[str, str]


class ForkedProcess(subprocess.Popen[bytes]):
    """A fork, in the place of a child: the server, whose child it is, tells of its end through a pipe."""

    def __init__(self, pid: int, ended: int, arguments: list[str]) -> None:
        self._child_created = False  # for the base class: there is nothing to wait for
        self._ended = ended
        self.args, self.pid, self.returncode = arguments, pid, None
        self.stdin = self.stdout = self.stderr = None

    def poll(self) -> int | None:
        """Its exit code, negative after a signal; None while it runs."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code once it has ended; subprocess.TimeoutExpired."""
        code = self._look(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._ended], [], [], seconds)[0]:
            self.returncode = int(os.read(self._ended, 16) or -signal.SIGKILL)  # nothing: it went with the server
            os.close(self._ended)
        return self.returncode


def start(
    arguments: list[str], *, stdin: int, stdout: int, stderr: int, place: Place | None = None
) -> subprocess.Popen[bytes]:
    """Run ``sfnode ARGUMENTS`` in ``place`` (None: here, in this environment), on these descriptors.

    A fork; a child where there are no forks, or where this environment asks for another start of Python.
    """
    server = _server() if HAS_FORKS else None
    place = place or Place(folder=os.getcwd(), environment=dict(os.environ))
    if server is None or forked_children.read_at_start(place.environment) != server.read_at_start:
        command = [sys.executable, "-m", "sfnode", *arguments]
        return subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=place.folder, env=place.environment
        )
    order = _Order(arguments=arguments, is_child=False, folder=place.folder, environment=place.environment)
    return server.start(order, (stdin, stdout, stderr))


def start_child(program: Program, *, stderr: int) -> subprocess.Popen[bytes]:
    """Start a module of `sfnode` or of its tests, as `Program.start` does, with pipes for input and output."""
    server = _server() if HAS_FORKS else None
    if server is None or forked_children.read_at_start(os.environ) != server.read_at_start:
        return program.start(stdout=subprocess.PIPE, stderr=stderr, is_own_session=False)
    words = [f"{program.leave_s:g}", program.module, *program.arguments]
    order = _Order(arguments=words, is_child=True, folder=os.getcwd(), environment=dict(os.environ))
    (stdin, held), (read, stdout) = os.pipe(), os.pipe()
    try:
        process = server.start(order, (stdin, stdout, stderr))
    finally:
        os.close(stdin)
        os.close(stdout)
    process.stdin, process.stdout = open(held, "wb"), open(read, "rb")  # noqa: SIM115 - they are the process's
    return process


class _Server:
    """The server as its client sees it."""

    def __init__(self) -> None:
        self.read_at_start = forked_children.read_at_start(os.environ)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno())]
            self._process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def start(self, order: _Order, standard: tuple[int, int, int]) -> ForkedProcess:
        message = json.dumps(asdict(order)).encode()
        assert len(message) <= MESSAGE_BYTES_MAX
        ended, tell_end = os.pipe()
        try:
            socket.send_fds(self._socket, [message], [*standard, tell_end])
        finally:
            os.close(tell_end)
        pid = self._socket.recv(16)
        assert pid, "the fork server has ended: its last words are in the output of the tests"
        return ForkedProcess(int(pid), ended, order.arguments)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def _server() -> _Server:
    server = _Server()
    atexit.register(server.close)
    return server


# --- in the server


def _serve(orders: socket.socket) -> None:
    """Fork for each order, and tell of each end, until the client is gone."""
    server = os.getpid()
    wakeup = socket.socketpair()
    for end in wakeup:
        end.setblocking(False)
    signal.set_wakeup_fd(wakeup[1].fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}  # processes, each with the pipe that is told of its end
    while True:
        ready, _, _ = select.select([orders, wakeup[0]], [], [])
        if wakeup[0] in ready:
            wakeup[0].recv(4096)
            _tell_ends(running)
        if orders not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(orders, MESSAGE_BYTES_MAX, 4)
        if not message:
            _end_all(running)
            return
        *standard, tell_end = descriptors
        order = _Order(**json.loads(message))
        if not order.is_child or order.arguments[1] == "sfnode":
            _import_all(*_COMMANDS)
        if _may_train(order) or (order.is_child and order.arguments[1] not in _LIGHT_CHILDREN):
            _import_all("sfnode.training.worker_process", "sfnode.training.described_model")
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (orders, *wakeup):
                each.close()
            for descriptor in (tell_end, *running.values()):
                os.close(descriptor)
            _end_with_server(server)
            _run(order, standard)
        for descriptor in standard:
            os.close(descriptor)
        running[pid] = tell_end
        orders.send(b"%d" % pid)


def _end_all(running: Mapping[int, int]) -> None:
    """The tests are over, or were killed hard: what they have left running ends, too."""
    for number, wait_s in ((signal.SIGTERM, _LEAVE_S), (signal.SIGKILL, None)):
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = None if wait_s is None else time.monotonic() + wait_s
        while deadline is not None and time.monotonic() < deadline and any(map(_is_running, running)):
            time.sleep(0.05)


def _is_running(pid: int) -> bool:
    """Whether a child runs; reaps it, once it does not."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False


def _end_with_server(server: int) -> None:
    """Be killed when the server is, however it ends. It has one thread, so that the signal comes for nothing else."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:  # it ended before that
        os._exit(1)


def _tell_ends(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        tell_end = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # nobody wants to know
            os.write(tell_end, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(tell_end)


def _may_train(order: _Order) -> bool:
    """Whether it is a command that imports torch, or starts a worker that does."""
    is_light = not {*_LIGHT}.isdisjoint(order.arguments[:1]) or not _NO_WORKER.isdisjoint(order.arguments)
    return not (order.is_child or is_light)


def _run(order: _Order, standard: list[int]) -> NoReturn:
    """Be the command, as ``python -m sfnode`` would, or the child."""
    # A shell without job control starts `make test &` with SIGINT ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if _may_train(order):
        forked_children.fork_children((*standard,), _run_child)
    forked_children.become(order.folder, order.environment, standard)
    if order.is_child:
        _run_child(order.arguments)
    sys.argv = ["sfnode", *order.arguments]
    forked_children.leave_after(main)


def _run_child(words: list[str]) -> NoReturn:
    """Be ``python -P -m sfnode.children WORDS``: a node of a test network has a worker of its own."""
    if words[1] == "sfnode":
        forked_children.fork_children((), _run_child)
    sys.argv = ["sfnode.children", *words]
    forked_children.leave_after(run_as_child)


def _import_all(*modules: str) -> None:
    """Import them once for all forks."""
    gc.disable()
    for module in modules:
        import_module(module)
    gc.freeze()
    gc.enable()


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as own_end:
        _serve(own_end)
