"""Sessions between neighbours: messages, heartbeats, ends, and peers that misbehave."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace

import pytest
import trio

from network_nodes import (
    CALM,
    LOOPBACK,
    MANIFEST,
    QUICK,
    RUN_ID,
    Node,
    connect_pair,
    network,
    record,
    running_host,
    seed,
    start,
    until,
)
from protocol.errors import OperatorError
from protocol.wire import VERSION, Bye, Hello, ManifestPart, Message, Peers, PeersRequest, Ping, encode
from sfnode.network import limits
from sfnode.network.addresses import parse_address
from sfnode.network.channel import Channel, Timings, Traffic
from sfnode.network.events import MessageReceived, NetworkConfig, PeerConnected, PeerDisconnected
from sfnode.network.frames import frame
from sfnode.network.greeting import greet, own_hello
from sfnode.network.host import Host
from sfnode.network.link import Link, LinkBrokenError
from sfnode.network.manifest_transfer import fetch_manifest

HELLO = own_hello(run_id=RUN_ID, agent="stranger", listen=(), head_step=7)


async def dial(host: Host, node: Node) -> Link:
    """A link to a node, on which nothing has been said yet."""
    return await host.dial(parse_address(node.addresses[0]))


async def read_to_end(link: Link) -> bytes:
    """All that the other side says until it closes or cuts the connection."""
    received = b""
    with suppress(LinkBrokenError):
        while data := await link.receive_some(65_536):
            received += data
    return received


async def test_network__port_in_use__operator_error_names_the_address() -> None:
    async with trio.open_nursery() as nursery:
        first = await start(nursery, network(1))
        taken = first.addresses[0].partition("/p2p/")[0]
        with pytest.raises(OperatorError, match=f"cannot listen on {taken}: Address already in use; another program"):
            await network(2, NetworkConfig(listen=(taken,))).run()
        nursery.cancel_scope.cancel()


# --- messages


async def test_session__two_nodes_meet__both_are_told_who_it_is() -> None:
    async with trio.open_nursery() as nursery:
        first = network(1)
        first.head_step = 5
        listener = await start(nursery, first)
        dialler = await start(nursery, network(2, NetworkConfig(bootstrap=listener.addresses, agent="sfnode/9")))
        await until(lambda: listener.events and dialler.events)
        assert listener.events == [PeerConnected(peer=dialler.peer, is_outbound=False, agent="sfnode/9", head_step=0)]
        assert dialler.events == [PeerConnected(peer=listener.peer, is_outbound=True, agent="sfnode", head_step=5)]
        nursery.cancel_scope.cancel()


async def test_session__1000_messages_each_way__all_arrive_in_order() -> None:
    async def flood(sender: Node, receiver: Node) -> None:
        number = 0
        while number < 1_000:
            number += sender.network.send(receiver.peer, record(number))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        pair = await connect_pair(nursery)
        async with trio.open_nursery() as flooding:
            flooding.start_soon(flood, *pair)
            flooding.start_soon(flood, *reversed(pair))
        for node in pair:
            await until(lambda node=node: len(node.messages()) == 1_000)  # type: ignore[misc]
            assert node.messages() == [record(number) for number in range(1_000)]
        statistics = pair[0].network.statistics
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
        assert all(dialler.network.send(listener.peer, record(number)) for number in range(1_000))
        await until(lambda: len(listener.messages()) == 1_000)
        assert len(sizes) <= 4
        assert max(sizes) <= limits.WRITE_BYTES_MAX
        nursery.cancel_scope.cancel()


async def test_send__no_such_neighbour__is_false() -> None:
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(1))
        assert not node.network.send(network(2).peer, record(1))
        nursery.cancel_scope.cancel()


async def test_message__received__wire_bytes_are_those_of_the_frame() -> None:
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        dialler.network.send(listener.peer, record(1))
        await until(listener.messages)
        (event,) = [event for event in listener.events if isinstance(event, MessageReceived)]
        assert event.wire_bytes == len(frame(encode(record(1))))
        nursery.cancel_scope.cancel()


async def test_neighbours__after_a_ping__round_trip_and_bytes_are_known() -> None:
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery, timings=QUICK)
        await until(lambda: dialler.network.neighbours()[0].rtt_ms is not None)
        (info,) = dialler.network.neighbours()
        assert info.rtt_ms is not None
        assert 0 < info.rtt_ms < 1_000
        assert (info.peer, info.is_outbound) == (listener.peer, True)
        assert f"{info.address}/p2p/{info.peer}" == listener.addresses[0]
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
            dialler.network.send(listener.peer, record(number))
        with trio.fail_after(1.8):
            await dialler.stop()
        await until(listener.disconnected)
        assert len(listener.messages()) == 100
        assert listener.disconnected() == [
            PeerDisconnected(peer=dialler.peer, reason="the peer said bye: the node stops")
        ]
        nursery.cancel_scope.cancel()


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
        assert [type(event) for event in dialler.events] == [PeerConnected, PeerDisconnected, PeerConnected]
        nursery.cancel_scope.cancel()


async def test_neighbour__restarts_on_the_same_port__is_dialled_again() -> None:
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        await listener.stop()
        await until(dialler.disconnected)
        again = network(1, NetworkConfig(listen=(listener.addresses[0].partition("/p2p/")[0],)))
        back = await start(nursery, again)
        await until(back.connected, within_s=10.0)
        nursery.cancel_scope.cancel()


async def test_drop__discouraged_peer__is_disconnected_and_refused() -> None:
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        listener.network.drop(dialler.peer, reason="bad signature", discourage_s=60.0)
        await until(lambda: any("not now" in report.reason for report in dialler.network.dial_reports))
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
        with caplog.at_level(logging.ERROR, "sfnode.network"):
            await link.send_all(garbage)
            await until(lambda: [event.peer for event in listener.disconnected()] == [attacker.peer])
        assert friend.network.send(listener.peer, record(1))
        await until(listener.messages)
        again = await dial(attacker, listener)
        await again.send_all(frame(encode(HELLO)))
        assert frame(encode(Bye(reason="not now"))) == await read_to_end(again)
        nursery.cancel_scope.cancel()


BEFORE_HELLO = {
    "frame of 2 KiB": frame(bytes(2_048)),
    "ping": frame(encode(Ping(nonce=1))),
    "records": frame(encode(record(1))),
}


@pytest.mark.parametrize("first_words", BEFORE_HELLO.values(), ids=BEFORE_HELLO.keys())
async def test_stranger__says_anything_but_hello__is_cut(first_words: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as attacker:
        listener = await start(nursery, network(1))
        link = await dial(attacker, listener)
        with caplog.at_level(logging.ERROR, "sfnode.network"):
            await link.send_all(first_words)
            with trio.fail_after(2.0):
                assert await read_to_end(link) == b""
        assert not listener.events
        nursery.cancel_scope.cancel()


async def test_stranger__says_nothing__is_cut_after_hello_s() -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as attacker:
        config = NetworkConfig(listen=(LOOPBACK,), timings=replace(QUICK, hello_s=0.2))
        listener = await start(nursery, network(1, config))
        link = await dial(attacker, listener)
        with trio.fail_after(1.5):
            assert await read_to_end(link) == b""
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
        while listener.network.send(stalled.peer, record(queued, 10_000)):
            queued += 1
            await trio.lowlevel.checkpoint()
        assert queued * 10_000 < limits.OUTBOX_BYTES_MAX + limits.STREAM_WINDOW_BYTES + limits.WRITE_BYTES_MAX
        assert listener.network.send(friend.peer, record(1))
        await until(friend.messages)
        await until(listener.disconnected, within_s=2.0)
        assert listener.disconnected()[0].reason == "the peer has not read for 0.3 s"
        nursery.cancel_scope.cancel()


async def test_events__node_does_not_read_them__sender_waits_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "EVENTS_MAX", 16)
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1), is_reading=False)
        dialler = await start(nursery, network(2, NetworkConfig(bootstrap=listener.addresses)))
        await until(dialler.connected)
        sent = 0
        deadline_s = trio.current_time() + 0.5
        while trio.current_time() < deadline_s:
            sent += dialler.network.send(listener.peer, record(sent, 10_000))
            await trio.sleep(0.001)
        bound = limits.OUTBOX_BYTES_MAX + limits.CONNECTION_BUFFER_BYTES_MAX + limits.READ_BYTES_MAX
        assert 0 < sent * 10_000 < bound
        nursery.start_soon(listener.record)
        await until(lambda: len(listener.messages()) == sent)
        nursery.cancel_scope.cancel()


async def test_neighbour__sends_faster_than_allowed__is_read_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECEIVE_BURST_BYTES", 20_000)
    monkeypatch.setattr(limits, "RECEIVE_BYTES_PER_S", 100_000)
    async with trio.open_nursery() as nursery:
        listener, dialler = await connect_pair(nursery)
        started_s = trio.current_time()
        for number in range(7):
            assert dialler.network.send(listener.peer, record(number, 10_000))
        await until(lambda: len(listener.messages()) == 7)
        assert trio.current_time() - started_s > 0.4  # 70 kB less the burst, at 100 kB/s
        nursery.cancel_scope.cancel()


# --- greeting


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (replace(HELLO, run_id=b"x" * 32), "other run"),
        (replace(HELLO, version=VERSION + 1), "other protocol version"),
    ],
)
async def test_greeting__other_run_or_version__is_refused_politely(hello: Hello, reason: str) -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as stranger:
        listener = await start(nursery, network(1))
        link = await dial(stranger, listener)
        channel = Channel(link, CALM, Traffic())
        await channel.send_now(hello)
        received = await channel.receive_untrusted()
        assert received is not None
        assert isinstance(received[0], Bye)
        assert received[0].reason.startswith(reason)
        assert not listener.events
        nursery.cancel_scope.cancel()


async def test_greeting__bootstrap_is_in_another_run__operator_is_told_and_it_is_not_redialled() -> None:
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1))
        config = NetworkConfig(bootstrap=listener.addresses)
        dialler = await start(nursery, network(2, config, run_id=b"x" * 32))
        await until(lambda: dialler.network.dial_reports)
        (report,) = dialler.network.dial_reports
        assert report.address == listener.addresses[0]
        assert report.reason.startswith("other run")
        assert report.retry_in_s >= limits.BACKOFF_BOOTSTRAP_MAX_S
        nursery.cancel_scope.cancel()


async def test_greeting__long_list_of_own_addresses__hello_still_fits() -> None:
    announced = tuple(f"/dns/{'a' * 60}.{'b' * 60}.example/tcp/{port}" for port in range(4_000, 4_012))
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1))
        config = NetworkConfig(bootstrap=listener.addresses, announce=announced)
        dialler = await start(nursery, network(2, config))
        await until(dialler.connected)
        nursery.cancel_scope.cancel()


async def test_full_node__one_more_dials__is_refused_and_told_of_others() -> None:
    async with trio.open_nursery() as nursery:
        full = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), inbound_max=1)))
        member = await start(nursery, network(2, NetworkConfig(listen=(LOOPBACK,), bootstrap=full.addresses)))
        await until(full.connected)
        newcomer = await start(nursery, network(3, NetworkConfig(bootstrap=full.addresses)))
        await until(lambda: member.peer in newcomer.peers())
        assert newcomer.network.dial_reports[0].reason == "full"
        assert full.peers() == {member.peer}
        nursery.cancel_scope.cancel()


async def test_second_session_of_a_peer__newest_wins__first_is_told() -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as restarted:
        listener = await start(nursery, network(1))
        links = []
        for number in (1, 2):
            links.append(await dial(restarted, listener))
            await links[-1].send_all(frame(encode(HELLO)))
            await until(lambda number=number: len(listener.connected()) == number)  # type: ignore[misc]
        assert [type(event) for event in listener.events] == [PeerConnected, PeerDisconnected, PeerConnected]
        await links[1].send_all(frame(encode(record(2))))
        await until(listener.messages)
        nursery.cancel_scope.cancel()


# --- the manifest


async def test_fetch_manifest__node_serves_it__whole_and_equal() -> None:
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1))
        assert await fetch_manifest(listener.addresses, seed(5)) == MANIFEST
        assert not listener.events
        nursery.cancel_scope.cancel()


async def test_fetch_manifest__first_bootstrap_is_down__says_so_and_asks_the_next() -> None:
    async with trio.open_nursery() as nursery:
        gone = await start(nursery, network(2))
        await gone.stop()
        listener = await start(nursery, network(1))
        reasons: list[str] = []
        fetched = await fetch_manifest(
            (*gone.addresses, *listener.addresses),
            seed(5),
            on_failure=lambda report: reasons.append(f"{report.address}: {report.reason}"),
        )
        assert fetched == MANIFEST
        assert reasons == [f"{gone.addresses[0]}: connection refused"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("address", ["/ip4/127.0.0.1/tcp/4001", "localhost:4001", "/ip4/0.0.0.0/tcp/1/p2p/x", ""])
async def test_fetch_manifest__malformed_address__operator_error(address: str) -> None:
    with pytest.raises(OperatorError, match="bootstrap address"):
        await fetch_manifest((address,), seed(5))


@pytest.mark.parametrize("message", [record(1), PeersRequest(), Peers(peers=())])
async def test_observer__asks_for_more_than_the_manifest__is_cut(
    message: Message, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as stranger:
        listener = await start(nursery, network(1))
        link = await dial(stranger, listener)
        channel = Channel(link, CALM, Traffic())
        await greet(channel, replace(HELLO, run_id=bytes(32)))
        with caplog.at_level(logging.ERROR, "sfnode.network"):
            await channel.send_now(message)
            assert await read_to_end(link) == b""
        nursery.cancel_scope.cancel()
