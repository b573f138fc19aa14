"""Starts the children of forked commands as forks, too: a worker without 3.5 s of processor time for imports.

A command that the fork server has forked forks once more before it begins. This zygote has all imports and no thread,
and does nothing until the command starts a module of sfnode: it then forks in place of a new interpreter. The fork is
a child of the command, as any other: it gets the same arguments, environment, input and output, and session.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

_MESSAGE_BYTES_MAX: Final = 1 << 18
_SET_CHILD_SUBREAPER: Final = 36  # of Linux: prctl(2)
_COMM: Final = Path("/proc/self/comm")
ZYGOTE: Final = "test-zygote"  # its name, and that of its forks, where the system lists processes
CHILD: Final = "test-child"
_AT_START: Final = ("PYTHON", "OMP_", "HF_", "TORCH", "TRANSFORMERS_")  # read when Python and libraries start
_BY_TORCH: Final = "TORCHINDUCTOR_CACHE_DIR"  # set by its import, to where it looks anyway
_BY_PROGRAM: Final = ("PYTHONPATH", "PYTHONSAFEPATH")  # what `Program` sets, and what our path says anyway


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """What a fork does; its standard input, output and error come as descriptors."""

    words: list[str]  # those after ``python -P -m sfnode.children``
    environment: dict[str, str]
    folder: str
    is_own_session: bool


def read_at_start(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that a fork cannot heed."""
    return {name: value for name, value in variables.items() if name.startswith(_AT_START) and name != _BY_TORCH}


def fork_children(not_theirs: Iterable[int], run: Callable[[list[str]], NoReturn]) -> None:
    """Let the modules of sfnode that this process starts from now on be forks, in which ``run`` gets the words.

    ``not_theirs``: descriptors that a fork must not hold open.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        near.close()
        for descriptor in not_theirs:
            os.close(descriptor)
        with open(os.devnull, "r+b") as nothing:
            for number in (0, 1):
                os.dup2(nothing.fileno(), number)
        _serve(far, run)
    far.close()
    _InPlaceOfStarts(near).put()


class _InPlaceOfStarts:
    """Takes the place of the function by which `subprocess` starts programs."""

    def __init__(self, zygote: socket.socket) -> None:
        self._zygote = zygote
        self._lock = threading.Lock()
        self._real = vars(subprocess)["_fork_exec"]
        self._own = self._heeded(dict(os.environ))

    def put(self) -> None:
        vars(subprocess)["_fork_exec"] = self

    def __call__(self, *given: Any) -> int:
        # The arguments as CPython 3.11 to 3.13 pass them.
        words, standard, is_own_session = list(map(os.fsdecode, given[0])), given[6:12], bool(given[15])
        variables = dict(os.fsdecode(each).split("=", 1) for each in given[5] or ())
        is_ours = words[1:4] == ["-P", "-m", "sfnode.children"] and words[5].startswith("sfnode")
        if not is_ours or self._heeded(variables) != self._own:
            return int(self._real(*given))
        order = _Order(words=words[4:], environment=variables, folder=os.getcwd(), is_own_session=is_own_session)
        ends = [end if end != -1 else number for number, end in enumerate((standard[0], standard[3], standard[5]))]
        with self._lock:
            _prctl(_SET_CHILD_SUBREAPER, 1)
            try:
                socket.send_fds(self._zygote, [json.dumps(asdict(order)).encode()], ends)
                return int(self._zygote.recv(16))
            finally:
                _prctl(_SET_CHILD_SUBREAPER, 0)

    @staticmethod
    def _heeded(variables: Mapping[str, str]) -> dict[str, str]:
        return {name: value for name, value in read_at_start(variables).items() if name not in _BY_PROGRAM}


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _serve(orders: socket.socket, run: Callable[[list[str]], NoReturn]) -> NoReturn:
    """Be the zygote until the command has ended."""
    _COMM.write_text(ZYGOTE)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        message, standard, _, _ = socket.recv_fds(orders, _MESSAGE_BYTES_MAX, 3)
        if not message:
            os._exit(0)
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            # Whoever has lost its parent becomes a child of the command, which has asked the system for that.
            if os.fork() != 0:
                os._exit(0)
            os.write(tell, b"%d" % os.getpid())
            for each in (told, tell, orders.detach()):
                os.close(each)
            _be(_Order(**json.loads(message)), standard, run)
        os.waitpid(between, 0)
        orders.send(os.read(told, 16))
        for each in (told, tell, *standard):
            os.close(each)


def _be(order: _Order, standard: list[int], run: Callable[[list[str]], NoReturn]) -> NoReturn:
    """Be the child, as its command line would; with it the interpreter ends, which is its own now."""
    _COMM.write_text(CHILD)
    if order.is_own_session:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    become(order.folder, order.environment, standard)
    run(order.words)


def become(folder: str, environment: Mapping[str, str], standard: list[int]) -> None:
    """Take another's folder, environment, and standard input, output and error."""
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
    for descriptor in standard:
        if descriptor > 2:
            os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)


def leave_after(run: Callable[[], None]) -> NoReturn:
    """Run it, and end as the interpreter does, whose end comes here; but leave its memory to the system.

    To take apart what all forks share costs half a second: each page of it is copied first.
    """
    code = 1
    try:
        run()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            sys.stderr.write(f"{stop.code}\n")
    finally:
        kind, error, traceback = sys.exc_info()
        if kind is not None and error is not None:
            sys.excepthook(kind, error, traceback)
        vars(threading)["_shutdown"]()
        vars(atexit)["_run_exitfuncs"]()
        with suppress(OSError):
            sys.stdout.flush()
        os._exit(code)
