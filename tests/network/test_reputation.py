"""What is held against real neighbours, and what follows: nothing is pushed to them, or they are cut off for a day."""

from __future__ import annotations

from collections.abc import Callable, Sized
from pathlib import Path

import trio

from protocol.framing import frame
from protocol.limits import FRAME_BYTES_MAX
from protocol.run.manifest import sign_manifest
from protocol.wire import Bye, Records, encode
from sfnode.network.network_config import NetworkConfig, Timings
from sfnode.network.policy.reputation import DiscouragedRow, Fault
from sfnode.network.saved_peers import decode_rows, encode_rows
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests.support.manifests import OWNER, small_manifest
from tests.support.network_nodes import (
    HELLO,
    LOOPBACK,
    connect_pair,
    dial,
    network,
    read_to_end,
    running_host,
    seed,
    start,
    until,
)

PUSHED, ASKED = Records(request=0, data=b"pushed"), Records(request=7, data=b"asked for")


async def test_push__peer_with_a_bad_score__gets_answers_but_nothing_pushed() -> None:
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        assert listener.network.sessions.send(dialler.peer, PUSHED)
        for _ in range(2):
            listener.network.sessions.penalise(dialler.peer, Fault.STALLED, "it does not read")
        assert not listener.network.sessions.send(dialler.peer, PUSHED)
        assert listener.network.sessions.send(dialler.peer, ASKED)
        await until(lambda: dialler.messages() == [PUSHED, ASKED])
        nursery.cancel_scope.cancel()


async def test_session__peer_stalls_again_and_again__is_discouraged_the_fourth_time() -> None:
    timings = Timings(write_s=0.05)
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as stalled:
        listener = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), timings=timings)))
        for times in range(1, 5):
            link = await dial(stalled, listener)
            await link.send_all(frame(encode(HELLO)))
            await until(_has(listener.connected, times))
            while listener.network.sessions.send(stalled.peer, Records(request=7, data=bytes(FRAME_BYTES_MAX - 64))):
                await trio.lowlevel.checkpoint()
            await until(_has(listener.disconnected, times))
            await link.aclose()
        assert {row.peer for row in listener.network.sessions.discouraged_rows()} == {stalled.peer}
        nursery.cancel_scope.cancel()


async def test_handshake__stranger_says_nothing_four_times__is_discouraged() -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as silent:
        timings = Timings(hello_s=0.05)
        listener = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), timings=timings)))
        for _ in range(4):
            assert not listener.network.sessions.discouraged_rows()
            assert await read_to_end(await dial(silent, listener)) == b""
        await until(listener.network.sessions.discouraged_rows)
        nursery.cancel_scope.cancel()


async def test_discouraged__node_restarts__still_refuses_the_peer(tmp_path: Path) -> None:
    signed = sign_manifest(small_manifest(), OWNER)
    row = None
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        listener.network.sessions.drop(dialler.peer, reason="bad signature")
        (row,) = listener.network.sessions.discouraged_rows()
        nursery.cancel_scope.cancel()
    assert row.peer == dialler.peer
    store = Store(DataDirectory(tmp_path), signed)
    store.save("discouraged", encode_rows([row]))
    store.close()
    store = Store(DataDirectory(tmp_path), signed)
    kept = decode_rows(DiscouragedRow, store.saved("discouraged"))
    store.close()
    assert kept == (row,)
    async with trio.open_nursery() as nursery, running_host(2, is_listening=False) as again:
        assert seed(2) and again.peer == row.peer
        reborn = network(1, NetworkConfig(listen=(LOOPBACK,)))
        reborn.sessions.restore_discouraged(kept)
        node = await start(nursery, reborn)
        link = await dial(again, node)
        await link.send_all(frame(encode(HELLO)))
        assert await read_to_end(link) == frame(encode(Bye(reason="not now")))
        nursery.cancel_scope.cancel()


def test_discouraged__unreadable_on_disk__is_empty() -> None:
    for text in ("", "{", "[1]", '[{"peer": 1, "until_unix_s": 2}]', "[" * 100_000):
        assert decode_rows(DiscouragedRow, text) == ()
    (row,) = decode_rows(DiscouragedRow, '[{"peer": "p", "until_unix_s": 2}]')
    assert row == DiscouragedRow(peer="p", until_unix_s=2)


async def test_slow_reader__stops_reading__a_fast_one_gets_everything_meanwhile() -> None:
    """3 MB for each, twelve times what may wait for a neighbour: the slow one's queue fills, the fast one's never."""
    frames, size = 50, FRAME_BYTES_MAX - 64
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as slow:
        listener = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,))))
        fast = await start(nursery, network(2, NetworkConfig(bootstrap=listener.addresses)))
        link = await dial(slow, listener)
        await link.send_all(frame(encode(HELLO)))
        await until(lambda: len(listener.connected()) == 2)
        is_slow_full = False
        for number in range(1, frames + 1):
            message = Records(request=number, data=bytes(size))
            is_slow_full = not listener.network.sessions.send(slow.peer, message) or is_slow_full
            assert listener.network.sessions.send(fast.peer, message)
            await until(_has(fast.messages, number))
        assert is_slow_full
        assert listener.peers() == {fast.peer, slow.peer}  # nobody had to be cut for it
        await link.aclose()
        nursery.cancel_scope.cancel()


def _has(items: Callable[[], Sized], count: int) -> Callable[[], bool]:
    return lambda: len(items()) == count
