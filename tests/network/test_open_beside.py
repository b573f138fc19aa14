"""A stream beside a session: a neighbour that answers its negotiation with garbage ends nothing but the stream."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from libp2p.host.ping import ID as PING

from sfnode.network.network_config import NetworkConfig
from sfnode.network.sessions.file_download import Download, Wanted
from sfnode.network.sessions.handshake import RefusedError
from tests.support.network_nodes import address_of, network, running_host, start, until

HEADER = b"\x13/multistream/1.0.0\n"
ANSWERS = {
    "a name that is not UTF-8": b"\x02\xff\n",
    "that name after the header": HEADER + b"\x02\xff\n",
    "a length without end": HEADER + b"\xff" * 12,
    "a length that never comes": HEADER + b"\x20/sfn",
    "no newline": HEADER + b"\x03abc",
    "another protocol": HEADER + b"\x09/other/1\n",
    "an empty name": HEADER + b"\x00",
    "nothing, and the end": b"",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=[name.replace(" ", "_") for name in ANSWERS])
async def test_open_beside__neighbour_answers_with_garbage__is_no_stream(answer: bytes) -> None:
    """An exception of any kind here once went through the fetcher into the daemon's nursery, and ended the node."""

    async def answer_once(stream: object) -> None:
        muxed: Any = stream
        await muxed.write(answer)
        await muxed.close()

    async with running_host(1) as node, running_host(2) as neighbour:
        link = await node.dial(address_of(neighbour))
        held: list[str] = []
        node.on_garbage = lambda peer, _reason: held.append(peer)
        neighbour._swarm.set_stream_handler(answer_once)
        with trio.fail_after(5.0):
            assert await node.open_beside(link, PING) is None
        assert bool(held) == (b"\xff\n" in answer), "a name that is no text; the rest is what a lost line looks like"


async def test_open_beside__two_connections_to_one_peer__takes_that_of_the_link() -> None:
    async with running_host(1) as node, running_host(2) as neighbour:
        link, newer = await node.dial(address_of(neighbour)), await node.dial(address_of(neighbour))
        opened = await node.open_beside(link, PING)
        assert opened is not None and opened.muxed is link.muxed
        await link.aclose()
        assert await node.open_beside(link, PING) is None, "its connection has ended, whatever others there are"
        assert await node.open_beside(newer, PING) is not None


async def test_download__bug_on_one_neighbours_stream__is_refused_and_counted_as_a_slip(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RefusedError alone leaves a download: a fetcher goes on to the next neighbour."""

    async def fail(_self: object, _channel: object) -> bytes:
        raise KeyError("bug")

    monkeypatch.setattr(Download, "run", fail)
    async with trio.open_nursery() as nursery:
        giver = await start(nursery, network(1))
        node = await start(nursery, network(2, NetworkConfig(bootstrap=giver.addresses)))
        await until(lambda: giver.peer in node.peers())
        with pytest.raises(RefusedError, match="a fault of its own"):
            async with node.network.neighbour_files.asking(giver.peer) as ask:
                await ask(Download(Wanted.piece("ab" * 32, 5)))
        assert node.network.slips.state.count == 1 and giver.peer in node.peers()
        nursery.cancel_scope.cancel()
