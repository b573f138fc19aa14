"""What strangers may cost before anybody knows who they are: handshakes, streams, identify, pings, sockets."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from types import SimpleNamespace

import pytest
import trio
from libp2p.custom_types import TProtocol
from libp2p.identity.identify.identify import ID as IDENTIFY
from trio.testing import MockClock

from protocol.framing import frame
from protocol.wire import encode
from sfnode.network import bounds
from sfnode.network.open_files import allowed_files, connections_max
from sfnode.network.policy.ip_groups import DEFAULT_ORIGINS, Origins, parse_proxy
from sfnode.network.transport.link import Link, LinkBrokenError
from sfnode.network.transport.ping import PROTOCOL as PING
from sfnode.network.transport.reachability import PROTOCOL as REACH
from sfnode.network.transport.stream_guard import Doorkeeper, NotAdmittedError
from tests.support.network_nodes import (
    HELLO,
    address_of,
    check_echo,
    connections,
    dial,
    network,
    running_host,
    start,
    until,
)

# --- handshakes


@asynccontextmanager
async def admitted(doorkeeper: Doorkeeper, host: str) -> AsyncIterator[None]:
    """The time of a connection from this address, once it may shake hands."""
    with trio.socket.socket() as socket, doorkeeper.place(host, socket) as caller:
        await doorkeeper.admit(caller)
        yield


async def may_shake_hands(host: str, strangers: list[str], origins: Origins = DEFAULT_ORIGINS) -> bool:
    """Whether a connection from here is admitted next to these, which have not said hello."""
    doorkeeper = Doorkeeper(origins, len(strangers) + 1)
    with ExitStack() as places, trio.socket.socket() as socket:
        for other in strangers:
            places.enter_context(doorkeeper.place(other, socket))
        with suppress(NotAdmittedError):
            async with admitted(doorkeeper, host):
                return True
    return False


async def turns_s(host: str, count: int, origins: Origins = DEFAULT_ORIGINS) -> list[float]:
    """When each of so many handshakes at once may begin; those that are refused are left out."""
    doorkeeper, times = Doorkeeper(origins), []
    started_s = trio.current_time()

    async def knock() -> None:
        with suppress(NotAdmittedError):
            async with admitted(doorkeeper, host):
                times.append(trio.current_time() - started_s)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(knock)
    return times


async def test_handshakes__more_than_the_burst__wait_and_too_many_are_refused(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "HANDSHAKES_BURST", 10)
    times = await turns_s("192.168.7.1", 50)
    assert times[:10] == [0.0] * 10 and times[10] == pytest.approx(1 / bounds.HANDSHAKES_PER_S)
    assert times[-1] == pytest.approx(bounds.HANDSHAKE_WAIT_S)
    assert len(times) == 10 + bounds.HANDSHAKE_WAIT_S * bounds.HANDSHAKES_PER_S


async def test_strangers__of_one_private_address__have_less_than_all_connections() -> None:
    crowd = ["192.168.7.1"] * bounds.STRANGERS_PER_ADDRESS_MAX
    assert await may_shake_hands("192.168.7.1", crowd[:-1]) and not await may_shake_hands("192.168.7.1", crowd)
    assert await may_shake_hands("192.168.7.2", crowd)


async def test_strangers__private_networks_are_limited__count_as_one_like_public_ones() -> None:
    crowd, origins = ["10.0.0.1"] * bounds.STRANGERS_PER_GROUP_MAX, Origins(is_private_limited=True)
    assert await may_shake_hands("10.0.0.9", crowd[1:], origins)
    assert not await may_shake_hands("10.0.0.9", crowd, origins)


async def test_strangers__from_the_operators_own_proxy__are_never_too_many() -> None:
    origins = Origins(is_private_limited=True, proxies=(parse_proxy("10.0.0.7"),))
    assert await may_shake_hands("10.0.0.7", ["10.0.0.7"] * 250, origins)


async def test_handshakes__operators_proxy__do_not_wait(autojump_clock: MockClock) -> None:
    origins = Origins(proxies=(parse_proxy("192.168.7.1"),))
    assert await turns_s("192.168.7.1", 300, origins) == [0.0] * 300


async def test_handshakes__one_network__leaves_the_turns_of_others_alone(autojump_clock: MockClock) -> None:
    doorkeeper = Doorkeeper(DEFAULT_ORIGINS)
    for number in range(bounds.HANDSHAKES_BURST + 3):
        async with admitted(doorkeeper, f"8.8.0.{number}"):
            pass
    started_s = trio.current_time()
    async with admitted(doorkeeper, "9.9.9.9"):
        assert trio.current_time() == started_s
    async with admitted(doorkeeper, "8.8.255.1"):
        assert trio.current_time() > started_s


async def test_stranger__has_opened_a_session_stream_and_says_nothing__is_still_one() -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as host:
        node = await start(nursery, network(1))
        link = await dial(host, node)
        await until(lambda: connections(node.network._host))
        (muxed,) = connections(node.network._host)
        await until(lambda: muxed.has_session)
        assert muxed.is_stranger
        await link.send_all(frame(encode(HELLO)))
        await until(lambda: not muxed.is_stranger)
        nursery.cancel_scope.cancel()


# --- streams


async def test_streams__opened_one_after_the_other__wait_beyond_the_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STREAMS_BURST", 3)
    monkeypatch.setattr(bounds, "STREAMS_PER_S", 10.0)
    async with running_host(1) as victim, running_host(2, is_listening=False) as attacker:
        link = await attacker.dial(address_of(victim))
        started_s = trio.current_time()
        for _ in range(5):
            opened = await attacker.open_beside(link, TProtocol(PING))
            assert opened is not None
            await opened.reset()
        assert trio.current_time() - started_s >= 0.25


async def test_streams__peer_never_ends_them__are_reset_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Yamux keeps a stream until both sides have ended it, and looks at all of a connection with every frame."""
    monkeypatch.setattr(bounds, "STREAM_END_S", 0.1)
    async with running_host(1) as victim, running_host(2, is_listening=False) as attacker:
        link = await attacker.dial(address_of(victim))
        for _ in range(5):
            opened = await attacker.open_beside(link, TProtocol(REACH))
            assert opened is not None
            await opened.send_all(bytes(2))
            assert len(await opened.receive_exactly(27)) == 27
        await until(lambda: len(connections(victim)[0].streams) == 1)  # that of the session
        assert opened is not None
        with suppress(LinkBrokenError), trio.fail_after(5.0):
            while True:  # the end of what the victim has said may come first, and the reset be on its way
                await opened.receive_some(1)
                await trio.sleep(0.01)
        assert victim.guard.failures == 0


