"""Whole neighbourhoods: simultaneous dials, rings, growing from one bootstrap, nodes that only dial out."""

from __future__ import annotations

import logging
import random
import socket
import time
from dataclasses import replace
from unittest import mock

import pytest
import trio

from protocol.wire import PeerId, Peers
from sfnode.network import bounds
from sfnode.network.discovery import dialler as overlay
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy import ip_groups
from sfnode.network.policy.address_book import AddressBook, PeerRow
from sfnode.network.policy.addresses import Address, parse_address
from sfnode.network.policy.ip_groups import ip_group_of
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.handshake import exchange_hello, own_hello
from tests.support.daemons import free_ports
from tests.support.network_nodes import CALM, LOOPBACK, RUN_ID, Node, network, record, running_host, start, until


def fixed_addresses(numbers: range) -> list[Address]:
    """Addresses of test nodes before they run."""
    ports = free_ports(len(numbers))
    return [replace(LOOPBACK, port=port, peer=network(n).peer) for port, n in zip(ports, numbers, strict=True)]


def is_connected(nodes: list[Node]) -> bool:
    """True when every node can be reached from the first over sessions."""
    neighbours = {node.peer: node.peers() for node in nodes}
    reached: set[PeerId] = set()
    todo = [nodes[0].peer]
    while todo:
        peer = todo.pop()
        if peer not in reached:
            reached.add(peer)
            todo.extend(neighbours.get(peer, ()))
    return reached == set(neighbours)


@pytest.mark.parametrize("attempt", range(5))
async def test_dial__from_both_ends_at_once__one_session_stays(attempt: int) -> None:
    addresses = fixed_addresses(range(2 * attempt + 1, 2 * attempt + 3))
    async with trio.open_nursery() as nursery:
        nodes: list[Node] = []

        async def run(number: int, own: Address, other: Address) -> None:
            config = NetworkConfig(listen=(replace(own, peer=None),), bootstrap=(other,))
            nodes.append(await start(nursery, network(number, config)))

        async with trio.open_nursery() as starting:
            starting.start_soon(run, 2 * attempt + 1, *addresses)
            starting.start_soon(run, 2 * attempt + 2, *reversed(addresses))
        await until(lambda: all(len(node.connected()) - len(node.disconnected()) == 1 for node in nodes))
        await trio.sleep(0.3)
        first, second = (node.network.neighbours() for node in nodes)
        assert len(first) == len(second) == 1
        assert first[0].is_outbound != second[0].is_outbound
        assert nodes[0].network.sessions.send(nodes[1].peer, record(1))
        assert nodes[1].network.sessions.send(nodes[0].peer, record(2))
        await until(lambda: all(node.messages() for node in nodes))
        nursery.cancel_scope.cancel()


@pytest.mark.process
async def test_ring__32_nodes_with_fixed_neighbours__each_has_exactly_two() -> None:
    addresses = fixed_addresses(range(1, 33))
    async with trio.open_nursery() as nursery:
        nodes = []
        for index, own in enumerate(addresses):
            config = NetworkConfig(
                listen=(replace(own, peer=None),),
                bootstrap=(addresses[(index + 1) % 32],),
                neighbours_fixed=True,
            )
            nodes.append(await start(nursery, network(index + 1, config)))
        await until(lambda: all(len(node.peers()) == 2 for node in nodes), within_s=20.0)
        assert is_connected(nodes)
        assert all(not node.disconnected() for node in nodes)
        nursery.cancel_scope.cancel()


@pytest.mark.process
async def test_growth__12_nodes_know_one_bootstrap_with_little_room__all_find_each_other_without_it() -> None:
    async with trio.open_nursery() as nursery:
        bootstrap = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), inbound_max=4)))
        nodes = []
        for number in range(2, 14):
            config = NetworkConfig(listen=(LOOPBACK,), bootstrap=bootstrap.addresses)
            nodes.append(await start(nursery, network(number, config)))
        await until(lambda: all(len(node.peers()) >= 4 for node in nodes), within_s=20.0)
        await bootstrap.stop()
        await until(lambda: is_connected(nodes), within_s=10.0)
        assert all(node.network.statistics().sessions_outbound <= bounds.OUTBOUND_MAX for node in nodes)
        nursery.cancel_scope.cancel()


