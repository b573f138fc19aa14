"""The basis of a dense core over the wire: served to observers within bounds, fetched from any peer that has it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field

import pytest
import trio

from protocol.crypto import Signer
from protocol.errors import OperatorError
from protocol.framing import frame
from protocol.limits import PART_BYTES_MAX
from protocol.run.manifest import Manifest, basis_bytes
from protocol.wire import Bye, FilePart, FileRequest, ManifestPart, Message, encode
from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.addresses import Address, peer_of_author
from sfnode.network.reports import DialReport
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_download import Download, Wanted, fetch
from sfnode.network.sessions.handshake import OBSERVER_RUN_ID, RefusedError, await_hello, exchange_hello, own_hello
from sfnode.network.transport.host import Host
from sfnode.network.transport.link import Link, LinkBrokenError
from tests.support.manifests import small_manifest
from tests.support.network_nodes import (
    CALM,
    HELLO,
    LOOPBACK,
    address_of,
    dial,
    network,
    read_to_end,
    running_host,
    start,
    until,
)

OUTPUTS, INPUTS = 24, 40_000
BASIS = hashlib.shake_256(b"basis").digest(19 + 2 * OUTPUTS + 8 * INPUTS)  # ten parts
PARTS = -(-len(BASIS) // PART_BYTES_MAX)


@dataclass
class Source:
    """A basis in memory that notes what is read of it."""

    data: bytes = BASIS
    read_s: float = 0.0  # that one part takes
    offsets: list[int] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.data)

    def read(self, offset: int, bytes_max: int) -> bytes:
        self.offsets.append(offset)
        time.sleep(self.read_s)
        return self.data[offset : offset + bytes_max]


class Unreadable(Source):
    """The disk is gone."""

    def read(self, offset: int, bytes_max: int) -> bytes:
        raise OSError("input/output error")


HASH = hashlib.sha256(BASIS).digest()


def run_of(data: bytes) -> Manifest:
    """A run whose basis is ``data``, by length and hash."""
    tensor = {"name": "a", "kind": "matrix", "rows": OUTPUTS, "cols": INPUTS}
    digest = hashlib.sha256(data).hexdigest()
    manifest = small_manifest(core="dense", core_rows=1, rank=8, basis_sha256=digest, tensors=[tensor])
    assert basis_bytes(manifest) == len(data) == len(BASIS)
    return manifest


@dataclass
class Fetch:
    """One download and what was told of it."""

    progress: list[tuple[int, int]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    rests_s: list[float] = field(default_factory=list)

    async def run(self, *addresses: Address, data: bytes = BASIS, limit_s: float = 10.0) -> bytes:
        download = Download(Wanted.basis(run_of(data)), lambda *told: self.progress.append(told))
        with trio.fail_after(limit_s):
            return await fetch(download, addresses, on_failure=self._note)

    def _note(self, report: DialReport) -> None:
        self.reasons.append(report.reason)
        self.rests_s.append(report.retry_in_s)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "BACKOFF_BOOTSTRAP_MAX_S", 0.01)


Answer = Callable[[Channel, int], Awaitable[None]]


def serving(number: int, answer: Answer) -> AbstractAsyncContextManager[Host]:
    """A node of its own making: answers an observer's hello, then lets ``answer`` see the offset of each request."""

    async def serve(link: Link) -> None:
        channel = Channel(link, CALM, Traffic())
        try:
            await await_hello(channel)
            await channel.send_now(HELLO)
            while (received := await channel.receive_untrusted()) is not None:
                if isinstance(received, Bye):
                    return
                assert isinstance(received, FileRequest)
                await answer(channel, received.offset)
        except (LinkBrokenError, EOFError):
            pass  # the other side has left, or ``answer`` has had enough
        finally:
            await link.aclose()

    return running_host(number, serve)


def part(data: bytes, offset: int) -> FilePart:
    return FilePart(total=len(data), offset=offset, data=data[offset : offset + PART_BYTES_MAX])


# --- fetching


