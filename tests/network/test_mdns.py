"""Finding peers on the local network: packets, what of them is believed, and nodes that find each other so."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from protocol.crypto.keys import Signer
from protocol.wire import PeerId
from sfnode.network import bounds
from sfnode.network.discovery.mdns import LocalDiscovery, believable, is_local
from sfnode.network.discovery.mdns_packets import (
    Announcement,
    Query,
    decode_packet_untrusted,
    encode_announcement,
    encode_query,
    run_tag,
)
from sfnode.network.policy.addresses import Address, parse_address, peer_of_author
from sfnode.storage.key_file import IDENTITY_FILE
from tests.support.daemons import PlacedProcess, demo_run, write_run
from tests.support.network_nodes import network, seed
from tests.support.patience import wait_for_end
from tests.support.running_nodes import showing_logs, wait_until

PEER = peer_of_author(bytes(31) + b"\1")
TAG, OTHER_TAG = run_tag(bytes(32)), run_tag(b"\1" * 32)
TEXT = f"/ip4/192.168.1.5/tcp/4001/p2p/{PEER}"


# --- packets


def test_packets__query_and_announcement__are_read_as_they_were_written() -> None:
    assert decode_packet_untrusted(encode_query()) == Query()
    assert decode_packet_untrusted(encode_announcement(b"random", (TEXT, "/ip4/x"))) == Announcement(
        addresses=(TEXT, "/ip4/x")
    )
    assert len(encode_announcement(b"r" * 32, (TEXT,) * bounds.MDNS_ADDRESSES_MAX)) <= bounds.MDNS_PACKET_BYTES_MAX


def test_packets__query_in_bytes__is_that_of_the_libp2p_specification() -> None:
    expected = "000000000001000000000000" + "045f703270" + "045f756470" + "056c6f63616c" + "00" + "000c" + "0001"
    assert encode_query().hex() == expected


def test_packets__compressed_names_as_other_programs_write_them__are_read() -> None:
    """PTR in the answers; TXT with a pointer to the PTR's name among the additional records."""
    service = b"\x04_p2p\x04_udp\x05local\0"
    host = b"\x04abcd\xc0\x0c"
    ptr = service + struct.pack(">HHIH", 12, 1, 120, len(host)) + host
    at = 12 + len(service) + 10
    text = b"dnsaddr=" + TEXT.encode()
    txt = struct.pack(">H", 0xC000 | at) + struct.pack(">HHIH", 16, 0x8001, 120, len(text) + 1)
    packet = struct.pack(">HHHHHH", 0, 0x8400, 0, 1, 0, 1) + ptr + txt + bytes([len(text)]) + text
    assert decode_packet_untrusted(packet) == Announcement(addresses=(TEXT,))


GOOD = encode_announcement(b"random", (TEXT,))


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        encode_query()[:-1],
        encode_query()[:12] + b"\xc0\x0c" + encode_query()[-4:],  # a name that points at itself
        encode_query()[:12] + b"\xc0\xff" + encode_query()[-4:],  # beyond the end
        encode_query()[:12] + b"\x04_ipp\x04_tcp\x05local\0" + encode_query()[-4:],  # a printer's
        encode_query()[:12] + 17 * b"\x01a" + b"\0" + encode_query()[-4:],
        GOOD[:-1],
        GOOD[:4] + b"\xff\xff" + GOOD[6:],  # more records than it can have
        GOOD.replace(b"_p2p", b"_abc"),
        GOOD.replace(b"dnsaddr=", b"address="),
        GOOD.replace(b"192", b"\xff92"),
        GOOD + bytes(bounds.MDNS_PACKET_BYTES_MAX),
    ],
)
def test_packets__malformed_or_about_something_else__mean_nothing(packet: bytes) -> None:
    assert decode_packet_untrusted(packet) is None