def skip_without_ipv6(*listen: str) -> None:
    """Some containers have no IPv6 at all."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        if any(address.startswith("/ip6") for address in listen):
            pytest.skip(f"this machine has no IPv6 loopback: {error}")


def skip_without(*listen: Address) -> None:
    """Loopback is one address on some systems."""
    for address in listen:
        with socket.socket() as probe:
            try:
                probe.bind((address.host, 0))
            except OSError as error:
                pytest.skip(f"this machine has no address {address.host}: {error}")


@pytest.mark.parametrize("listen", ["/ip4/0.0.0.0/tcp/0", "/ip6/::1/tcp/0", "/ip6/::/tcp/0", "/ip4/127.0.0.1/tcp/0"])
async def test_listen__any_kind_of_address__can_be_dialled_as_printed(listen: str) -> None:
    skip_without_ipv6(listen)
    async with trio.open_nursery() as nursery:
        announce = parse_address("/dns4/localhost/tcp/1")
        config = NetworkConfig(listen=(parse_address(listen),), announce=(announce,))
        listener = await start(nursery, network(1, config))
        assert listener.addresses[0] == replace(announce, peer=listener.peer)
        for number, address in enumerate(listener.addresses[1:]):
            node = await start(nursery, network(number + 2, NetworkConfig(bootstrap=(address,))))
            await until(node.connected)
        nursery.cancel_scope.cancel()


async def test_listen__two_addresses__both_are_served() -> None:
    skip_without_ipv6("/ip6/::1/tcp/0")
    async with trio.open_nursery() as nursery:
        config = NetworkConfig(listen=(LOOPBACK, parse_address("/ip6/::1/tcp/0")))
        listener = await start(nursery, network(1, config))
        assert len(listener.addresses) == 2
        for number, address in enumerate(listener.addresses):
            node = await start(nursery, network(number + 2, NetworkConfig(bootstrap=(address,))))
            await until(node.connected)
        nursery.cancel_scope.cancel()


async def test_outbound_only__two_such_nodes_and_one_listener__both_are_full_members() -> None:
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1))
        config = NetworkConfig(bootstrap=listener.addresses)
        first, second = [await start(nursery, network(number, config)) for number in (2, 3)]
        assert first.addresses == second.addresses == ()
        await until(lambda: len(listener.peers()) == 2)
        for node in (first, second):
            assert node.network.sessions.send(listener.peer, record(1))
            assert listener.network.sessions.send(node.peer, record(2))
            await until(node.messages)
        await until(lambda: len(listener.messages()) == 2)
        nursery.cancel_scope.cancel()


async def test_bootstrap__not_there_yet__operator_is_told_and_it_is_dialled_until_it_is() -> None:
    (address,) = fixed_addresses(range(1, 2))
    async with trio.open_nursery() as nursery:
        early = await start(nursery, network(2, NetworkConfig(bootstrap=(address,))))
        await until(lambda: early.network.dialler.reports)
        (report,) = early.network.dialler.reports
        assert (report.address, report.reason) == (str(address), "connection refused")
        assert 0 <= report.retry_in_s <= 1.0
        await start(nursery, network(1, NetworkConfig(listen=(replace(address, peer=None),))))
        await until(early.connected, within_s=10.0)
        assert early.network.dialler.reports == ()
        nursery.cancel_scope.cancel()


async def test_peer__none_of_its_addresses_answers__is_one_failed_try() -> None:
    """Each address once counted, so that a peer with eight of them was away for minutes after one try."""
    dead = [replace(LOOPBACK, port=port, peer=network(1).peer) for port in free_ports(4)]
    async with trio.open_nursery() as nursery:
        node = await start(nursery, network(2, NetworkConfig(bootstrap=tuple(dead))))
        await until(lambda: len(node.network.dialler.reports) == len(dead))
        (row,) = node.network.known_peers()
        assert row.failures == node.network.dialler.reports[0].failures
        nursery.cancel_scope.cancel()


async def test_known_peers__given_to_the_next_life__are_dialled_without_the_bootstrap() -> None:
    async with trio.open_nursery() as nursery:
        bootstrap = await start(nursery, network(1))
        config = NetworkConfig(listen=(LOOPBACK,), bootstrap=bootstrap.addresses)
        friend = await start(nursery, network(2, config))
        first_life = await start(nursery, network(3, NetworkConfig(bootstrap=bootstrap.addresses)))
        await until(lambda: friend.peer in first_life.peers())
        rows = first_life.network.known_peers()
        await first_life.stop()
        await bootstrap.stop()
        second_life = network(3, NetworkConfig(), known_peers=rows)
        node = await start(nursery, second_life)
        await until(lambda: friend.peer in node.peers())
        nursery.cancel_scope.cancel()


async def test_two_islands__same_bootstrap_comes_back__they_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "BOOTSTRAP_CHECK_S", 0.3)
    (address,) = fixed_addresses(range(1, 2))
    async with trio.open_nursery() as nursery:
        islands = []
        for number in (2, 4):
            config = NetworkConfig(listen=(LOOPBACK,), bootstrap=(address,), outbound_target=1)
            first = await start(nursery, network(number, config))
            config = NetworkConfig(bootstrap=(address, *first.addresses), outbound_target=1)
            second = await start(nursery, network(number + 1, config))
            await until(second.connected)
            islands += [first, second]
        bootstrap = await start(nursery, network(1, NetworkConfig(listen=(replace(address, peer=None),))))
        await until(lambda: is_connected([bootstrap, *islands]), within_s=15.0)
        nursery.cancel_scope.cancel()


async def test_outbound_session__ends_by_a_bug_of_ours__others_stay(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1))
        config = NetworkConfig(bootstrap=listener.addresses)

        async def fail(*_arguments: object) -> None:
            raise RuntimeError("bug")

        monkeypatch.setattr(overlay.Dialler, "_try_addresses", fail)
        with caplog.at_level(logging.CRITICAL, "sfnode"):
            node = await start(nursery, network(2, config))
            await until(lambda: node.network.slips.state.count == 1)
        assert not node.stopped.is_set()
        nursery.cancel_scope.cancel()


async def test_anchors__newcomers_before_the_end__do_not_take_the_places_of_those_that_lasted() -> None:
    async with trio.open_nursery() as nursery:
        others = [await start(nursery, network(number)) for number in range(1, 6)]
        node = await start(nursery, network(9, NetworkConfig(bootstrap=others[0].addresses, outbound_target=2)))
        await until(lambda: others[0].peer in node.peers())
        node.network._exchange.found_nearby(others[1].addresses[0])
        await until(lambda: others[1].peer in node.peers())
        newest = max(row.last_success_unix_ms for row in node.network.known_peers())
        for late in others[2:]:  # met after those two, and however often
            node.network.book.succeeded(late.peer, parse_address("/ip4/192.0.2.1/tcp/1"), unix_ms=newest + 1)
        await until(lambda: 1_000 * time.time() > newest + 2)
        await node.stop()
        again = AddressBook(own_peer=node.peer, bootstrap=(), chance=random.Random(1))
        again.restore(node.network.known_peers())
        assert set(again.due(0.0, exclude=frozenset())[:2]) == {others[0].peer, others[1].peer}
        nursery.cancel_scope.cancel()


async def test_two_islands__bootstrap_is_full__they_merge_through_its_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "BOOTSTRAP_CHECK_S", 0.2)
    monkeypatch.setattr(bounds, "REFUSED_S", 0.1)
    monkeypatch.setattr(bounds, "EXCHANGE_START_S", 600.0)
    async with trio.open_nursery() as nursery:
        bootstrap = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), inbound_max=1)))
        config = NetworkConfig(listen=(LOOPBACK,), bootstrap=bootstrap.addresses, outbound_target=1)
        inside = await start(nursery, network(2, config))
        await until(lambda: inside.peer in bootstrap.peers())
        friend = await start(nursery, network(3))
        known = PeerRow(
            peer=friend.peer,
            addresses=(friend.addresses[0].transport,),
            last_success_unix_ms=1,
            failures=0,
            is_bootstrap=False,
        )
        outside = network(4, NetworkConfig(bootstrap=bootstrap.addresses, outbound_target=1), known_peers=(known,))
        node = await start(nursery, outside)
        await until(lambda: friend.peer in node.peers())
        await until(lambda: inside.peer in node.peers(), within_s=10.0)
        nursery.cancel_scope.cancel()


async def test_bootstrap_check__all_places_taken__the_youngest_that_is_not_a_bootstrap_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "BOOTSTRAP_CHECK_S", 0.2)
    (address,) = fixed_addresses(range(1, 2))
    async with trio.open_nursery() as nursery:
        others = [await start(nursery, network(number)) for number in range(2, 5)]
        config = NetworkConfig(bootstrap=(address,), outbound_target=3, outbound_max=3)
        node = await start(nursery, network(9, config))
        for other in others:
            node.network._exchange.found_nearby(other.addresses[0])
            await until(lambda other=other: other.peer in node.peers())  # type: ignore[misc]  # called at once
        bootstrap = await start(nursery, network(1, NetworkConfig(listen=(replace(address, peer=None),))))
        await until(lambda: bootstrap.peer in node.peers(), within_s=10.0)
        assert {others[0].peer, others[1].peer} <= node.peers()
        gone = [event.reason for event in others[2].disconnected()]
        assert "making room for a bootstrap" in gone[0]
        nursery.cancel_scope.cancel()


async def test_dialled__too_many_of_one_network__others_take_their_places_as_they_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On Linux all of 127/8 is this machine: 127.1/16 and 127.2/16 stand for two networks."""
    monkeypatch.setattr(ip_groups, "public_group_of", ip_group_of)
    crowd, elsewhere = (
        [parse_address(f"/ip4/127.1.0.{n}/tcp/0") for n in range(1, 6)],
        [parse_address(f"/ip4/127.{n}.0.1/tcp/0") for n in (2, 3)],
    )
    skip_without(*crowd, *elsewhere)
    async with trio.open_nursery() as nursery:
        listeners = [
            await start(nursery, network(number, NetworkConfig(listen=(address,))))
            for number, address in enumerate((*crowd, *elsewhere), start=1)
        ]
        node = await start(nursery, network(20, NetworkConfig(outbound_target=4, outbound_max=5)))

        def learn(*found: Node) -> None:
            for other in found:
                node.network._exchange.found_nearby(other.addresses[0])

        learn(*listeners[:5])
        await until(lambda: len(node.peers()) == 4)  # nobody is refused while nobody else is known
        learn(*listeners[5:])
        others = {listener.peer for listener in listeners[5:]}
        await until(lambda: others <= node.peers() and len(node.peers()) == 4)
        nursery.cancel_scope.cancel()