async def test_fetch_basis__node_serves_it__whole_with_progress() -> None:
    source, fetched = Source(), Fetch()
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1, basis=source))
        assert await fetched.run(*listener.addresses) == BASIS
        assert not listener.events
        nursery.cancel_scope.cancel()
    assert source.offsets == list(range(0, len(BASIS), PART_BYTES_MAX))
    assert [told[0] for told in fetched.progress] == [*source.offsets[1:], len(BASIS)]
    assert {told[1] for told in fetched.progress} == {len(BASIS)} and not fetched.reasons


async def test_fetch_basis__first_peer_breaks_off__second_goes_on_where_it_ended() -> None:
    async def three_parts(channel: Channel, offset: int) -> None:
        if offset >= 3 * PART_BYTES_MAX:
            raise EOFError
        await channel.send_now(part(BASIS, offset))

    source, fetched = Source(), Fetch()
    async with trio.open_nursery() as nursery, serving(9, three_parts) as broken:
        listener = await start(nursery, network(1, basis=source))
        assert await fetched.run(address_of(broken), *listener.addresses) == BASIS
        nursery.cancel_scope.cancel()
    # a connection that is dropped may take parts along that were not read yet
    assert source.offsets == list(range(source.offsets[0], len(BASIS), PART_BYTES_MAX))
    assert len(source.offsets) < PARTS and len(fetched.reasons) == 1


async def test_fetch_basis__nobody_answers__only_the_last_of_a_round_is_said_to_be_waited_after() -> None:
    """It said of each that the next try came in some seconds, and tried the next at once."""
    peers = (peer_of_author(Signer(bytes([number]) * 32).author) for number in (1, 2))
    nobody = [Address(kind="ip4", host="127.0.0.1", port=1, peer=peer) for peer in peers]
    fetched = Fetch()
    with pytest.raises(trio.TooSlowError):
        await fetched.run(*nobody, limit_s=0.5)
    assert len(fetched.rests_s) >= 4
    assert not any(fetched.rests_s[0::2]) and all(fetched.rests_s[1::2])


async def test_fetch_basis__peer_leaves_before_the_thanks__what_it_gave_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node that gave its last part and left was called unreachable, and all was fetched again."""
    send_now = Channel.send_now

    async def send(channel: Channel, *messages: Message) -> None:
        if any(isinstance(message, Bye) for message in messages):
            raise LinkBrokenError("the connection was lost while writing")
        await send_now(channel, *messages)

    monkeypatch.setattr(Channel, "send_now", send)
    source, fetched = Source(), Fetch()
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1, basis=source))
        assert await fetched.run(*listener.addresses) == BASIS
        nursery.cancel_scope.cancel()
    assert not fetched.reasons


async def test_fetch_basis__first_peer_lies__said_so_and_begun_anew_with_the_next() -> None:
    lie = BASIS[:-1] + b"\0"

    async def lying(channel: Channel, offset: int) -> None:
        await channel.send_now(part(lie, offset))

    source, fetched = Source(), Fetch()
    async with trio.open_nursery() as nursery, serving(9, lying) as liar:
        listener = await start(nursery, network(1, basis=source))
        assert await fetched.run(address_of(liar), *listener.addresses) == BASIS
        nursery.cancel_scope.cancel()
    assert fetched.reasons == ["what came is not the run's basis: another hash. Starting again"]
    assert source.offsets[0] == 0 and len(source.offsets) == PARTS


async def test_fetch_basis__first_peer_spoils_each_try_with_one_part__comes_from_the_second_alone() -> None:
    """Nobody can tell which part was false: it went on so for ever."""

    async def spoil(channel: Channel, offset: int) -> None:
        if offset > 0:
            raise EOFError
        await channel.send_now(part(bytes(len(BASIS)), 0))

    source, fetched = Source(), Fetch()
    async with trio.open_nursery() as nursery, serving(9, spoil) as liar:
        listener = await start(nursery, network(1, basis=source))
        assert await fetched.run(address_of(liar), *listener.addresses) == BASIS
        nursery.cancel_scope.cancel()
    assert [reason for reason in fetched.reasons if "another hash" in reason] == fetched.reasons[1:2]
    assert source.offsets == [*range(PART_BYTES_MAX, len(BASIS), PART_BYTES_MAX), *range(0, len(BASIS), PART_BYTES_MAX)]


async def test_fetch_basis__first_peer_crawls__the_second_goes_on_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part every ten seconds was enough: an hour for each ten megabytes."""
    monkeypatch.setattr(bounds, "LEAST_PACE_S", 0.5)

    async def crawl(channel: Channel, offset: int) -> None:
        await trio.sleep(2.0)
        await channel.send_now(part(BASIS, offset))

    source, fetched = Source(), Fetch()
    async with trio.open_nursery() as nursery, serving(9, crawl) as slow:
        listener = await start(nursery, network(1, basis=source))
        assert await fetched.run(address_of(slow), *listener.addresses) == BASIS
        nursery.cancel_scope.cancel()
    assert fetched.reasons == ["it gives less than 50 kB/s. Trying another node"]
    assert source.offsets[0] == PART_BYTES_MAX


