"""A port of the router, by UPnP: opened, told to neighbours, taken back; and every way in which it does not work."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from sfnode.doctor import Examination
from sfnode.doctor.clock_and_port_checks import check_router
from sfnode.doctor.findings import Finding, Verdict, ok, warning
from sfnode.network import bounds, discovery
from sfnode.network.discovery import port_mapping
from sfnode.network.discovery.port_mapping import Gateway, NoMappingError, PortMapper, find_gateway
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.addresses import Address, parse_address
from sfnode.run import JoinOptions, RunSource
from tests.network.fake_router import HOST, FakeRouter, running
from tests.support.cli_calls import assert_teaches, call
from tests.support.daemons import demo_run, write_run
from tests.support.network_nodes import LOOPBACK, network, start, until

pytestmark = pytest.mark.process

LISTENING = parse_address(f"/ip4/{HOST}/tcp/4001")


@pytest.fixture(autouse=True)
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of a router that may really be there."""
    monkeypatch.setattr(bounds, "MAPPING_DISCOVER_MS", 100)
    for module in (port_mapping, discovery):
        monkeypatch.setattr(module, "find_gateway", functools.partial(find_gateway, interface=HOST))


def gateway() -> Gateway:
    return find_gateway(interface=HOST)


def test_gateway__port_is_free__is_mapped_with_a_lease_and_taken_back() -> None:
    with running(FakeRouter()) as router:
        found = gateway()
        assert (found.own_host, found.external_host, found.is_public) == (HOST, "203.0.113.77", True)
        assert found.open(4001) == found.open(4001) == 4001
        assert router.mappings == {4001: (HOST, 4001, bounds.MAPPING_LEASE_S)}
        found.close(4001)
        assert router.mappings == {}


@pytest.mark.parametrize("other", [("192.168.1.50", 4001, 0), (HOST, 22, 0)], ids=["machine", "program"])
def test_gateway__port_leads_to_another__another_port_is_taken_and_that_one_left_alone(
    other: tuple[str, int, int],
) -> None:
    with running(FakeRouter(mappings={4001: other})) as router:
        outside = gateway().open(4001)
        assert outside != 4001
        assert router.mappings == {4001: other, outside: (HOST, 4001, bounds.MAPPING_LEASE_S)}


def test_gateway__router_without_leases__maps_for_good() -> None:
    with running(FakeRouter(has_leases=False)) as router:
        gateway().open(4001)
        assert router.mappings == {4001: (HOST, 4001, 0)}


def test_gateway__every_port_is_taken__says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfnode.network.discovery.port_mapping.random.randrange", lambda *_range: 4001)
    with running(FakeRouter(mappings={4001: ("192.168.1.50", 1, 0)})), pytest.raises(NoMappingError, match="to other"):
        gateway().open(4001)


def test_gateway__no_router__says_so() -> None:
    with pytest.raises(NoMappingError, match="no router answers UPnP"):
        gateway()


@pytest.mark.parametrize("host", ["192.168.1.2", "100.64.3.3", "0.0.0.0", "", "nonsense", "203.0.113.77\x1b[1m"])
def test_gateway__own_address_of_the_router_is_not_public__is_known(host: str) -> None:
    device = SimpleNamespace(lanaddr=HOST, externalipaddress=lambda: host)
    assert not Gateway(device).is_public


# --- the node


async def report_of(*listening: Address) -> str:
    """What a node says that listens there."""
    mapper = PortMapper(listening=lambda: listening, on_mapped=lambda address: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mapper.run)
        await until(lambda: mapper.report, within_s=20.0)
        nursery.cancel_scope.cancel()
    assert mapper.report is not None and mapper.report.address is None
    return mapper.report.text


async def test_mapper__cannot_map__says_why() -> None:
    assert "no router answers UPnP" in await report_of(LISTENING)
    with running(FakeRouter(external_host="10.1.1.1")) as router:
        assert "another NAT lies in front of it" in await report_of(LISTENING)
        assert "does not listen at 127.0.0.1" in await report_of(parse_address("/ip4/192.168.7.7/tcp/1"))
        assert router.mappings == {}


async def test_mapper__router_forgets_or_gets_another_address__is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAPPING_RENEW_S", 0.01)
    mapped: list[str] = []
    with running(FakeRouter()) as router:
        mapper = PortMapper(listening=lambda: (LISTENING,), on_mapped=lambda address: mapped.append(address.transport))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mapper.run)
            await until(lambda: mapped, within_s=20.0)
            router.mappings.clear()
            await until(lambda: router.mappings, within_s=20.0)
            router.external_host = "198.51.100.3"
            await until(lambda: len(mapped) == 2, within_s=20.0)
            nursery.cancel_scope.cancel()
    assert mapped == ["/ip4/203.0.113.77/tcp/4001", "/ip4/198.51.100.3/tcp/4001"]