async def test_bootstraps__reached_in_one_life__are_named_to_the_next() -> None:
    async with trio.open_nursery() as nursery:
        bootstrap = await start(nursery, network(1))
        dead = fixed_addresses(range(7, 8))
        node = await start(nursery, network(2, NetworkConfig(bootstrap=(*bootstrap.addresses, *dead))))
        await until(node.connected)
        saved = node.network.known_peers()
        nursery.cancel_scope.cancel()
    again = network(3, NetworkConfig(), known_peers=saved).book
    assert {row.peer for row in again.rows() if row.is_bootstrap} == {bootstrap.peer} < {row.peer for row in saved}
    assert not network(4, NetworkConfig(neighbours_fixed=True), known_peers=saved).book.is_bootstrap(bootstrap.peer)


# --- peer exchange


async def test_exchange__neighbour_was_frozen_and_answers_two_questions_at_once__both_count_and_no_third(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a laptop that wakes up: its neighbours have asked again meanwhile."""
    monkeypatch.setattr(bounds, "EXCHANGE_START_S", 3_600.0)
    async with trio.open_nursery() as nursery, running_host(2) as sleeper:
        asker = await start(nursery, network(1))
        channel = Channel(await sleeper.dial(asker.addresses[0]), CALM, Traffic())
        await exchange_hello(channel, own_hello(run_id=RUN_ID, agent="sleeper", listen=(), head_step=0))
        await until(lambda: asker.peers() == {sleeper.peer})
        exchange = asker.network._exchange
        await until(lambda: exchange._awaited[sleeper.peer] == 1)
        exchange._ask_next.clear()
        exchange.ask()
        await channel.send_now(Peers(peers=()), Peers(peers=()))
        await until(lambda: not exchange._awaited[sleeper.peer])
        assert asker.peers() == {sleeper.peer}
        await channel.send_now(Peers(peers=()))
        await until(lambda: not asker.peers())
        assert asker.disconnected()[0].reason == "unrequested: peers that were not asked for"
        nursery.cancel_scope.cancel()


def test_statistics__looked_at_each_second__does_not_list_the_address_book() -> None:
    """That took 6 ms for a thousand peers, to learn whether there was one."""
    known = network(2, NetworkConfig(bootstrap=tuple(fixed_addresses(range(3, 4)))))
    with mock.patch.object(AddressBook, "rows", side_effect=AssertionError):
        assert known.statistics().expects_peers and not network(1).statistics().expects_peers