async def test_fetch_basis__the_only_peer_crawls__is_borne(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LEAST_PACE_S", 0.0)
    monkeypatch.setattr(bounds, "OBSERVER_BYTES_PER_S_MIN", 1e12)
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1, basis=Source()))
        assert await Fetch().run(*listener.addresses[:1]) == BASIS
        nursery.cancel_scope.cancel()


async def test_fetch_basis__all_peers_are_slow__less_is_enough_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LEAST_PACE_S", 0.0)

    async def crawl(channel: Channel, offset: int) -> None:
        await trio.sleep(0.1)
        await channel.send_now(part(BASIS, offset))

    monkeypatch.setattr(bounds, "OBSERVER_BYTES_PER_S_MIN", 4.0 * PART_BYTES_MAX / 0.1)
    fetched = Fetch()
    async with serving(8, crawl) as first, serving(9, crawl) as second:
        assert await fetched.run(address_of(first), address_of(second)) == BASIS
    assert len(fetched.reasons) >= 4 and all("gives less than" in reason for reason in fetched.reasons)


@pytest.mark.parametrize("source", [None, Unreadable()], ids=["no basis", "unreadable file"])
async def test_fetch_basis__node_has_none__says_so_and_the_next_is_asked(source: Source | None) -> None:
    fetched = Fetch()
    async with trio.open_nursery() as nursery:
        without = await start(nursery, network(2, basis=source))
        listener = await start(nursery, network(1, basis=Source()))
        assert await fetched.run(*without.addresses, *listener.addresses) == BASIS
        assert await fetch(Download(Wanted.manifest(None)), without.addresses)
        nursery.cancel_scope.cancel()
    assert fetched.reasons == ["it said bye instead of sending the basis: no basis here"]


@pytest.mark.parametrize(
    "answered",
    [
        FilePart(total=len(BASIS), offset=PART_BYTES_MAX, data=BASIS[:PART_BYTES_MAX]),
        FilePart(total=len(BASIS), offset=0, data=BASIS[: PART_BYTES_MAX - 1]),
        FilePart(total=len(BASIS), offset=0, data=b""),
    ],
    ids=["another place", "too short", "empty"],
)
async def test_fetch_basis__part_that_does_not_fit__is_refused(answered: FilePart) -> None:
    async def answer(channel: Channel, offset: int) -> None:
        await channel.send_now(answered)

    fetched = Fetch()
    async with trio.open_nursery() as nursery, serving(9, answer) as liar:
        listener = await start(nursery, network(1, basis=Source()))
        assert await fetched.run(address_of(liar), *listener.addresses) == BASIS
        nursery.cancel_scope.cancel()
    assert len(fetched.reasons) == 1 and fetched.reasons[0].startswith("message_field: basis part")


def test_fetch_snapshot__authors_attest_another_length__is_no_fault_of_the_peer_that_gives_it() -> None:
    """Three liars had each honest giver banned for a day: they attested the right hash, and a byte more."""
    download = Download(Wanted.snapshot(hashlib.sha256(BASIS).hexdigest(), len(BASIS) + 1))
    with pytest.raises(RefusedError, match=f"has {len(BASIS)} bytes, and authors attest {len(BASIS) + 1}"):
        download._add_untrusted(part(BASIS, 0))


