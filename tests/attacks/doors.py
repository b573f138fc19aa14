"""What the attacks on a node's doors share: a relay as the victim, a joiner, and connections from other addresses.

The attacker comes from 127.1.0.1 or its neighbours, the joiner from 127.0.0.1. Needs Linux, where all of 127.0.0.0/8
is this machine.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from sfnode.network.policy.addresses import parse_address
from sfnode.network.sessions.file_download import fetch_manifest
from sfnode.network.transport.host import Host
from sfnode.network.transport.link import Link
from tests.support.daemons import JoinProcess, demo_run, free_port, write_run
from tests.support.running_nodes import address_in, wait_until

ATTACKER: Final = "127.1.0.1"
NEVER_S: Final = 10.0  # a joiner that has waited for so long has waited in vain
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A relay that is up: its process, and where it listens."""

    node: JoinProcess
    address: str

    @property
    def host(self) -> str:
        return parse_address(self.address).host

    @property
    def port(self) -> int:
        return parse_address(self.address).port

    @property
    def is_alive(self) -> bool:
        return self.node.is_alive

    def cpu_s(self) -> float:
        """Processor time that it has taken so far."""
        assert self.node.process is not None
        fields = Path(f"/proc/{self.node.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def status_age_s(self) -> float:
        """How old its status file is."""
        return time.time() - float(self.node.status()["time"])


@contextmanager
def relay(*, prefix: tuple[str, ...] = ()) -> Iterator[Victim]:
    """A relay of a run of its own; ``prefix``: a command that runs it."""
    with TemporaryDirectory(prefix="sfnode-") as folder:
        directory, run_file, port = Path(folder) / "victim", Path(folder) / "a.run", free_port()
        write_run(demo_run(steps=1_000), run_file)
        listen = f"/ip4/127.0.0.1/tcp/{port}"
        node = JoinProcess(
            directory=directory, arguments=["--relay", "--run", str(run_file), "--listen", listen], prefix=prefix
        )
        address = address_in(directory, port)
        node.start()
        try:
            wait_until(node.status, "the first status of the victim")
            yield Victim(node=node, address=address)
        finally:
            if node.is_alive:
                node.kill()


async def manifest_s(victim: Victim) -> float | None:
    """After how long somebody at 127.0.0.1 who wants to join has the manifest; None for never."""
    start_s = trio.current_time()
    with trio.move_on_after(NEVER_S) as scope:
        await fetch_manifest((victim.address,), secrets.token_bytes(32))
    return None if scope.cancelled_caught else trio.current_time() - start_s


def in_words(seconds: float | None) -> str:
    """The time that `manifest_s` found."""
    return f"no manifest in {NEVER_S:.0f} s" if seconds is None else f"manifest in {seconds:.2f} s"


@dataclass(slots=True)
class Spent:
    """What the attacker has opened, and what it has sent on that, Noise and all."""

    connections: int = 0
    bytes: int = 0


async def link_from(attacker: Host, local_host: str, address: str, spent: Spent) -> Link:
    """A session stream to the victim, dialled from that address; what goes out is counted."""
    target = parse_address(address)
    assert target.peer is not None
    stream = await trio.open_tcp_stream(target.host, target.port, local_address=local_host)
    spent.connections += 1
    send_all = stream.send_all

    async def counted(data: bytes) -> None:
        spent.bytes += len(data)
        await send_all(data)

    vars(stream)["send_all"] = counted
    return await attacker._upgrade(stream, target.peer)
