"""Real nodes and bad peers: bootstraps that are down, foreign or lying, and garbage of every kind."""

from __future__ import annotations

import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from protocol.crypto.keys import Signer
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import Manifest
from protocol.wire import Records
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.addresses import parse_bootstrap, peer_of_author
from sfnode.network.transport.link import LinkBrokenError
from sfnode.storage.data_directory import decode_run_file
from tests.support.cli_calls import assert_teaches, call
from tests.support.daemons import demo_run, free_port, log_verify, write_run
from tests.support.network_nodes import ignore, network, running_host, seed, start, until
from tests.support.patience import within
from tests.support.running_nodes import Joins, address_in, stop, wait_for_updates, wait_until

pytest_plugins = ("tests.support.node_fixtures",)
pytestmark = pytest.mark.process


# --- bootstraps -------------------------------------------------------------------------------------------------


def test_join__bootstrap_comes_up_later__is_told_of_and_found(
    run_file: Path, paced: Path, joins: Joins, tmp_path: Path
) -> None:
    port = free_port()
    address = address_in(tmp_path / "bootstrap", port)
    late = joins("late", "--bootstrap", address, "--worker-socket", paced)
    failure = late.wait_for_event("dial_failed")
    assert (failure["address"], failure["reason"]) == (address, "connection refused")
    bootstrap = joins("bootstrap", "--run", run_file, "--listen", f"/ip4/127.0.0.1/tcp/{port}", "--relay")
    late.wait_for_event("started")
    late.wait_for_event("peer_joined")
    wrong_model = call("join", "--bootstrap", address, "--data-dir", tmp_path / "wrong", "--model", "facebook/opt-125m")
    assert_teaches(wrong_model, "--model facebook/opt-125m", "not the run's model", "embedded:tiny-opt")
    wait_for_updates(late)
    stop(late, signal.SIGTERM)  # while it trains
    stop(bootstrap, signal.SIGINT)  # while it serves
    verified = log_verify(tmp_path / "bootstrap")
    assert verified["ok"] and verified["updates"] >= 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says what a process takes")
def test_join__takes_more_memory_than_it_may__says_so_and_lets_no_newcomer_in(
    run_file: Path, joins: Joins, tmp_path: Path
) -> None:
    port = free_port()
    listening = ("--run", run_file, "--listen", f"/ip4/127.0.0.1/tcp/{port}", "--relay")
    full = joins("full", *listening, "--memory-max", 1)
    told = full.wait_for_event("memory")
    assert told["is_full"] and told["resident_bytes"] > told["bytes_max"] >= 1 << 20
    newcomer = joins("newcomer", "--bootstrap", address_in(tmp_path / "full", port), "--relay")
    assert newcomer.wait_for_event("dial_failed")["reason"] == "full"
    assert "no newcomer is let in" in call("status", "--data-dir", tmp_path / "full").stdout


def test_join__bootstraps_that_are_something_else__are_named_each_with_its_fault(
    run_file: Path, joins: Joins, tmp_path: Path
) -> None:
    write_run(demo_run(steps=8, name="another"), tmp_path / "other.run")
    port = free_port()
    right = address_in(tmp_path / "other", port)
    wrong = f"/ip4/127.0.0.1/tcp/{port}/p2p/{address_in(tmp_path / 'nobody', 1).rpartition('/')[2]}"
    joins("other", "--run", tmp_path / "other.run", "--listen", f"/ip4/127.0.0.1/tcp/{port}", "--relay").wait_for_event(
        "started"
    )
    with socket.create_server(("127.0.0.1", 0)) as web:
        web_address = (
            f"/ip4/127.0.0.1/tcp/{web.getsockname()[1]}/p2p/{address_in(tmp_path / 'web', 1).rpartition('/')[2]}"
        )
        addresses = [argument for address in (right, wrong, web_address) for argument in ("--bootstrap", address)]
        node = joins("node", "--run", run_file, "--relay", *addresses)
        connection, _ = web.accept()
        assert connection.recv(1_000)  # unread bytes would turn the end into a reset
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.close()

        def reasons() -> dict[str, str]:
            return {event["address"]: event["reason"] for event in node.events() if event["event"] == "dial_failed"}

        wait_until(lambda: len(reasons()) == 3, "three addresses that fail")
    assert "other run" in reasons()[right] or "another run" in reasons()[right], reasons()
    assert "another node answers there" in reasons()[wrong]
    assert "perhaps that is no sfnode node" in reasons()[web_address] or "reset" in reasons()[web_address]
    stop(node, signal.SIGTERM)


