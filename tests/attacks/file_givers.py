"""Neighbours that have a file, and give it as honest nodes do, or as slowly as a node may just bear."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Final

import trio

from protocol.errors import Reject
from protocol.limits import PART_BYTES_MAX
from protocol.wire import FilePart, FileRequest
from sfnode.model_files.pieces import PieceList
from sfnode.network.network_config import NetworkConfig, Timings
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_server import FILES_PROTOCOL, FindFile, ServedRun
from sfnode.network.sessions.handshake import RefusedError, exchange_hello, own_hello
from sfnode.network.transport.host import Host
from sfnode.network.transport.link import Link, LinkBrokenError
from tests.attacks.doors import Spent
from tests.support.daemons import JoinProcess
from tests.support.network_nodes import LOOPBACK, address_of, network_of, start

PART_S: Final = 9.0  # one second less than a node waits for a part


def finder(files: dict[str, bytes]) -> FindFile:
    """Files in memory by their hashes."""
    return lambda sha256: PieceList(data=files[sha256]) if sha256 in files else None


def has_event(node: JoinProcess, name: str) -> Callable[[], bool]:
    """Return the question whether a node has reported that."""
    return lambda: any(event["event"] == name for event in node.events())


async def until(condition: Callable[[], bool]) -> None:
    """Wait, for ever. The clock of trio must run on: attackers and honest nodes are in this process."""
    while not condition():
        await trio.sleep(0.05)


@asynccontextmanager
async def givers(run_id: bytes, files: dict[str, bytes], *, slow: int, spent: Spent) -> AsyncIterator[Sequence[str]]:
    """Addresses of ``slow`` attackers and, last, of one honest node. All have these files, by their hashes."""
    async with AsyncExitStack() as stack:
        addresses = [await stack.enter_async_context(_crawling(run_id, files, spent)) for _ in range(slow)]
        nursery = await stack.enter_async_context(trio.open_nursery())
        find = finder(files)
        run = ServedRun(run_id=run_id, manifest_bytes=b"", find_file=find, find_piece=find)
        config = NetworkConfig(listen=(LOOPBACK,), neighbours_fixed=True)
        honest = await start(nursery, network_of(secrets.randbelow(1 << 16), run, config))
        yield (*addresses, str(honest.addresses[0]))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def _crawling(run_id: bytes, files: dict[str, bytes], spent: Spent) -> AsyncIterator[str]:
    host = Host(identity_seed=secrets.token_bytes(32), on_inbound=partial(_hold_session, run_id, files, spent))
    host.serve_beside(FILES_PROTOCOL, partial(_crawl, files, spent))
    async with host.running((LOOPBACK,)):
        yield str(address_of(host))


async def _hold_session(run_id: bytes, files: dict[str, bytes], spent: Spent, link: Link) -> None:
    """With a neighbour, or with somebody who joins and asks for files in it."""
    channel = Channel(link, Timings(), Traffic())
    with suppress(LinkBrokenError, RefusedError, Reject):
        await exchange_hello(channel, own_hello(run_id=run_id, agent="slow", listen=(), head_step=0))
        await _answer(channel, files, spent)


async def _crawl(files: dict[str, bytes], spent: Spent, link: Link) -> None:
    channel = Channel(link, Timings(), Traffic())
    channel.trust()
    with suppress(LinkBrokenError, Reject):
        await _answer(channel, files, spent)


async def _answer(channel: Channel, files: dict[str, bytes], spent: Spent) -> None:
    """Give parts of files, slowly; anything else is left without an answer."""
    while (asked := await channel.receive_untrusted()) is not None:
        if isinstance(asked, FileRequest):
            await trio.sleep(PART_S)
            file = files[asked.sha256.hex()]
            part = file[asked.offset : asked.offset + PART_BYTES_MAX]
            spent.bytes += len(part)
            await channel.send_now(FilePart(total=len(file), offset=asked.offset, data=part))
