"""Sessions between neighbours: messages, heartbeats, ends, and peers that misbehave."""

from __future__ import annotations

import logging
import struct
import time
from dataclasses import replace

import pytest
import trio
from libp2p.stream_muxer.yamux import yamux

from protocol.errors import OperatorError
from protocol.events import PeerJoined, PeerLeft
from protocol.framing import frame
from protocol.wire import Bye, ManifestPart, Message, Peers, Records, decode_untrusted, encode
from sfnode import __version__
from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig, Timings
from sfnode.network.policy.addresses import parse_listen
from sfnode.network.transport.host import check_can_listen
from sfnode.network.transport.link import Link
from sfnode.node import event_inbox
from tests.support.daemons import free_ports
from tests.support.network_nodes import (
    HELLO,
    LOOPBACK,
    QUICK,
    Node,
    connect_pair,
    dial,
    network,
    read_to_end,
    record,
    running_host,
    start,
    until,
)


async def test_network__port_in_use__operator_error_names_the_address() -> None:
    async with trio.open_nursery() as nursery:
        first = await start(nursery, network(1))
        taken = replace(first.addresses[0], peer=None)
        with pytest.raises(OperatorError, match=f"cannot listen on {taken}: Address already in use; another program"):
            await network(2, NetworkConfig(listen=(taken,))).run()
        nursery.cancel_scope.cancel()


# --- messages


async def test_session__two_nodes_meet__both_are_told_who_it_is() -> None:
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1))
        dialler = await start(nursery, network(2, NetworkConfig(bootstrap=listener.addresses, agent="sfnode/9")))
        await until(lambda: listener.events and dialler.events)
        assert listener.events == [PeerJoined(peer=dialler.peer)]
        assert dialler.events == [PeerJoined(peer=listener.peer)]
        (heard,), (met,) = listener.network.neighbours(), dialler.network.neighbours()
        assert (heard.is_outbound, heard.agent, met.is_outbound, met.agent) == (
            False,
            "sfnode/9",
            True,
            f"sfnode/{__version__}",
        )
        nursery.cancel_scope.cancel()


async def test_session__1000_messages_each_way__all_arrive_in_order() -> None:
    async def flood(sender: Node, receiver: Node) -> None:
        number = 0
        while number < 1_000:
            number += sender.network.sessions.send(receiver.peer, record(number))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        pair = await connect_pair(nursery)
        async with trio.open_nursery() as flooding:
            flooding.start_soon(flood, *pair)
            flooding.start_soon(flood, *reversed(pair))
        for node in pair:
            await until(lambda node=node: len(node.messages()) == 1_000)  # type: ignore[misc]
            assert node.messages() == [record(number) for number in range(1_000)]
        statistics = pair[0].network.statistics()
        assert statistics.frames_in >= 1_000 <= statistics.frames_out
        assert statistics.bytes_in > 100_000 < statistics.bytes_out
        nursery.cancel_scope.cancel()


async def test_session__many_small_messages__share_stream_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    send_all = Link.send_all

    async def counting(link: Link, data: bytes) -> None:
        sizes.append(len(data))
        await send_all(link, data)

    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        monkeypatch.setattr(Link, "send_all", counting)
        assert all(dialler.network.sessions.send(listener.peer, record(number)) for number in range(1_000))
        await until(lambda: len(listener.messages()) == 1_000)
        with_records = [size for size in sizes if size > 100]  # not the pings of a machine that is slow
        assert len(with_records) <= 4
        assert max(sizes) <= bounds.WRITE_BYTES_MAX
        nursery.cancel_scope.cancel()


async def test_send__no_such_neighbour__is_false() -> None:
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1))
        assert not node.network.sessions.send(network(2).peer, record(1))
        nursery.cancel_scope.cancel()


async def test_neighbours__after_a_ping__round_trip_and_bytes_are_known() -> None:
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery, timings=QUICK)
        await until(lambda: dialler.network.neighbours()[0].rtt_ms is not None)
        (info,) = dialler.network.neighbours()
        assert info.rtt_ms is not None
        assert 0 < info.rtt_ms < 1_000
        assert (info.peer, info.is_outbound) == (listener.peer, True)
        assert f"{info.address}/p2p/{info.peer}" == str(listener.addresses[0])
        assert info.bytes_in > 0 < info.bytes_out
        assert listener.network.neighbours()[0].address == "127.0.0.1"
        nursery.cancel_scope.cancel()


async def test_session__idle_but_alive__stays() -> None:
    async with trio.open_nursery() as nursery:
        pair = await connect_pair(nursery, timings=QUICK)
        await trio.sleep(1.0)  # three times dead_s
        assert not any(node.disconnected() for node in pair)
        nursery.cancel_scope.cancel()


# --- ends


