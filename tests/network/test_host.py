"""The libp2p host: listening, dialling, the library in a fresh process. Some of it guards work-arounds, too."""

from __future__ import annotations

import importlib.metadata
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_new_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.network.swarm import Swarm
from libp2p.peer.id import ID
from libp2p.security.insecure.transport import PLAINTEXT_PROTOCOL_ID, InsecureTransport
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE, Transport as NoiseTransport
from libp2p.stream_muxer.mplex.mplex import MPLEX_PROTOCOL_ID as MPLEX, Mplex
from libp2p.stream_muxer.yamux import yamux
from multiaddr import Multiaddr

from protocol.errors import OperatorError
from sfnode.network import bounds
from sfnode.network.policy.addresses import parse_address, parse_listen
from sfnode.network.transport import host as host_module, libp2p_patches
from sfnode.network.transport.bounded_yamux import BoundedYamux, WindowedStream
from sfnode.network.transport.host import DialError, Host
from tests import REPOSITORY
from tests.support.daemons import free_ports
from tests.support.network_nodes import address_of, check_echo, connections, echo, running_host, seed

# --- listening


async def test_listen__port_taken_by_another_program__operator_error_names_it() -> None:
    with trio.socket.socket() as other:
        await other.bind(("127.0.0.1", 0))
        other.listen(1)
        taken = f"/ip4/127.0.0.1/tcp/{other.getsockname()[1]}"
        host = Host(identity_seed=seed(1), on_inbound=echo)
        with pytest.raises(OperatorError, match=f"cannot listen on {taken}: Address already in use"):
            async with host.running((parse_listen(taken),)):
                pytest.fail("must not start")


@pytest.mark.parametrize("order", [1, -1])
async def test_listen__every_interface_and_one_of_them__operator_error_says_so(order: int) -> None:
    """It said that another program had just taken the port."""
    (port,) = free_ports(1)
    listen = [parse_listen(f"/ip4/{host}/tcp/{port}") for host in ("0.0.0.0", "127.0.0.1")]
    with pytest.raises(OperatorError, match=f"127.0.0.1/tcp/{port} and on every interface"):
        await host_module.check_can_listen(tuple(listen[::order]))


def interface(host: str, family: int = socket.AF_INET) -> list[SimpleNamespace]:
    return [SimpleNamespace(family=family, address=host)]