def over_pointers(count: int) -> bytes:
    """An announcement whose host name goes over so many pointers, which stand in a record of no meaning before it."""
    service = b"\x04_p2p\x04_udp\x05local\0"
    data_at = 12 + 1 + 10
    targets = [data_at, *(data_at + len(service) + 2 * index for index in range(count - 1))]
    pointers = [struct.pack(">H", 0xC000 | target) for target in targets]
    data = service + b"".join(pointers[:-1])
    text = b"dnsaddr=" + TEXT.encode()
    host = b"\x04abcd" + pointers[-1]
    txt = struct.pack(">HHIH", 16, 0x8001, 120, len(text) + 1) + bytes([len(text)]) + text
    head = struct.pack(">HHHHHH", 0, 0x8400, 0, 1, 0, 1)
    return head + b"\0" + struct.pack(">HHIH", 1, 1, 120, len(data)) + data + host + txt


@pytest.mark.parametrize(("pointers", "is_read"), [(1, True), (64, True), (65, False), (500, False)])
def test_packets__a_chain_of_pointers__is_followed_for_so_many_and_no_more(pointers: int, is_read: bool) -> None:
    """32 names over 700 pointers each cost as much as 300 packets."""
    assert (decode_packet_untrusted(over_pointers(pointers)) == Announcement(addresses=(TEXT,))) is is_read


def test_packets__many_addresses__are_cut_to_a_few() -> None:
    found = decode_packet_untrusted(encode_announcement(b"random", (TEXT,) * 9))
    assert isinstance(found, Announcement) and len(found.addresses) == bounds.MDNS_ADDRESSES_MAX


# --- what is believed


@pytest.mark.parametrize(
    ("host", "expected"),
    [("10.1.2.3", True), ("169.254.7.7", True), ("127.0.0.1", True), ("8.8.8.8", False), ("x", False)],
)
def test_source__of_a_packet__counts_only_on_the_local_net(host: str, expected: bool) -> None:
    assert is_local(host) is expected


def test_believable__addresses_of_other_machines__are_left_out() -> None:
    texts = (
        TEXT,
        TEXT.replace("192.168.1.5", "192.168.1.6"),
        TEXT.replace("192.168.1.5", "127.0.0.1"),
        TEXT.replace("192.168.1.5", "0.0.0.0"),
        TEXT.replace("ip4/192.168.1.5", "dns4/localhost"),
        TEXT.partition("/p2p/")[0],
        "garbage",
    )
    assert believable(texts, "192.168.1.5") == [parse_address(TEXT)]


def discovery(found: list[Address], *, peer: PeerId = PEER) -> LocalDiscovery:
    return LocalDiscovery(peer, bytes(32), lambda: (), found.append)


def test_handle__packet_from_elsewhere_or_about_ourselves__is_passed_over() -> None:
    found: list[Address] = []
    other = TEXT.replace(PEER, peer_of_author(seed(1)))
    discovery(found)._handle(encode_announcement(b"r", (TEXT.replace("192.168.1.5", "8.8.8.8"),)), "8.8.8.8")
    discovery(found)._handle(encode_announcement(b"r", (TEXT,)), "192.168.1.5")
    assert found == []
    discovery(found)._handle(encode_announcement(b"r", (TEXT, other)), "192.168.1.5")
    assert found == [parse_address(other)]


def test_handle__announcement_of_another_run__is_passed_over_and_one_without_a_run_is_not() -> None:
    for tag, expected in ((OTHER_TAG, []), (TAG, [TEXT]), ("", [TEXT])):
        found: list[Address] = []
        asking = discovery(found, peer=peer_of_author(seed(1)))
        asking._handle(encode_announcement(b"r", (TEXT,), tag), "192.168.1.5")
        assert [str(address) for address in found] == expected