async def test_fetch_basis__something_else_comes__is_refused() -> None:
    async def answer(channel: Channel, offset: int) -> None:
        await channel.send_now(ManifestPart(total=1, offset=0, data=b"x"))

    fetched = Fetch()
    async with trio.open_nursery() as nursery, serving(9, answer) as liar:
        listener = await start(nursery, network(1, basis=Source()))
        assert await fetched.run(address_of(liar), *listener.addresses) == BASIS
        nursery.cancel_scope.cancel()
    assert len(fetched.reasons) == 1 and "ManifestPart instead of the basis" in fetched.reasons[0]


async def test_fetch_basis__no_address__operator_error() -> None:
    with pytest.raises(OperatorError, match="no bootstrap address"):
        await Fetch().run()


# --- serving


async def test_observer__slower_than_it_may_be__is_cut_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "OBSERVER_S", 0.2)
    monkeypatch.setattr(bounds, "OBSERVER_BYTES_PER_S_MIN", 1e12)
    source, fetched = Source(read_s=0.05), Fetch()
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1, basis=source))
        assert await fetched.run(*listener.addresses) == BASIS
        nursery.cancel_scope.cancel()
    assert len(fetched.reasons) >= 2 and len(set(source.offsets)) == PARTS


async def test_observer__takes_a_basis_at_the_slowest_pace__has_time_for_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "OBSERVER_S", 0.2)
    monkeypatch.setattr(bounds, "OBSERVER_BYTES_PER_S_MIN", PART_BYTES_MAX / 0.1)
    fetched = Fetch()
    async with trio.open_nursery() as nursery:
        listener = await start(nursery, network(1, basis=Source(read_s=0.05)))
        assert await fetched.run(*listener.addresses) == BASIS
        nursery.cancel_scope.cancel()
    assert not fetched.reasons


async def test_observer__asks_for_the_basis_again_and_again__gets_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "OBSERVER_BYTES_MAX", 3 * PART_BYTES_MAX)
    source = Source()
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as stranger:
        listener = await start(nursery, network(1, basis=source))
        link = await dial(stranger, listener)
        channel = Channel(link, CALM, Traffic())
        await exchange_hello(channel, own_hello(run_id=OBSERVER_RUN_ID, agent="", listen=(), head_step=0))
        received: object = True
        with trio.fail_after(5.0), suppress(LinkBrokenError):
            while received is not None:
                await channel.send_now(FileRequest(sha256=HASH, offset=0))
                received = await channel.receive_untrusted()
        nursery.cancel_scope.cancel()
    assert PARTS + 2 <= len(source.offsets) <= PARTS + 3


async def test_observer__asks_beyond_the_end__gets_an_empty_part() -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as stranger:
        listener = await start(nursery, network(1, basis=Source()))
        channel = Channel(await dial(stranger, listener), CALM, Traffic())
        await exchange_hello(channel, own_hello(run_id=OBSERVER_RUN_ID, agent="", listen=(), head_step=0))
        await channel.send_now(FileRequest(sha256=HASH, offset=2**32 - 1))
        received = await channel.receive_untrusted()
        assert received == FilePart(total=len(BASIS), offset=2**32 - 1, data=b"")
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("message", [FileRequest(sha256=HASH, offset=0), FilePart(total=1, offset=0, data=b"x")])
async def test_neighbour__asks_for_the_basis_or_sends_it__is_cut(message: Message) -> None:
    async with trio.open_nursery() as nursery, running_host(9, is_listening=False) as stranger:
        listener = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,)), basis=Source()))
        link = await dial(stranger, listener)
        await link.send_all(frame(encode(HELLO)))
        await until(listener.connected)
        await link.send_all(frame(encode(message)))
        await until(listener.disconnected)
        assert "between neighbours" in listener.disconnected()[0].reason
        await read_to_end(link)
        nursery.cancel_scope.cancel()