@pytest.mark.parametrize("way_out", [None, "10.8.0.2"])
def test_dialable__every_interface__are_a_few_of_the_interfaces_and_loopback(
    way_out: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a default route it was loopback alone, and with a tunnel the tunnel's address alone."""
    found = {
        "lo": interface("127.0.0.1"),
        "eth9": interface("192.168.9.1"),  # no cable
        "docker0": interface("172.17.0.1"),
        "wlan0": interface("169.254.3.3") + interface("fe80::1%wlan0", socket.AF_INET6) + interface("192.168.1.7"),
        "tun0": interface("10.8.0.2"),
        **{f"eth{number}": interface(f"192.168.2.{number}") for number in range(4)},
    }

    def connect(probe: socket.socket, _address: object) -> None:
        if way_out is None:
            raise OSError("network is unreachable")

    fake = type("Fake", (socket.socket,), {"connect": connect, "getsockname": lambda _self: (way_out, 1)})
    monkeypatch.setattr(host_module.socket, "socket", fake)
    monkeypatch.setattr(host_module.psutil, "net_if_addrs", lambda: found)
    monkeypatch.setattr(
        host_module.psutil, "net_if_stats", lambda: {name: SimpleNamespace(isup=name != "eth9") for name in found}
    )
    hosts = [address.host for address in host_module.dialable(parse_listen("/ip4/0.0.0.0/tcp/4001"))]
    first = ["10.8.0.2", "192.168.1.7"]
    assert hosts == [*(first if way_out else first[::-1]), "192.168.2.0", "127.0.0.1"]


async def test_listen__every_interface_of_both_families__one_port_serves_both() -> None:
    """The pair that every libp2p server is given: the listener of IPv6 took the port of IPv4, too."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    (port,) = free_ports(1)
    pair = tuple(parse_listen(f"/{kind}/tcp/{port}") for kind in ("ip4/0.0.0.0", "ip6/::"))
    for listen in (pair, pair[::-1]):
        async with Host(identity_seed=seed(1), on_inbound=echo).running(listen):
            for loopback in ("127.0.0.1", "::1"):
                await (await trio.open_tcp_stream(loopback, port)).aclose()


async def test_listen__second_host_slips_past_the_probe__still_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_probe(_address: object) -> None:
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(host_module, "check_can_listen", no_probe)
    async with running_host(1) as first:
        second = Host(identity_seed=seed(2), on_inbound=echo)
        with pytest.RaisesGroup(OperatorError, flatten_subgroups=True, allow_unwrapped=True):
            async with second.running((first.addresses[0],)):
                pytest.fail("two hosts would share one port")


# --- dialling


async def test_listen__start_fails_after_the_bind__the_port_is_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_swarm: Swarm, _address: Multiaddr) -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("as make faults made it")

    (port,) = free_ports(1)
    listen = (parse_listen(f"/ip4/127.0.0.1/tcp/{port}"),)
    with monkeypatch.context() as patches, pytest.RaisesGroup(RuntimeError, flatten_subgroups=True):
        patches.setattr(Swarm, "notify_listen", fail)
        async with Host(identity_seed=seed(1), on_inbound=echo).running(listen):
            pytest.fail("must not start")
    async with Host(identity_seed=seed(1), on_inbound=echo).running(listen):
        pass  # the next life of the node, in the same process


async def test_listen__library_hangs_as_it_starts__ends_in_start_s_and_the_next_life_listens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node waited for ever inside the library, shielded, so that Ctrl-C did not end it either (make faults)."""

    async def hang(_swarm: Swarm, _address: Multiaddr) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(bounds, "START_S", 0.2)
    (port,) = free_ports(1)
    listen = (parse_listen(f"/ip4/127.0.0.1/tcp/{port}"),)
    with monkeypatch.context() as patches, pytest.RaisesGroup(trio.TooSlowError, flatten_subgroups=True):
        patches.setattr(Swarm, "notify_listen", hang)
        async with Host(identity_seed=seed(1), on_inbound=echo).running(listen):
            pytest.fail("must not start")
    async with Host(identity_seed=seed(1), on_inbound=echo).running(listen):
        pass


async def test_dial__peer_was_down_a_moment_ago__is_tried_again_at_once() -> None:
    async with running_host(1) as gone:
        address = address_of(gone)
    async with running_host(2, is_listening=False) as dialler:
        with pytest.raises(DialError, match="connection refused"):
            await dialler.dial(address)
        back = Host(identity_seed=seed(1), on_inbound=echo)
        async with back.running((parse_listen(address.transport),)):
            started_s = trio.current_time()
            await check_echo(dialler, back)
            assert trio.current_time() - started_s < 0.6  # 0.2 s of it is closing


async def test_dial__listener_never_answers__gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "DIAL_S", 0.2)
    with trio.socket.socket() as silent:
        await silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        port = silent.getsockname()[1]
        async with running_host(1, is_listening=False) as dialler, running_host(2) as other:
            address = parse_address(f"/ip4/127.0.0.1/tcp/{port}/p2p/{other.peer}")
            with trio.fail_after(5.0), pytest.raises(DialError, match="no answer within"):
                await dialler.dial(address)
            assert not connections(dialler)


async def test_dial__another_node_answers__says_so() -> None:
    async with running_host(1) as expected, running_host(2) as other, running_host(3, is_listening=False) as dialler:
        address = parse_address(f"{other.addresses[0].transport}/p2p/{expected.peer}")
        with pytest.raises(DialError, match="another node answers there"):
            await dialler.dial(address)