async def test_answer__many_questions_in_a_second__one_answer(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    announced: list[int] = []
    monkeypatch.setattr(LocalDiscovery, "_interfaces", lambda self: [1])
    monkeypatch.setattr(LocalDiscovery, "_announce", lambda self, index: announced.append(index))
    asked = discovery([])
    for _ in range(50):
        asked._handle(encode_query(), "192.168.1.9")
    assert announced == [1]
    await trio.sleep(bounds.MDNS_ANSWER_INTERVAL_S)
    asked._handle(encode_query(), "192.168.1.9")
    assert announced == [1, 1]


async def test_discovery__no_socket_at_its_start__tries_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A moment without file descriptors ended discovery for the node's life."""
    tries: list[float] = []

    def refuse() -> socket.socket:
        tries.append(trio.current_time())
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("sfnode.network.discovery.mdns._open_socket", refuse)
    with trio.move_on_after(5 * bounds.MDNS_QUERY_MAX_S):
        await discovery([]).run()
    assert len(tries) == 5


def test_address_book__flood_of_made_up_peers__fills_one_neighbours_share() -> None:
    node = network(1)
    for number in range(500):
        address = f"/ip4/192.168.1.5/tcp/{number + 1}/p2p/{peer_of_author(number.to_bytes(32, 'big'))}"
        node._exchange.found_nearby(parse_address(address))
    assert len(node.known_peers()) == bounds.UNVERIFIED_PER_SOURCE_MAX


# --- on a network


@contextmanager
def two_machines() -> Iterator[tuple[str, str]]:
    """Two network namespaces on one link; skips loudly where none can be made."""
    names = [f"sfmdns{uuid.uuid4().hex[:6]}{letter}" for letter in "ab"]
    links = [f"v{name[6:]}" for name in names]
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2 for network namespaces: discovery between machines was not tested")

    def ip(*arguments: str) -> bool:
        return subprocess.run(["ip", *arguments], capture_output=True, check=False).returncode == 0

    try:
        made = [ip("netns", "add", name) for name in names]
        made.append(ip("link", "add", links[0], "type", "veth", "peer", "name", links[1]))
        for number, (name, link) in enumerate(zip(names, links, strict=True), start=1):
            made.append(ip("link", "set", link, "netns", name))
            made.append(ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", link))
            made += [ip("-n", name, "link", "set", up, "up") for up in ("lo", link)]
        if not all(made):
            pytest.skip("this kernel permits no network namespaces: discovery between machines was not tested")
        yield names[0], names[1]
    finally:
        for name in names:
            ip("netns", "del", name)


@contextmanager
def node_in(namespace: str, directory: Path, *arguments: str) -> Iterator[PlacedProcess]:
    """A relay in a namespace."""
    node = PlacedProcess(directory, ["--relay", *arguments], prefix=("ip", "netns", "exec", namespace))
    node.start()
    try:
        with showing_logs([node]):
            yield node
    finally:
        node.terminate()
        assert node.process is not None
        assert wait_for_end(node.process, 10.0) == node.exit_code == 0, node.logs[-1].read_text()


def joined(node: PlacedProcess) -> set[object]:
    return {event["peer"] for event in node.events() if event["event"] == "peer_joined"}


def is_started(node: PlacedProcess) -> bool:
    return any(event["event"] == "started" for event in node.events())


@pytest.mark.process
def test_join__two_machines_on_one_link_and_no_bootstrap__find_each_other(tmp_path: Path) -> None:
    write_run(demo_run(steps=8), tmp_path / "a.run")
    run = ("--run", str(tmp_path / "a.run"))
    with (
        two_machines() as (one, two),
        node_in(one, tmp_path / "one", *run, "--listen", "/ip4/0.0.0.0/tcp/4001"),
        node_in(two, tmp_path / "two", *run) as second,
    ):
        wait_until(lambda: joined(second), "the peer in the other namespace", limit_s=30)
        key = bytes.fromhex((tmp_path / "one" / IDENTITY_FILE).read_text())
        assert joined(second) == {peer_of_author(Signer(key).author)}


@pytest.mark.process
def test_join__no_mdns__stays_alone(tmp_path: Path) -> None:
    write_run(demo_run(steps=8), tmp_path / "a.run")
    run = ("--run", str(tmp_path / "a.run"))
    with (
        two_machines() as (one, two),
        node_in(one, tmp_path / "one", *run, "--listen", "/ip4/0.0.0.0/tcp/4001"),
        node_in(two, tmp_path / "two", *run, "--no-mdns") as deaf,
    ):
        wait_until(lambda: is_started(deaf), "the start of the deaf one: it has as long as the other to find somebody")
        with node_in(two, tmp_path / "three", *run) as hearing:
            wait_until(lambda: joined(hearing), "the peer of the one that listens", limit_s=30)
            assert joined(deaf) == set()
