"""Neighbours in other processes, which can be frozen and killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from sfnode.network.network_config import NetworkConfig, Timings
from tests import REPOSITORY
from tests.support.network_nodes import LOOPBACK, Node, network, record, start, until

NEIGHBOUR = """
import sys
import trio
from tests.support.network_nodes import network
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.addresses import parse_bootstrap

async def main():
    node = network(9, NetworkConfig(bootstrap=tuple(map(parse_bootstrap, sys.argv[1:]))))
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        async for event in node.unread:
            pass

trio.run(main)
"""


@contextmanager
def neighbour_process(node: Node) -> Iterator[subprocess.Popen[bytes]]:
    """A process that connects to the node and reads all that it gets."""
    command = [sys.executable, "-c", NEIGHBOUR, *map(str, node.addresses)]
    process = subprocess.Popen(command, cwd=REPOSITORY, env={"PYTHONPATH": "."})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.process
async def test_neighbour__process_is_frozen__is_dropped_and_others_and_stop_do_not_wait() -> None:
    config = NetworkConfig(listen=(LOOPBACK,), timings=Timings(write_s=0.5))
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1, config))
        friend = await start(nursery, network(2, NetworkConfig(bootstrap=node.addresses)))
        with neighbour_process(node) as process:
            frozen = network(9).peer
            await until(lambda: frozen in node.peers(), within_s=20.0)
            process.send_signal(signal.SIGSTOP)
            number = 0
            ends_s = trio.current_time() + 10.0
            while not node.disconnected() and trio.current_time() < ends_s:
                number += node.network.sessions.send(frozen, record(number, 60_000))
                node.network.sessions.send(friend.peer, record(number))
                await trio.sleep(0.005)
            assert node.disconnected()[0].reason == "the peer has not read for 0.5 s"
            assert len(friend.messages()) > 10
            with trio.fail_after(2.0):
                await node.stop()
        nursery.cancel_scope.cancel()


@pytest.mark.process
async def test_neighbour__process_is_frozen_and_we_are_silent__is_dropped_after_dead_s() -> None:
    config = NetworkConfig(listen=(LOOPBACK,), timings=Timings(ping_interval_s=0.2, dead_s=0.6))
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1, config))
        with neighbour_process(node) as process:
            await until(node.connected, within_s=20.0)
            process.send_signal(signal.SIGSTOP)
            await until(node.disconnected, within_s=3.0)
            assert node.disconnected()[0].reason.startswith("nothing heard for")
        nursery.cancel_scope.cancel()


@pytest.mark.process
async def test_neighbour__process_is_killed__is_noticed_at_once() -> None:
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1))
        with neighbour_process(node) as process:
            await until(node.connected, within_s=20.0)
            process.kill()
            await until(node.disconnected, within_s=1.0)
        nursery.cancel_scope.cancel()
