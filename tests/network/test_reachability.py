"""Asking a peer how it sees us: what it says, whom it dials and whom never, and what a stranger can make of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from sfnode.network import bounds
from sfnode.network.policy.ip_groups import Origins, parse_proxy
from sfnode.network.transport import reachability as reach
from sfnode.network.transport.host import Host
from sfnode.network.transport.reachability import DialBack, ReachAnswer, decode_answer_untrusted
from tests.support.network_nodes import address_of, check_echo, running_host


async def ask(asker: Host, peer: Host, port: int) -> ReachAnswer | None:
    link = await asker.dial(address_of(peer))
    try:
        return await asker.ask_reach(link, port)
    finally:
        await link.aclose()


async def test_reach__question_without_a_port__is_told_how_it_is_seen() -> None:
    async with running_host(1) as peer, running_host(2, is_listening=False) as asker:
        answer = await ask(asker, peer, 0)
    assert answer is not None and answer.outcome is DialBack.NOT_ASKED
    assert answer.host == "127.0.0.1" and answer.port > 0
    assert answer.unix_ms > 1_700_000_000_000


async def test_reach__port_that_listens_and_one_that_does_not__are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "REACH_INTERVAL_S", 0.0)
    async with running_host(1) as peer, running_host(2) as asker:
        answer = await ask(asker, peer, asker.addresses[0].port)
        assert answer is not None and answer.outcome is DialBack.REACHED
        await asker.stop_listening()
        answer = await ask(asker, peer, asker.addresses[0].port)
        assert answer is not None and answer.outcome is DialBack.NOT_REACHED


async def test_reach__asked_again_at_once__dials_nobody_but_still_tells() -> None:
    async with running_host(1) as peer, running_host(2) as asker:
        outcomes = []
        for _ in range(3):
            answer = await ask(asker, peer, asker.addresses[0].port)
            outcomes.append(answer and answer.outcome)
        assert outcomes == [DialBack.REACHED, DialBack.NOT_NOW, DialBack.NOT_NOW]


async def test_reach__asked_through_the_operators_proxy__dials_no_port_of_it() -> None:
    """It told strangers which ports of the proxy are open, and that they could be reached at them."""
    proxied = Origins(proxies=(parse_proxy("127.0.0.0/8"),))
    async with running_host(1, origins=proxied) as peer, running_host(2) as asker:
        answer = await ask(asker, peer, asker.addresses[0].port)
    assert answer is not None and (answer.outcome, answer.host) == (DialBack.NOT_NOW, "127.0.0.1")


async def test_reach__many_addresses_ask__table_and_dials_stay_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    dialled: list[str] = []

    async def connect(host: str, _port: int) -> DialBack:
        dialled.append(host)
        await trio.lowlevel.checkpoint()
        return DialBack.NOT_REACHED

    monkeypatch.setattr(reach, "_can_connect", connect)
    monkeypatch.setattr(bounds, "REACH_ADDRESSES_MAX", 5)
    answering = reach.Reachability()
    outcomes = [await answering._dial_back(f"192.0.2.{number}", 80) for number in range(20)]
    assert len(dialled) == 5 and outcomes.count(DialBack.NOT_NOW) == 15
    assert len(answering._dialled_s) == 5


async def test_reach__peer_that_does_not_know_the_question__gives_no_answer() -> None:
    async with running_host(1) as peer, running_host(2, is_listening=False) as asker:
        peer._host.remove_stream_handler(reach.PROTOCOL)
        answer = await ask(asker, peer, 0)
        assert answer is None
        await check_echo(asker, peer)


async def test_reach__half_a_question__ends_the_stream_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_host(1) as peer, running_host(2, is_listening=False) as asker:
        monkeypatch.setattr(bounds, "REACH_ANSWER_S", 0.1)
        link = await asker.dial(address_of(peer))
        stream = await asker._open_stream(link.muxed, reach.PROTOCOL)
        await stream.send_all(b"\0")
        with trio.fail_after(2.0):
            assert await stream.receive_some(10) == b""
        assert peer.guard.failures == 0
        await link.aclose()
        await check_echo(asker, peer)


def answers() -> Iterator[bytes]:
    good = bytes([1]) + (5).to_bytes(8, "big") + bytes(10) + b"\xff\xff\x01\x02\x03\x04" + (700).to_bytes(2, "big")
    yield good
    yield from (good[:-1], good + b"\0", b"", b"\x04" + good[1:], b"\xff" + good[1:])


def test_reach__answers__are_decoded_strictly() -> None:
    good, *bad = answers()
    assert decode_answer_untrusted(good) == ReachAnswer(outcome=DialBack.REACHED, unix_ms=5, host="1.2.3.4", port=700)
    assert [decode_answer_untrusted(data) for data in bad] == [None] * 5
