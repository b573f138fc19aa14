"""The first words of a session: hello, refusals, and the manifest for those who are about to join."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
import trio

from protocol.errors import OperatorError
from protocol.events import PeerJoined, PeerLeft
from protocol.framing import frame
from protocol.run.manifest import sign_manifest
from protocol.wire import VERSION, Bye, Hello, Message, Peers, PeersRequest, Ping, encode
from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.addresses import parse_address, parse_bootstrap
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_download import Download, Wanted, fetch
from sfnode.network.sessions.handshake import DUPLICATE, exchange_hello, from_our_side, mismatch, refuse
from sfnode.network.transport.link import Link
from tests.support.manifests import OWNER, small_manifest
from tests.support.network_nodes import (
    CALM,
    HELLO,
    LOOPBACK,
    MANIFEST,
    QUICK,
    address_of,
    dial,
    liar,
    network,
    read_to_end,
    record,
    running_host,
    start,
    until,
)

BEFORE_HELLO = {
    "announced frame of 1,025 bytes": (1_025).to_bytes(4, "big"),
    "frame of 2 KiB": frame(bytes(2_048)),
    "ping": frame(encode(Ping(nonce=1))),
    "records": frame(encode(record(1))),
}


@pytest.mark.parametrize("first_words", BEFORE_HELLO.values(), ids=BEFORE_HELLO.keys())
async def test_stranger__says_anything_but_hello__is_cut(first_words: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as attacker:
        listener = await start(nursery, network(1))
        link = await dial(attacker, listener)
        with caplog.at_level(logging.ERROR, "sfnode"):
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


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (replace(HELLO, run_id=b"x" * 32), "other run"),
        (replace(HELLO, version=VERSION + 1), "other protocol version"),
    ],
)
async def test_handshake__other_run_or_version__is_refused_politely(hello: Hello, reason: str) -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as stranger:
        listener = await start(nursery, network(1))
        link = await dial(stranger, listener)
        channel = Channel(link, CALM, Traffic())
        await channel.send_now(hello)
        received = await channel.receive_untrusted()
        assert received is not None
        assert isinstance(received, Bye)
        assert received.reason.startswith(reason)
        assert not listener.events
        nursery.cancel_scope.cancel()


async def test_handshake__bootstrap_is_in_another_run__operator_is_told_and_it_is_not_redialled() -> None:
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1))
        config = NetworkConfig(bootstrap=listener.addresses)
        dialler = await start(nursery, network(2, config, run_id=b"x" * 32))
        await until(lambda: dialler.network.dialler.reports)
        (report,) = dialler.network.dialler.reports
        assert report.address == str(listener.addresses[0])
        assert report.reason.startswith("other run")
        assert report.retry_in_s >= bounds.BACKOFF_BOOTSTRAP_MAX_S
        nursery.cancel_scope.cancel()


async def test_handshake__long_list_of_own_addresses__hello_still_fits() -> None:
    host = f"{'a' * 60}.{'b' * 60}.example"
    announced = tuple(parse_address(f"/dns/{host}/tcp/{port}") for port in range(4_000, 4_012))
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
        assert newcomer.network.dialler.reports[0].reason == "full"
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
        assert [type(event) for event in listener.events] == [PeerJoined, PeerLeft, PeerJoined]
        await links[1].send_all(frame(encode(record(2))))
        await until(listener.messages)
        nursery.cancel_scope.cancel()


async def test_dialled_peer__names_a_newer_session_that_is_not_there__is_left_alone_for_a_minute() -> None:
    """It was dialled again at once, for ever: 1.4 dials a second."""

    async def lie(link: Link) -> None:
        await refuse(Channel(link, CALM, Traffic()), DUPLICATE)
        await link.aclose()

    async with trio.open_nursery() as nursery, running_host(1, lie) as liar_host:
        config = NetworkConfig(bootstrap=(address_of(liar_host),))
        dialler = await start(nursery, network(2, config))
        await until(lambda: dialler.network.dialler.reports)
        (report,) = dialler.network.dialler.reports
        assert report.reason == DUPLICATE
        assert report.retry_in_s >= bounds.REFUSED_S
        nursery.cancel_scope.cancel()


# --- the manifest


async def test_fetch_manifest__node_serves_it__whole_and_equal() -> None:
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1))
        assert await fetch(Download(Wanted.manifest(None)), listener.addresses) == MANIFEST
        assert not listener.events
        nursery.cancel_scope.cancel()


async def test_fetch_manifest__first_bootstrap_is_down__says_so_and_asks_the_next() -> None:
    async with trio.open_nursery() as nursery:
        gone = await start(nursery, network(2))
        await gone.stop()
        listener = await start(nursery, network(1))
        reasons: list[str] = []
        fetched = await fetch(
            Download(Wanted.manifest(None)),
            (*gone.addresses, *listener.addresses),
            on_failure=lambda report: reasons.append(f"{report.address}: {report.reason}"),
        )
        assert fetched == MANIFEST
        assert reasons == [f"{gone.addresses[0]}: connection refused"]
        nursery.cancel_scope.cancel()


async def test_fetch_manifest__nodes_of_another_run_whatever_they_say__are_refused_and_the_right_one_is_taken() -> None:
    """A fault once: whoever answered at the address decided which run was joined."""
    runs = [sign_manifest(small_manifest(steps=steps), OWNER) for steps in (40, 41)]
    wanted, other = (signed.manifest.run_id for signed in runs)
    async with trio.open_nursery() as nursery:
        honest, wrong = [
            await start(nursery, liar(number, wanted, signed.encode())) for number, signed in enumerate(runs)
        ]
        text = f"the node at {wrong.addresses[0]} serves run {other.hex()[:16]}, not {wanted.hex()[:16]}"
        with pytest.raises(OperatorError, match=text):
            await fetch(Download(Wanted.manifest(wanted)), wrong.addresses)
        reasons: list[str] = []
        fetched = await fetch(
            Download(Wanted.manifest(wanted)),
            (*wrong.addresses, *honest.addresses),
            on_failure=lambda report: reasons.append(report.reason),
        )
        assert fetched == runs[0].encode()
        assert reasons == [f"it serves run {other.hex()[:16]}, not {wanted.hex()[:16]}"]
        nursery.cancel_scope.cancel()


async def test_fetch_manifest__all_nodes_speak_another_version__operator_error_says_which_to_update() -> None:
    """An old program asked a new network for its manifest, again and again, without an end."""

    async def refuse(link: Link) -> None:
        theirs = f"other protocol version: {VERSION} there, {VERSION + 1} here; update the older node"
        await link.send_all(frame(encode(Bye(reason=theirs))))
        await link.aclose()

    async with running_host(1, refuse) as newer:
        text = f"other protocol version: {VERSION + 1} there, {VERSION} here; update the older node"
        with pytest.raises(OperatorError, match=f"the node at {address_of(newer)} refuses this one: {text}"):
            await fetch(Download(Wanted.manifest(None)), (address_of(newer),))


@pytest.mark.parametrize("address", ["/ip4/127.0.0.1/tcp/4001", "localhost:4001", "/ip4/0.0.0.0/tcp/1/p2p/x", ""])
def test_bootstrap__malformed_address__operator_error(address: str) -> None:
    with pytest.raises(OperatorError, match="bootstrap address"):
        parse_bootstrap(address)


async def test_fetch_manifest__no_address__operator_error() -> None:
    with pytest.raises(OperatorError, match="no bootstrap address"):
        await fetch(Download(Wanted.manifest(None)), ())


@pytest.mark.parametrize("message", [record(1), PeersRequest(), Peers(peers=())])
async def test_observer__asks_for_more_than_the_manifest__is_cut(
    message: Message, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as stranger:
        listener = await start(nursery, network(1))
        link = await dial(stranger, listener)
        channel = Channel(link, CALM, Traffic())
        await exchange_hello(channel, replace(HELLO, run_id=bytes(32)))
        with caplog.at_level(logging.ERROR, "sfnode"):
            await channel.send_now(message)
            assert await read_to_end(link) == b""
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("change", [{"run_id": b"\7" * 32}, {"version": VERSION + 1}])
def test_refusal__mismatch_as_the_other_side_says_it__is_turned_to_ours(change: dict[str, Any]) -> None:
    ours, theirs = HELLO, replace(HELLO, **change)
    as_they_say, as_we_see = mismatch(theirs, ours), mismatch(ours, theirs)
    assert as_they_say is not None and as_they_say != as_we_see
    assert from_our_side(as_they_say) == as_we_see


@pytest.mark.parametrize("reason", ["full", "other run", "other run: a b there, c here", "the node stops"])
def test_refusal__of_another_kind__stays_as_it_was_said(reason: str) -> None:
    assert from_our_side(reason) == reason
