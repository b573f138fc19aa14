"""Each work-around for py-libp2p 0.8.1: these tests fail when it is taken away."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio
from libp2p.host.ping import ID as PING
from libp2p.identity.identify_push.identify_push import ID_PUSH
from libp2p.io.trio import TrioTCPStream
from libp2p.network.connection.raw_connection import RawConnection
from libp2p.peer.id import ID
from libp2p.stream_muxer.exceptions import MuxedStreamError
from libp2p.stream_muxer.yamux import yamux
from trio.testing import MockClock, wait_all_tasks_blocked

from sfnode.network import bounds
from sfnode.network.transport import host as host_module
from sfnode.network.transport.bounded_yamux import WindowedStream
from sfnode.network.transport.host import DialError, Host
from sfnode.network.transport.libp2p_patches import drop_all_connections
from sfnode.network.transport.link import Link, LinkBrokenError
from tests.support.network_nodes import (
    LOOPBACK,
    address_of,
    check_echo,
    connections,
    echo,
    ignore,
    running_host,
    seed,
    until,
)
from tests.support.patience import Stopwatch

# --- the guard around stream handlers


async def test_stream_guard__protocol_name_is_not_utf8__host_survives() -> None:
    async with running_host(1) as victim, running_host(2, is_listening=False) as attacker:
        await attacker.dial(address_of(victim))
        stream = await connections(attacker)[0].open_stream()
        await stream.write(b"\x13/multistream/1.0.0\n" + b"\x05\xff\xfe\xfd\xfc\n")
        await until(lambda: victim.guard.failures == 1)
        await check_echo(attacker, victim)


@pytest.mark.parametrize("error", [ValueError("bug"), LinkBrokenError("gone"), trio.TooSlowError(), MuxedStreamError()])
async def test_stream_guard__handler_raises__host_survives(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def fail_once(link: Link) -> None:
        if not failed:
            failed.append(link)
            raise error
        await echo(link)

    failed: list[Link] = []
    async with running_host(1, fail_once) as victim, running_host(2, is_listening=False) as attacker:
        with caplog.at_level(logging.CRITICAL + 1, "sfnode"):
            await attacker.dial(address_of(victim))
            await until(lambda: victim.slips.state.count == 1)
        await check_echo(attacker, victim)


async def test_stream_guard__peer_opens_40_streams__all_but_16_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STRANGER_FRAMES_PER_S", 1e6)
    async with running_host(1) as victim, running_host(2, is_listening=False) as attacker, running_host(3) as other:
        await attacker.dial(address_of(victim))
        for _ in range(40):
            await connections(attacker)[0].open_stream()
        await until(lambda: victim.guard.refused == 40 + 1 - bounds.INBOUND_STREAMS_PER_PEER_MAX)
        await check_echo(other, victim)


async def test_identify_push__peer_opens_it__is_refused() -> None:
    async with running_host(1) as victim, running_host(2, is_listening=False) as attacker:
        link = await attacker.dial(address_of(victim))
        assert await attacker.open_beside(link, ID_PUSH) is None
        assert await attacker.open_beside(link, PING) is not None


# --- inbound connections


def is_gone(host: Host, peer: Host) -> bool:
    """The host has no connection with that peer."""
    return not host._swarm.get_connections(ID.from_base58(peer.peer))


async def connect_again_and_again(victim: Host, *, dialler_number: int, cycles: int) -> None:
    async with running_host(dialler_number, is_listening=False) as dialler:
        for _ in range(cycles):
            link = await dialler.dial(address_of(victim))
            await link.aclose()
            await until(partial(is_gone, victim, dialler))


async def test_inbound_slots__connections_come_and_go__slots_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "CONNECTIONS_MAX", 2)
    async with running_host(1) as victim:
        await connect_again_and_again(victim, dialler_number=2, cycles=4)
        assert victim._swarm._inbound_limiter.borrowed_tokens == 0


@pytest.mark.slow
async def test_inbound_slots__300_connections_in_a_lifetime__all_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "HANDSHAKES_PER_S", 1e6)
    async with running_host(1) as victim:
        async with trio.open_nursery() as nursery:
            for number in range(2, 12):
                nursery.start_soon(partial(connect_again_and_again, victim, dialler_number=number, cycles=30))
        assert victim._swarm._inbound_limiter.borrowed_tokens == 0
        assert victim._swarm.peerstore.peer_ids() == [ID.from_base58(victim.peer)]


async def test_inbound_connection__opens_no_session__is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FIRST_SESSION_S", 0.1)
    async with running_host(1) as victim, running_host(2, is_listening=False) as idler:
        stream = await host_module._connect(address_of(victim))
        raw = RawConnection(TrioTCPStream(stream), True)
        await idler._swarm.upgrade_outbound_raw_conn(raw, ID.from_base58(victim.peer))
        await until(lambda: connections(victim))
        await until(lambda: not connections(victim) and not connections(idler), within_s=2.0)


async def test_inbound_connection__fifth_of_one_peer__is_closed() -> None:
    async with running_host(1, ignore) as victim, running_host(2, is_listening=False) as hoarder:
        for _ in range(bounds.CONNECTIONS_PER_PEER_MAX):
            await hoarder.dial(address_of(victim))
        with suppress(DialError, LinkBrokenError):  # it is accepted, named by its key, and closed
            link = await hoarder.dial(address_of(victim))
            with trio.fail_after(2.0):
                assert await link.receive_some(1) == b""
        await until(lambda: len(connections(victim)) == bounds.CONNECTIONS_PER_PEER_MAX)


# --- yamux


async def test_yamux_window__peer_ignores_it__connection_is_cut_and_memory_bounded() -> None:
    async with running_host(1, ignore) as victim, running_host(2, is_listening=False) as attacker:
        link = await attacker.dial(address_of(victim))
        (connection,) = connections(victim)
        link._stream.send_window = 1 << 30
        sizes: list[int] = []

        async def flood() -> None:
            while True:
                await link.send_all(bytes(65_000))
                sizes.append(connection.buffered_bytes())

        with trio.fail_after(5.0), pytest.raises(LinkBrokenError):
            await flood()
        assert 0 < max(sizes) <= bounds.CONNECTION_BUFFER_BYTES_MAX
        await until(lambda: connection.is_closed)


def long_frame_header(link: Link) -> bytes:
    """Announces one byte more than a window."""
    length = bounds.STREAM_WINDOW_BYTES + 1
    packed: bytes = yamux.struct.pack(yamux.YAMUX_HEADER_FORMAT, 0, yamux.TYPE_DATA, 0, link._stream.stream_id, length)
    return packed


async def test_yamux_frame__longer_than_a_window__connection_is_cut_before_it_is_read() -> None:
    async with running_host(1, ignore) as victim, running_host(2, is_listening=False) as attacker:
        link = await attacker.dial(address_of(victim))
        (connection,) = connections(victim)
        await connections(attacker)[0]._write_frame(long_frame_header(link))
        await until(lambda: connection.is_closed)


async def test_yamux_stream__reader_pauses_for_a_minute__writer_waits(autojump_clock: MockClock) -> None:
    class Wire:
        def __init__(self) -> None:
            self.frames: list[bytes] = []

        async def _write_frame(self, data: bytes) -> None:
            self.frames.append(data)

    wire = Wire()
    stream = WindowedStream(1, wire, True)
    stream.send_window = 3
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.write, b"abcdef")
        await trio.sleep(60.5)
        assert [frame[12:] for frame in wire.frames] == [b"abc"]
        opened_s = trio.current_time()
        stream.send_window += 10
    assert [frame[12:] for frame in wire.frames] == [b"abc", b"def"]
    assert trio.current_time() == opened_s  # it did not have to look


async def test_yamux_stream__connection_ends_while_a_writer_waits__it_is_told(autojump_clock: MockClock) -> None:
    stream = WindowedStream(1, None, True)
    stream.send_window = 0

    async def end() -> None:
        await trio.sleep(5.0)
        stream.closed = True  # as the library does it: without waking anybody

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end)
        with trio.fail_after(60.0), pytest.raises(MuxedStreamError):
            await stream.write(b"abcdef")


async def test_yamux_stream__small_reads__no_window_update_for_each() -> None:
    async with running_host(1) as server, running_host(2, is_listening=False) as client:
        link = await client.dial(address_of(server))
        writes = 0
        (connection,) = connections(server)
        write_frame = connection._write_frame

        async def counting(data: bytes) -> None:
            nonlocal writes
            writes += 1
            await write_frame(data)

        connection._write_frame = counting
        for _ in range(50):
            await link.send_all(b"x" * 100)
            assert await link.receive_some(200) == b"x" * 100
        assert writes <= 52  # the echoes; a keep-alive of the library's may come between


async def test_yamux_window__larger_transfer__goes_through() -> None:
    async with running_host(1) as server, running_host(2, is_listening=False) as client:
        link = await client.dial(address_of(server))
        received = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.send_all, bytes(3_000_000))
            while len(received) < 3_000_000:
                received += await link.receive_some(65_536)
        assert not any(received)


async def test_yamux_write__cancelled_half_way__connection_is_aborted() -> None:
    async with running_host(1, ignore) as server, running_host(2, is_listening=False) as client:
        link = await client.dial(address_of(server))
        (connection,) = connections(client)

        async def blocked(_data: bytes) -> None:
            await trio.sleep_forever()

        connection.secured_conn.write = blocked
        with trio.move_on_after(0.05):
            await link.send_all(b"never arrives")
        with trio.fail_after(1.0):
            await connection.event_closed.wait()
            await link.aclose()


async def test_yamux_write__cancelled_before_its_turn__connection_stays() -> None:
    """A node that fetches from several neighbours gives up all streams once it has everything: none may be lost."""
    async with running_host(1, echo) as server, running_host(2, is_listening=False) as client:
        link = await client.dial(address_of(server))
        (connection,) = connections(client)
        async with trio.open_nursery() as nursery:
            async with connection._write_lock:
                nursery.start_soon(link.send_all, b"never sent")
                await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()  # now it is its turn, and it has not run since
        await link.send_all(b"still there?")
        with trio.fail_after(2.0):
            assert await link.receive_some(100) == b"still there?"


async def test_stream__given_up_by_a_task_that_is_cancelled__peer_is_told() -> None:
    told = trio.Event()

    async def give(link: Link) -> None:
        with suppress(LinkBrokenError):
            while True:
                await link.send_all(bytes(1_000))
        told.set()

    async with running_host(1, give) as server, running_host(2, is_listening=False) as client:
        link = await client.dial(address_of(server))
        with trio.CancelScope() as scope:
            scope.cancel()
            await link.reset()
        with trio.fail_after(5.0):
            await told.wait()
        (connection,) = connections(client)
        assert not connection.is_closed


async def test_connection__its_own_task_fails__host_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_self: object) -> None:
        raise RuntimeError("bug in the muxer")

    async with running_host(1) as victim, running_host(2, is_listening=False) as dialler:
        await dialler.dial(address_of(victim))
        with monkeypatch.context() as patched, trio.move_on_after(0.5):
            patched.setattr(yamux.Yamux, "handle_incoming", fail)
            with pytest.raises(DialError):
                await dialler.dial(address_of(victim))
        await check_echo(dialler, victim)


# --- parts of the library that act by themselves


async def test_host__connected__opens_no_streams_of_its_own() -> None:
    async with running_host(1) as server, running_host(2, is_listening=False) as client:
        await client.dial(address_of(server))
        await trio.sleep(0.1)  # identify would come 5 ms after the connection
        for host in (server, client):
            assert [len(connection.streams) for connection in connections(host)] == [1]


async def test_host__connections_came_and_went__library_has_not_dialled_limited_or_remembered() -> None:
    async with running_host(1) as server, running_host(2, is_listening=False) as client:
        await connect_again_and_again(server, dialler_number=3, cycles=1)
        await check_echo(client, server)
        for host in (server, client):
            swarm = host._swarm
            assert swarm._resource_manager is None
            assert swarm._last_prune_attempt == 0.0
            assert not hasattr(swarm.auto_connector, "_recent_disconnects")
            assert swarm.peerstore.peer_ids() == [swarm.self_id]


async def test_log__connections_come_and_fail__library_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_host(1, ignore) as victim, running_host(2, is_listening=False) as attacker:
        link = await attacker.dial(address_of(victim))
        (connection,) = connections(victim)
        await connections(attacker)[0]._write_frame(long_frame_header(link))
        await until(lambda: connection.is_closed)
    names = {record.name.partition(".")[0] for record in caplog.records}
    assert not names & {"libp2p", "root"}


# --- closing


async def test_close__many_connections__side_by_side() -> None:
    async with running_host(1, ignore) as server, running_host(2, is_listening=False) as client:
        for _ in range(4):
            await client.dial(address_of(server))
        started_s = trio.current_time()
        await drop_all_connections(client._swarm)
        assert trio.current_time() - started_s < 0.6  # one after another: 0.8 s at least
        await until(lambda: not connections(client))


async def hold(lock: trio.Lock, task_status: Any) -> None:
    """As a write that TCP does not take holds its lock."""
    async with lock:
        task_status.started()
        await trio.sleep_forever()


async def test_close__write_blocked__returns_at_once() -> None:
    async with running_host(1, ignore) as server, running_host(2, is_listening=False) as client:
        link = await client.dial(address_of(server))
        (connection,) = connections(client)
        async with trio.open_nursery() as nursery:
            await nursery.start(hold, connection._write_lock)
            with trio.fail_after(2.0):
                await link.aclose()
            nursery.cancel_scope.cancel()


async def test_close__host_ends_with_eight_connections__does_not_wait_for_each() -> None:
    host = Host(identity_seed=seed(1), on_inbound=ignore)
    async with running_host(2, is_listening=False) as client, running_host(3, is_listening=False) as other:
        async with host.running((LOOPBACK,)):
            links = [await dialler.dial(address_of(host)) for dialler in (client, other) for _ in range(4)]
            await until(lambda: len(connections(host)) == 8)
            ended = connections(host)
            stopwatch = Stopwatch()
        assert stopwatch.seconds() < 1.2  # one after another: 1.6 s at least
        assert all(connection.is_closed for connection in ended)
        for link in links:
            with trio.fail_after(2.0), suppress(LinkBrokenError):
                assert await link.receive_some(1) == b""