async def test_identify__asked_twice_on_a_connection__is_answered_once() -> None:
    async with running_host(1) as victim, running_host(2, is_listening=False) as other:
        link = await other.dial(address_of(victim))
        assert [len(await identified(other, link)) > 100 for _ in range(3)] == [True, False, False]
        again = await other.dial(address_of(victim))
        assert len(await identified(other, again)) > 100


async def identified(asker: object, link: Link) -> bytes:
    """What the other side says of itself on this connection."""
    opened = await asker.open_beside(link, TProtocol(IDENTIFY))  # type: ignore[attr-defined]
    received = b""
    with suppress(LinkBrokenError), trio.fail_after(2.0):
        while data := await opened.receive_some(4_096):
            received += data
    return received


async def test_ping__faster_than_it_may_be__comes_back_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PINGS_BURST", 3)
    monkeypatch.setattr(bounds, "PINGS_PER_S", 10.0)
    async with running_host(1) as victim, running_host(2, is_listening=False) as other:
        opened = await other.open_beside(await other.dial(address_of(victim)), TProtocol(PING))
        assert opened is not None
        pings, started_s = bytes(range(192)), trio.current_time()
        await opened.send_all(pings)
        with trio.fail_after(5.0):
            assert await opened.receive_exactly(192) == pings
        assert trio.current_time() - started_s >= 0.25
        await opened.send_eof()
        assert await opened.receive_some(1) == b""


# --- sockets


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (256, 256, 256, 160),
        (256, resource.RLIM_INFINITY, 4_096, 256),
        (1_024, 4_096, 4_096, 256),
        (1_024, 1_048_576, 4_096, 256),
        (100_000, 100_000, 100_000, 256),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 4_096, 256),
        (64, 64, 64, 1),
    ],
)
def test_open_files__any_limits__are_raised_and_bound_the_connections(
    soft: int, hard: int, raised: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, wanted: limits.append(wanted))
    assert (allowed_files(), connections_max()) == (raised, connections)
    assert limits[-1][1] == hard


def test_open_files__system_refuses__what_is_allowed_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_kind: int, _wanted: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, 4_096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert (allowed_files(), connections_max()) == (256, 160)


async def test_sockets__more_silent_ones_than_the_open_files_allow__oldest_of_the_largest_crowd_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They kept every newcomer out for as long as they were opened anew."""
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (bounds.FILES_BESIDE + 3,) * 2)
    async with running_host(1) as victim, running_host(2, is_listening=False) as other:
        address, idle, callers = address_of(victim), [], victim._doorkeeper._callers
        for host in ("127.2.0.1", "127.1.0.1", "127.1.0.1"):
            idle.append(await trio.open_tcp_stream(address.host, address.port, local_address=host))
            await until(lambda: len(callers) == len(idle))
        link = await other.dial(address)
        assert [caller.host for caller in callers] == ["127.2.0.1", "127.1.0.1", "127.0.0.1"]
        with trio.fail_after(2.0):
            async for _greeting in idle[1]:
                pass
        await link.aclose()
        for stream in idle:
            await stream.aclose()
        await until(lambda: not callers)


async def test_place__all_taken_by_peers_with_a_hello__newcomer_is_refused() -> None:
    doorkeeper = Doorkeeper(DEFAULT_ORIGINS, 1)
    with trio.socket.socket() as first, trio.socket.socket() as second:
        with doorkeeper.place("8.8.8.8", first) as caller:
            caller.muxed = SimpleNamespace(is_stranger=False)
            with pytest.raises(NotAdmittedError, match="all places are taken"), doorkeeper.place("9.9.9.9", second):
                pytest.fail("must not be admitted")
        with doorkeeper.place("9.9.9.9", second):
            assert first.fileno() != -1


async def test_sockets__strangers_take_all_inbound_connections__the_node_still_dials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It said "this node has 3 connections already", and reached nobody."""
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (bounds.FILES_BESIDE + 3,) * 2)
    monkeypatch.setattr(bounds, "OUTBOUND_MAX", 1)
    monkeypatch.setattr(bounds, "DIALS_AT_ONCE_MAX", 0)
    async with running_host(1) as victim, running_host(2, is_listening=False) as stranger, running_host(3) as other:
        for _ in range(4):
            await stranger.dial(address_of(victim))
        await until(lambda: len(connections(victim)) == 3)
        await check_echo(victim, other)