async def test_stop__neighbour__is_told_bye_and_gets_the_last_messages() -> None:
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        for number in range(100):
            dialler.network.sessions.send(listener.peer, record(number))
        with trio.fail_after(1.8):
            await dialler.stop()
        await until(listener.disconnected)
        assert len(listener.messages()) == 100
        assert listener.disconnected() == [PeerLeft(peer=dialler.peer, reason="the peer said bye: the node stops")]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("checkpoints", range(6))
async def test_stop__as_the_network_begins_to_listen__ends_and_gives_the_port_back(checkpoints: int) -> None:
    """The task that handed the cancellation on could fail, and then nothing ended the network (make faults)."""
    (port,) = free_ports(1)
    listen = parse_listen(f"/ip4/127.0.0.1/tcp/{port}")
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(network(1, NetworkConfig(listen=(listen,))).run)
            for _ in range(checkpoints):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    await check_can_listen((listen,))


async def test_stop__31_neighbours__takes_less_than_2_s() -> None:
    async with trio.open_nursery() as nursery:
        hub = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), inbound_max=31)))
        config = NetworkConfig(bootstrap=hub.addresses, neighbours_fixed=True)
        spokes = [await start(nursery, network(number, config)) for number in range(2, 33)]
        await until(lambda: len(hub.peers()) == 31)
        started_s = trio.current_time()
        await hub.stop()
        assert trio.current_time() - started_s < 2.0
        await until(lambda: all(spoke.disconnected() for spoke in spokes))
        nursery.cancel_scope.cancel()


async def test_neighbour__vanishes_and_returns__is_dialled_again() -> None:
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        for connection in listener.network._host._swarm.get_connections():
            connection.muxed_conn.abort()
        await until(lambda: len(dialler.connected()) == 2)
        await until(lambda: len(listener.connected()) == 2)
        assert [type(event) for event in dialler.events] == [PeerJoined, PeerLeft, PeerJoined]
        nursery.cancel_scope.cancel()


async def test_neighbour__restarts_on_the_same_port__is_dialled_again() -> None:
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        await listener.stop()
        await until(dialler.disconnected)
        again = network(1, NetworkConfig(listen=(replace(listener.addresses[0], peer=None),)))
        back = await start(nursery, again)
        await until(back.connected, within_s=10.0)
        nursery.cancel_scope.cancel()


async def test_drop__discouraged_peer__is_disconnected_and_refused() -> None:
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        listener.network.sessions.drop(dialler.peer, reason="bad signature")
        await until(lambda: any("not now" in report.reason for report in dialler.network.dialler.reports))
        assert dialler.disconnected()[0].reason == "the peer said bye: bad signature"
        assert not listener.peers()
        nursery.cancel_scope.cancel()


# --- misbehaving peers

GARBAGE = {
    "not msgpack": frame(b"\xc1\xc1\xc1"),
    "unknown kind": frame(b"\x91\xcc\xfa"),
    "wrong types": frame(b"\x92\x01\xa1x"),
    "zero length": bytes(4),
    "4 GiB": b"\xff\xff\xff\xff",
    "second hello": frame(encode(HELLO)),
    "peers not asked for": frame(encode(Peers(peers=()))),
    "manifest part not asked for": frame(encode(ManifestPart(total=1, offset=0, data=b"x"))),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
async def test_session__peer_sends_garbage__is_dropped_and_others_stay(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as attacker:
        listener = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), neighbours_fixed=True)))
        friend = await start(nursery, network(2, NetworkConfig(bootstrap=listener.addresses)))
        await until(listener.connected)
        link = await dial(attacker, listener)
        await link.send_all(frame(encode(HELLO)))
        await until(lambda: len(listener.connected()) == 2)
        with caplog.at_level(logging.ERROR, "sfnode"):
            await link.send_all(garbage)
            await until(lambda: [event.peer for event in listener.disconnected()] == [attacker.peer])
        assert friend.network.sessions.send(listener.peer, record(1))
        await until(listener.messages)
        again = await dial(attacker, listener)
        await again.send_all(frame(encode(HELLO)))
        assert frame(encode(Bye(reason="not now"))) == await read_to_end(again)
        nursery.cancel_scope.cancel()


async def test_neighbour__silent_after_hello__is_dropped_after_dead_s() -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as silent:
        listener = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), timings=QUICK)))
        link = await dial(silent, listener)
        await link.send_all(frame(encode(HELLO)))
        await until(listener.disconnected, within_s=2.0)
        assert listener.disconnected()[0].reason.startswith("nothing heard for")
        nursery.cancel_scope.cancel()


