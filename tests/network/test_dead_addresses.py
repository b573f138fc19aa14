"""Addresses that do not work: how long each is waited for, and which of them the operator hears of."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import trio

from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.addresses import Address
from sfnode.network.sessions.file_download import Download, Wanted, fetch
from sfnode.node.watching.network_news import NetworkNews
from sfnode.reporter import Reporter
from tests.support.daemons import free_ports
from tests.support.network_nodes import LOOPBACK, MANIFEST, network, start, until


def dead_addresses(count: int) -> list[Address]:
    """Addresses of peers that do not exist."""
    return [replace(LOOPBACK, port=port, peer=network(90 + n).peer) for n, port in enumerate(free_ports(count))]


async def test_invented_peers__fail_one_after_the_other__leave_the_report_of_the_bootstrap_and_are_no_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each was a line in the operator's log: 163 in half a minute."""
    monkeypatch.setattr(bounds, "DIAL_REPORTS_MAX", 2)
    async with trio.open_nursery() as nursery:
        dead, *others = dead_addresses(4)
        node = await start(nursery, network(2, NetworkConfig(bootstrap=(dead,))))
        await until(lambda: node.network.dialler.reports)
        for invented in others:
            node.network._exchange.found_nearby(invented)
            await until(lambda: str(invented) in {each.address for each in node.network.dialler.reports})  # noqa: B023
        assert {report.address: report.is_expected for report in node.network.dialler.reports} == {
            str(dead): True,
            str(invented): False,
        }
        news = NetworkNews(Reporter(is_json=True, stream=io.StringIO()), label=str, agent="sfnode/0.0.0")
        news.look(node.network, node.network.statistics().memory)
        assert [each.text for each in news.latest] == [f"cannot reach {dead.transport}: connection refused"]
        assert node.network.statistics().unreached.startswith(str(dead))
        nursery.cancel_scope.cancel()


async def test_dial__two_addresses_without_answer_before_the_good_one__cost_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each took 15 s: the first neighbour came after half a minute, and the manifest, too."""
    silent = dead_addresses(2)
    connect = trio.open_tcp_stream

    async def connect_or_hang(name: str, port: int) -> trio.SocketStream:
        if port in {each.port for each in silent}:
            await trio.sleep_forever()
        return await connect(name, port)

    monkeypatch.setattr(trio, "open_tcp_stream", connect_or_hang)
    monkeypatch.setattr(bounds, "CONNECT_S", 0.1)
    async with trio.open_nursery() as nursery:
        good = await start(nursery, network(1))
        addresses = (*(replace(each, peer=good.peer) for each in silent), *good.addresses)
        node = await start(nursery, network(2, NetworkConfig(bootstrap=addresses)))
        await until(node.connected, within_s=5.0)
        assert {report.reason for report in node.network.dialler.reports} == {"connection timed out"}
        with trio.fail_after(5.0):
            assert await fetch(Download(Wanted.manifest(None)), addresses) == MANIFEST
        nursery.cancel_scope.cancel()