async def test_mapper__own_port_number_is_another_machines__one_other_port_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each renewal once took another random port, and left the one before on routers without leases."""
    monkeypatch.setattr(bounds, "MAPPING_RENEW_S", 0.01)
    mapped: list[Address] = []
    with running(FakeRouter(mappings={4001: ("192.168.1.50", 4001, 0)}, has_leases=False)) as router:
        mapper = PortMapper(listening=lambda: (LISTENING,), on_mapped=mapped.append)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mapper.run)
            await until(lambda: mapped, within_s=20.0)
            router.external_host = "198.51.100.3"  # which shows that the mapping was renewed
            await until(lambda: len(mapped) == 2, within_s=20.0)
            assert mapped[0].port == mapped[1].port and set(router.mappings) == {4001, mapped[0].port}
            nursery.cancel_scope.cancel()
        assert set(router.mappings) == {4001}


async def test_network__with_a_port_of_the_router__tells_neighbours_and_takes_it_back_at_the_end() -> None:
    with running(FakeRouter()) as router:
        async with trio.open_nursery() as nursery:
            mapped = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), port_mapping=True)))
            port = mapped.addresses[0].port
            await until(lambda: mapped.network.mapper.report, within_s=20.0)
            assert router.mappings == {port: (HOST, port, bounds.MAPPING_LEASE_S)}
            outside = f"/ip4/203.0.113.77/tcp/{port}"
            assert mapped.network.introduction.addresses[0] == parse_address(f"{outside}/p2p/{mapped.peer}")
            neighbour = await start(nursery, network(2, NetworkConfig(bootstrap=mapped.addresses)))
            both = {outside, f"/ip4/{HOST}/tcp/{port}"}
            known = neighbour.network.known_peers  # has what the introduction says, a moment after the connection
            await until(lambda: any(row.peer == mapped.peer and both <= set(row.addresses) for row in known()))
            await mapped.stop()
            assert router.mappings == {}
            nursery.cancel_scope.cancel()


async def test_mapper__router_is_gone_at_the_end__the_node_ends_all_the_same() -> None:
    mapper = PortMapper(listening=lambda: (LISTENING,), on_mapped=lambda address: None)
    async with trio.open_nursery() as nursery:
        with running(FakeRouter()):
            nursery.start_soon(mapper.run)
            await until(lambda: mapper.report, within_s=20.0)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("hangs", ["found", "open"])
async def test_mapper__router_hangs_while_the_node_ends__leaves_no_mapping(
    hangs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread, for which nobody waited any more, had the port mapped after the node had taken nothing back."""
    monkeypatch.setattr(bounds, "MAPPING_CLOSE_S", 0.05)
    begun, answers, over, mapped = threading.Event(), threading.Event(), threading.Event(), set[int]()

    def hang(where: str) -> None:
        if where == hangs:
            begun.set()
            answers.wait(20.0)

    class SlowGateway(SimpleNamespace):
        own_host, external_host, is_public, close = HOST, "203.0.113.77", True, mapped.discard

        def open(self, port: int, before: int) -> int:
            hang("open")
            mapped.add(port)
            over.set()
            return port

    def find() -> SlowGateway:
        hang("found")
        return SlowGateway()

    monkeypatch.setattr(port_mapping, "find_gateway", find)
    mapper = PortMapper(listening=lambda: (LISTENING,), on_mapped=lambda address: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mapper.run)
        await until(begun.is_set)
        nursery.cancel_scope.cancel()
    answers.set()
    if hangs == "open":
        await until(over.is_set)
    else:
        await trio.sleep(0.2)
    await until(lambda: not mapped)


@pytest.mark.parametrize(
    ("external_host", "verdict", "text"),
    [
        ("203.0.113.77", Verdict.OK, "its address is 203.0.113.77: `sfnode join --upnp` lets peers in"),
        ("10.1.1.1", Verdict.WARNING, "another NAT lies in front of it"),
    ],
)
def test_doctor__router_that_speaks_upnp__says_what_it_would_do_and_changes_nothing(
    external_host: str, verdict: Verdict, text: str
) -> None:
    with running(FakeRouter(external_host=external_host)) as router:
        found = check_router()
        assert (found.verdict, router.mappings) == (verdict, {}) and text in found.text


def test_doctor__no_router_that_speaks_upnp__is_not_a_fault() -> None:
    assert check_router().verdict is Verdict.UNKNOWN


async def test_doctor__peers_cannot_reach_the_port__asks_the_router(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Finding] = []
    options = JoinOptions(source=RunSource(), is_relay=True)
    asked = Examination(options, None, told.append, is_new=True)
    for verdict in (ok("reachable", ""), warning("reachable", "", "")):
        monkeypatch.setattr("sfnode.doctor.bootstraps.judge_reachability", lambda *_arguments, verdict=verdict: verdict)
        await asked._look_around()
    assert [finding.check for finding in told].count("router") == 1 and told[-1].check == "router"


def test_join__upnp_without_a_port__says_what_to_add(tmp_path: Path) -> None:
    write_run(demo_run(steps=2), tmp_path / "a.run")
    given = ("--run", tmp_path / "a.run", "--data-dir", tmp_path / "node", "--upnp")
    assert_teaches(call("join", *given), "--upnp", "--listen /ip4/0.0.0.0/tcp/PORT")