async def test_neighbour__does_not_read__queue_is_bounded_and_it_is_dropped() -> None:
    timings = Timings(write_s=0.3)
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as stalled:
        listener = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), timings=timings)))
        friend = await start(nursery, network(2, NetworkConfig(bootstrap=listener.addresses)))
        link = await dial(stalled, listener)
        await link.send_all(frame(encode(HELLO)))
        await until(lambda: len(listener.connected()) == 2)
        queued = 0
        while listener.network.sessions.send(stalled.peer, record(queued, 10_000)):
            queued += 1
            await trio.lowlevel.checkpoint()
        assert queued * 10_000 < bounds.SEND_QUEUE_BYTES_MAX + bounds.STREAM_WINDOW_BYTES + bounds.WRITE_BYTES_MAX
        assert listener.network.sessions.send(friend.peer, record(1))
        await until(friend.messages)
        await until(listener.disconnected, within_s=2.0)
        assert listener.disconnected()[0].reason == "the peer has not read for 0.3 s"
        nursery.cancel_scope.cancel()


async def test_events__node_does_not_read_them__sender_waits_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_inbox, "INBOX_EVENTS_MAX", 16)
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1), is_reading=False)
        dialler = await start(nursery, network(2, NetworkConfig(bootstrap=listener.addresses)))
        await until(dialler.connected)
        sent = 0
        deadline_s = trio.current_time() + 0.5
        while trio.current_time() < deadline_s:
            sent += dialler.network.sessions.send(listener.peer, record(sent, 10_000))
            await trio.sleep(0.001)
        bound = bounds.SEND_QUEUE_BYTES_MAX + bounds.CONNECTION_BUFFER_BYTES_MAX + bounds.READ_BYTES_MAX
        assert 0 < sent * 10_000 < bound
        nursery.start_soon(listener.record)
        await until(lambda: len(listener.messages()) == sent)
        nursery.cancel_scope.cancel()


async def test_neighbour__sends_faster_than_allowed__is_read_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "RECEIVE_BURST_BYTES", 20_000)
    monkeypatch.setattr(bounds, "RECEIVE_BYTES_PER_S", 100_000)
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        started_s = trio.current_time()
        for number in range(7):
            assert dialler.network.sessions.send(listener.peer, record(number, 10_000))
        await until(lambda: len(listener.messages()) == 7)
        assert trio.current_time() - started_s > 0.4  # 70 kB less the burst, at 100 kB/s
        nursery.cancel_scope.cancel()


async def test_neighbour__its_message_took_long_to_decode__is_read_when_that_is_earned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Large answers that nobody had asked for took 0.26 of a core at 2 MB/s."""

    def decoded_slowly(payload: bytes) -> Message:
        began_s = time.thread_time()
        while time.thread_time() - began_s < 0.05:
            pass
        return decode_untrusted(payload)

    monkeypatch.setattr(bounds, "RECEIVE_BURST_BYTES", 20_000)
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        monkeypatch.setattr("sfnode.network.sessions.channel.decode_untrusted", decoded_slowly)
        started_s = trio.current_time()
        assert dialler.network.sessions.send(listener.peer, record(1))
        await until(listener.messages)
        assert trio.current_time() - started_s > 0.4  # 50 ms are paid for in 0.45 s
        nursery.cancel_scope.cancel()


async def test_neighbour__sends_data_for_streams_that_do_not_exist__is_read_more_slowly() -> None:
    """25 MB/s of them were decrypted and dropped. What is in flight when a stream is reset delays nobody."""
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        session = dialler.network.sessions.get(listener.peer)
        assert session is not None
        window = bytes(bounds.STREAM_WINDOW_BYTES)
        for windows in (1, 3):
            started_s = trio.current_time()
            for _ in range(windows):
                header = struct.pack(yamux.YAMUX_HEADER_FORMAT, 0, yamux.TYPE_DATA, 0, 999_999, len(window))
                await session.channel.link.muxed._write_frame(header + window)
            assert dialler.network.sessions.send(listener.peer, record(windows))
            await until(lambda windows=windows: record(windows) in listener.messages())  # type: ignore[misc]
        assert trio.current_time() - started_s > 0.5
        nursery.cancel_scope.cancel()


async def test_neighbour__pushes_more_records_than_allowed__is_read_more_slowly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1,000 records of 100 bytes count as 1 MB when nobody asked for them."""
    monkeypatch.setattr(bounds, "RECEIVE_BURST_BYTES", 500_000)
    monkeypatch.setattr(bounds, "RECEIVE_BYTES_PER_S", 1_000_000)
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1, record_bytes=100))
        dialler = await start(nursery, network(2, NetworkConfig(bootstrap=listener.addresses)))
        await until(dialler.connected)
        started_s = trio.current_time()
        for _ in range(10):
            assert dialler.network.sessions.send(listener.peer, record(0, 10_000))
        await until(lambda: sum(len(each.data) for each in listener.messages() if isinstance(each, Records)) == 100_000)
        assert trio.current_time() - started_s > 0.4  # 1 MB less the burst, at 1 MB/s
        nursery.cancel_scope.cancel()
