"""A program `sfnode` for shell scripts under test: each call is a fork (`fork_server`), not a new interpreter.

To the script it is a program like any other: it gets arguments, folder, environment, input, output and signals, and
ends with the command's exit code.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.support import fork_server

_CLIENT: Final = Path(__file__).with_name("forked_program_client.py")
_LOOK_EVERY_S: Final = 0.05
_ONE_AT_A_TIME: Final = threading.Lock()


@contextmanager
def program_at(path: Path) -> Iterator[None]:
    """Make ``path`` a program that is `sfnode` while the block lasts."""
    if not fork_server.HAS_FORKS:
        _write(path, sys.executable, "-m", "sfnode")
        yield
        return
    name = f"sfnode-tests-{os.getpid()}"
    _write(path, sys.executable, "-I", "-S", str(_CLIENT), name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        serving = threading.Thread(target=_serve, args=(listener,))
        serving.start()
        try:
            yield
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()


def _write(path: Path, *command: str) -> None:
    path.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    path.chmod(0o755)


def _serve(listener: socket.socket) -> None:
    calls = []
    with suppress(OSError):  # the listener is shut down
        while True:
            connection, _ = listener.accept()
            calls.append(threading.Thread(target=_run, args=(connection,)))
            calls[-1].start()
    for call in calls:
        call.join()


def _run(connection: socket.socket) -> None:
    """Run one command; kill it when its caller is gone."""
    with connection, suppress(BrokenPipeError):
        message, standard, _, _ = socket.recv_fds(connection, fork_server.MESSAGE_BYTES_MAX, 3)
        words, folder, environment = json.loads(message)
        with _ONE_AT_A_TIME:
            place = fork_server.Place(folder=folder, environment=environment)
            process = fork_server.start(words, stdin=standard[0], stdout=standard[1], stderr=standard[2], place=place)
        for descriptor in standard:
            os.close(descriptor)
        connection.send(b"%d" % process.pid)
        while process.poll() is None:
            if select.select([connection], [], [], _LOOK_EVERY_S)[0]:
                process.kill()
                process.wait()
        connection.send(b"%d" % process.wait())
