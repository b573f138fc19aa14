"""What the page costs a node: processor time of a relay at 50 updates a second, with and without browsers that look.

python -m tests.web.page_cost
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Final

import psutil

from sfnode.children.child_program import Program, end
from sfnode.web.server import VIEWERS_MAX
from tests.support.daemons import JoinProcess, demo_run, free_ports, write_run
from tests.support.running_nodes import address_in, wait_until

_RATE_PER_S: Final = 50
_STEPS: Final = 100_000  # more than the source makes
_START_S: Final = 60.0
_SETTLE_S: Final = 5.0  # a browser's first event has everything; what follows is what looking costs


@contextmanager
def relay_at_work(folder: Path, web_port: int) -> Iterator[psutil.Process]:
    """A relay with a page, and a source that gives it updates of ten authors."""
    run, node_port = folder / "page.run", free_ports(1)[0]
    write_run(demo_run(steps=_STEPS), run)
    listen = f"/ip4/127.0.0.1/tcp/{node_port}"
    words = ["--run", str(run), "--relay", "--listen", listen, f"--web=127.0.0.1:{web_port}"]
    node = JoinProcess(folder / "node", words)
    with ExitStack() as running:
        node.start()
        running.callback(node.kill)
        wait_until(lambda: bool(node.status()), "a status file", _START_S)
        target = address_in(node.directory, node_port)
        given = ("--run", str(run), "--target", target, "--rate", str(_RATE_PER_S), "--seconds", "1e9")
        source = Program(module="tests.netlab.probe", arguments=given).start(stdout=subprocess.DEVNULL)
        running.callback(end, source)
        wait_until(lambda: node.status().get("updates", 0) > 0, "the first updates", _START_S)
        assert node.process is not None
        yield psutil.Process(node.process.pid)


def _look(port: int) -> socket.socket:
    """A browser that reads whatever comes, until it is closed."""
    browser = socket.create_connection(("127.0.0.1", port))
    browser.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    assert browser.recv(12).endswith(b" 200")
    Thread(target=_read, args=[browser], daemon=True).start()
    return browser


def _read(browser: socket.socket) -> None:
    while browser.recv(1 << 16):
        pass


def share_of_a_core(process: psutil.Process, seconds: float) -> float:
    """Processor time in a second, over the next ``seconds``."""
    started, before = time.monotonic(), process.cpu_times()
    time.sleep(seconds)
    after = process.cpu_times()
    computed_s: float = after.user + after.system - before.user - before.system
    return computed_s / (time.monotonic() - started)


def measure(seconds: float) -> dict[int, float]:
    """Share of a core, by the number of browsers that look."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        port, found = free_ports(1)[0], {}
        process = running.enter_context(relay_at_work(Path(folder), port))
        for fewer, count in pairwise((0, 0, 1, VIEWERS_MAX)):
            for _ in range(count - fewer):
                running.enter_context(_look(port))
            time.sleep(_SETTLE_S)
            found[count] = share_of_a_core(process, seconds)
        return found


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.web.page_cost", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long each number of browsers looks")
    for count, share in measure(parser.parse_args().seconds).items():
        sys.stdout.write(f"with {count} browsers: {share:.1%} of a core at {_RATE_PER_S} updates/s\n")


if __name__ == "__main__":
    main()