async def test_dial__any_address__the_librarys_dialler_is_never_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes 250 ms at least, tries the first address only and stale ones too, and rests for a minute."""

    async def enter(*_arguments: object, **_named: object) -> None:
        pytest.fail("the library's dialler")

    for name in ("dial_peer", "dial_addr", "_dial_with_retry"):
        assert hasattr(Swarm, name)
        monkeypatch.setattr(Swarm, name, enter)
    async with running_host(1) as listener, running_host(2, is_listening=False) as dialler:
        await check_echo(dialler, listener)


async def test_muxer__dialler_offers_mplex_only__is_refused() -> None:
    keys = create_new_key_pair(seed(2))
    noise = NoiseTransport(keys, noise_privkey=create_new_noise_key_pair().private_key)
    dialler = new_host(key_pair=keys, sec_opt={NOISE: noise}, muxer_opt={TProtocol(MPLEX): Mplex})
    async with running_host(1) as victim, dialler.run(listen_addrs=[]):
        with trio.fail_after(10.0), pytest.raises(Exception, match=r"unable to connect|muxer|negotiat|upgrade"):
            await dialler.get_network().dial_addr(Multiaddr(victim.addresses[0].transport), ID.from_base58(victim.peer))
        assert not connections(victim)


async def test_host__what_it_answers__is_identify_ping_and_our_own() -> None:
    """The library's pubsub, relay and table are not used: what is not there cannot fail."""
    async with running_host(1) as host:
        served = {str(protocol) for protocol in host._host.get_mux().handlers}
    assert served == {"/ipfs/id/1.0.0", "/ipfs/ping/1.0.0", "/sfnode/1", "/sfnode/reach/1"}


async def test_security__dialler_offers_plaintext_only__is_refused() -> None:
    keys = create_new_key_pair(seed(2))
    forger = new_host(key_pair=keys, sec_opt={PLAINTEXT_PROTOCOL_ID: InsecureTransport(keys)})
    async with running_host(1) as victim, forger.run(listen_addrs=[]):
        with pytest.raises(Exception, match=r"unable to connect|security|negotiat"):
            await forger.get_network().dial_addr(Multiaddr(victim.addresses[0].transport), ID.from_base58(victim.peer))
        assert not connections(victim)


# --- the process


def test_library__other_version__operator_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.9.0")
    with pytest.raises(OperatorError, match=r"needs exactly 0\.8\.1"):
        libp2p_patches.check_library()


def test_library__patched__is_idempotent() -> None:
    libp2p_patches.patch_library()
    libp2p_patches.patch_library()
    assert yamux.YamuxStream is WindowedStream
    assert issubclass(BoundedYamux, yamux.Yamux)


SCRIPT_QUIET = """
import logging
import trio
from multiaddr import Multiaddr
from tests.support.network_nodes import address_of, check_echo, running_host
from sfnode.network.transport.host import DialError
async def main():
    async with running_host(1) as a, running_host(2) as b:
        await check_echo(b, a)
        address = address_of(a)
        await b.dial(address)
        a._swarm.get_connections()[0].muxed_conn.abort()
        await trio.sleep(0.1)
        link = await b.dial(address)
        await b._swarm.get_connections()[0].muxed_conn._write_frame(bytes([9] * 12))
        await link.send_all(b"x")
        stream = await trio.open_tcp_stream(address.host, address.port)
        await stream.send_all(b"garbage" * 100)
        await trio.sleep(0.1)
    async with running_host(2) as b:
        try:
            await b.dial(address)
        except DialError:
            pass
trio.run(main)
assert not logging.getLogger().handlers
"""

SCRIPT_WITHOUT_FASTECDSA = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "fastecdsa" else find(name, *rest)
import sfnode.network.transport.host
assert not hasattr(sys.modules["fastecdsa"], "__file__")
"""


@pytest.mark.parametrize("script", [SCRIPT_QUIET, SCRIPT_WITHOUT_FASTECDSA], ids=["connections", "without fastecdsa"])
def test_library__used_in_a_fresh_process__prints_nothing(script: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        check=False,
        text=True,
        timeout=30,
        env={"PYTHONPATH": "."},
        cwd=REPOSITORY,
    )
    assert (ended.returncode, ended.stderr, ended.stdout) == (0, "", "")
