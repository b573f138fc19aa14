"""``sfnode join`` processes under control: started, watched through what they report, signalled, and cleared away."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
import trio

from sfnode.network.policy.addresses import peer_of_author
from sfnode.storage.key_file import IDENTITY_FILE, KeyFile
from sfnode.testnet.node_process import NodeProcess
from tests.support import forked_children
from tests.support.daemons import JoinProcess
from tests.support.patience import Patience, wait_for_end

STOP_S = 5.0  # from a signal to the end of the process


class Joins:
    """Starts nodes on directories below ``folder``. At the end none is left, and none has printed a traceback."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._nodes: list[JoinProcess] = []

    def __call__(self, name: str, *arguments: object) -> JoinProcess:
        """``sfnode join --data-dir NAME --json ARGUMENTS``; the log lies beside the directory."""
        node = JoinProcess(directory=self.folder / name, arguments=[str(argument) for argument in arguments])
        self._nodes.append(node)
        node.start()
        return node

    def __enter__(self) -> Joins:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            add_logs(error, self._nodes)
        for node in self._nodes:
            if node.process is not None and node.process.poll() is None:
                node.kill()
        for log in [log for node in self._nodes for log in node.logs]:
            assert "Traceback" not in log.read_text(errors="replace"), log.read_text(errors="replace")


def add_logs(error: BaseException, nodes: Sequence[NodeProcess]) -> None:
    """Let a failure show how far the nodes have come; on another machine nothing else is left of it."""
    for node in nodes:
        for log in node.logs[-1:]:
            said = log.read_text(errors="replace")[-2_000:] if log.exists() else ""
            error.add_note(f"--- {log.name}, exit code {node.exit_code}:\n{said}")


@contextmanager
def showing_logs(nodes: Sequence[NodeProcess]) -> Iterator[None]:
    """What fails in the block shows the end of the nodes' logs (`add_logs`)."""
    try:
        yield
    except BaseException as error:
        add_logs(error, nodes)
        raise


@contextmanager
def running(nodes: Sequence[NodeProcess]) -> Iterator[None]:
    """Start the nodes; at the end none is left."""
    try:
        for node in nodes:
            node.start()
        with showing_logs(nodes):
            yield
    finally:
        for node in nodes:
            if node.is_alive:
                node.kill()


async def until_all(
    nodes: Sequence[JoinProcess], holds: Callable[[dict[str, Any]], object], what: str, limit_s: float = 60.0
) -> None:
    """Poll until ``holds`` of the status of each node; fails naming ``what`` did not come, and what each node says.

    At once for a node that has ended. The limit is one of `Patience`, and begins once all have a status: to replay a
    long ledger takes a busy machine half a minute, in which their logs grow.
    """
    patience = Patience(
        limit_s, progress=lambda: [0 if node.status() else node.logs[-1].stat().st_size for node in nodes]
    )
    while not all(holds(node.status()) for node in nodes):
        if patience.is_over() or not all(node.is_alive for node in nodes):
            said = "\n".join(f"{node.status()}\n{node.logs[-1].read_text()[-2_000:]}" for node in nodes)
            raise AssertionError(f"not within {limit_s} s: {what}\n{said}")
        await trio.sleep(0.1)


def wait_until(condition: Callable[[], object], what: str, limit_s: float = 40.0) -> None:
    """Poll until ``condition`` holds; fails naming ``what`` did not come. The limit is one of `Patience`."""
    patience = Patience(limit_s)
    while not condition():
        assert not patience.is_over(), f"not within {limit_s} s: {what}"
        time.sleep(0.05)


def wait_for_updates(node: JoinProcess, more: int = 3) -> None:
    """The node contributes ``more`` updates from now on."""
    assert node.process is not None
    before = node.status().get("own_updates", 0) if node.status().get("pid") == node.process.pid else 0

    def has_more() -> bool:
        assert node.process is not None
        assert node.process.poll() is None, node.logs[-1].read_text()
        status = node.status()
        return status.get("pid") == node.process.pid and bool(status["own_updates"] >= before + more)

    wait_until(has_more, f"{more} more updates; log: {node.logs[-1].read_text()[-2_000:]}")


def address_in(directory: Path, port: int) -> str:
    """The address of a node that will run on ``directory`` and listen on ``port``."""
    KeyFile(directory / IDENTITY_FILE).made_seed()
    peer = peer_of_author(KeyFile(directory / IDENTITY_FILE).signer().author)
    return f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer}"


def stop(node: JoinProcess, number: signal.Signals) -> None:
    """The signal ends the node within STOP_S with exit code 0, and the node says so."""
    assert node.process is not None
    node.process.send_signal(number)
    assert wait_for_end(node.process, STOP_S) == 0, node.logs[-1].read_text()
    assert [event["signal"] for event in node.events() if event["event"] == "stopping"] == [number.name]


def children(process: subprocess.Popen[bytes] | None) -> list[int]:
    """Process ids of its children: the training worker of a node, the nodes of a test network.

    Not of what a library asks the system for while it is imported: an interrupt would come too early.
    """
    assert process is not None
    own = command_of(process.pid)
    commands = {child: command_of(child) for child in children_of(process.pid)}
    is_forked = {child: _name_of(child) == forked_children.CHILD for child in commands}
    return [
        child for child, command in commands.items() if is_forked[child] or (b"sfnode" in command and command != own)
    ]


def command_of(pid: int) -> bytes:
    """The command line of a process; empty when it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def children_of(pid: int) -> list[int]:
    """Process ids of the children of a process, without the zygote of one that the fork server has started."""
    if not Path("/proc/self/task").is_dir():
        pytest.skip("needs Linux: /proc says which processes another one has started")
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):  # a child belongs to the thread that made it
        with suppress(FileNotFoundError, ProcessLookupError):
            found += map(int, thread.read_text().split())
    return [pid for pid in found if _name_of(pid) != forked_children.ZYGOTE]


def _name_of(pid: int) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