async def test_join__bootstrap_that_sends_a_bad_manifest__is_refused(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        liar = await start(nursery, network(1))
        command = [
            sys.executable,
            "-m",
            "sfnode",
            "join",
            "--bootstrap",
            str(liar.addresses[0]),
            "--data-dir",
            str(tmp_path),
        ]
        run = partial(trio.run_process, command, capture_stdout=True, capture_stderr=True, check=False)
        result = await within(30.0, run)
        nursery.cancel_scope.cancel()
    assert result.returncode == 1
    assert result.stderr.startswith(b"Error: the bootstrap sent a bad manifest: ")
    assert result.stderr.endswith(b"Use another bootstrap\n")


def test_join__log_level__shows_what_is_as_important_or_more(run_file: Path, joins: Joins, tmp_path: Path) -> None:
    write_run(demo_run(steps=8, name="another"), tmp_path / "other.run")
    ports = {level: free_port() for level in ("debug", "info", "error")}
    bootstraps = [part for level, port in ports.items() for part in ("--bootstrap", address_in(tmp_path / level, port))]
    nodes = {
        level: joins(
            level, "--run", run_file, "--relay", "--listen", f"/ip4/127.0.0.1/tcp/{port}", "--log-level", level
        )
        for level, port in ports.items()
    }
    stranger = joins("stranger", "--run", tmp_path / "other.run", "--relay", *bootstraps)
    nodes["debug"].wait_for_event("inbound_refused")

    def refusing() -> set[object]:
        return {event["address"] for event in stranger.events() if "run" in str(event.get("reason"))}

    wait_until(lambda: len(refusing()) == 3, "three refusals")
    for node in nodes.values():
        assert node.stop() == 0
    told = {level: {event["event"] for event in node.events()} for level, node in nodes.items()}
    assert "started" in told["info"] and "inbound_refused" not in told["info"]
    assert told["error"] <= {"progress"}


# --- peers ------------------------------------------------------------------------------------------------------


async def test_join__garbage_from_peers__is_rejected_and_training_goes_on(
    run_file: Path, paced: Path, joins: Joins, tmp_path: Path
) -> None:
    port = free_port()
    address = address_in(tmp_path / "node", port)
    listening = ("--listen", f"/ip4/127.0.0.1/tcp/{port}", "--log-level", "debug")  # where no repeated line is left out
    node = joins("node", "--run", run_file, *listening, "--worker-socket", paced)
    await trio.to_thread.run_sync(wait_for_updates, node)
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 500, b"\x13/multistream/1.0.0\n" + b"\xff" * 300):
        await send_raw(port, garbage)
    for number, frame in enumerate(FRAMES, start=50):
        await send_frame(number, address, frame)
    await send_unsigned(address, decode_run_file(run_file).manifest)
    dropped = await trio.to_thread.run_sync(node.wait_for_event, "peer_dropped")
    assert dropped["peer"] == peer_of_author(Signer(seed(99)).author)
    assert dropped["reason"].startswith("signature: ")
    await trio.to_thread.run_sync(wait_for_updates, node)
    assert node.status()["rejected"] == 1
    assert node.logs[-1].read_text().count('"event": "peer_rejected"') == len(FRAMES)
    await trio.to_thread.run_sync(stop, node, signal.SIGTERM)


# Too long; not msgpack; not a hello; a frame that never ends
FRAMES = (b"\xff" * 4, b"\0\0\0\5hello", b"\0\0\3\xff" + b"\x81" * 1_023, bytes(range(200, 256)) * 90)


async def send_raw(port: int, data: bytes) -> None:
    """To the port of a node, before any handshake."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        with trio.move_on_after(1.0), suppress(trio.BrokenResourceError):
            await stream.send_all(data)
            while await stream.receive_some(65_536):
                pass


async def send_frame(number: int, address: str, frame: bytes) -> None:
    """As a libp2p host that opens a session properly and then talks nonsense."""
    async with running_host(number, ignore, is_listening=False) as attacker:
        link = await attacker.dial(parse_bootstrap(address))
        with trio.move_on_after(2.0), suppress(LinkBrokenError):
            await link.send_all(frame)
            while await link.receive_some(65_536):
                pass
        await link.aclose()


async def send_unsigned(address: str, manifest: Manifest) -> None:
    """As a neighbour in the run that sends a record whose signature does not fit."""
    record = EnvelopeCodec(manifest).seal(Signer(seed(98)), 0, (32, -32, 32, -32)).record
    config = NetworkConfig(bootstrap=(parse_bootstrap(address),))
    async with trio.open_nursery() as nursery:
        attacker = await start(nursery, network(99, config, run_id=manifest.run_id))
        await until(attacker.connected)
        (victim,) = attacker.peers()
        attacker.network.sessions.send(victim, Records(request=0, data=record[:-1] + bytes([record[-1] ^ 1])))
        await until(attacker.disconnected)
        nursery.cancel_scope.cancel()
