"""The signed manifest over the wire, in parts: served to whoever asks, fetched by a node that is about to join."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

import trio

from protocol.errors import OperatorError, Reject, RejectReason
from protocol.limits import MANIFEST_BYTES_MAX, MANIFEST_PART_BYTES_MAX
from protocol.wire import Bye, ManifestPart, ManifestRequest, Ping, Pong
from sfnode.network import limits
from sfnode.network.addresses import Address, parse_bootstrap
from sfnode.network.channel import Channel, Timings, Traffic
from sfnode.network.events import DialReport
from sfnode.network.greeting import OBSERVER_RUN_ID, RefusedError, greet, own_hello
from sfnode.network.host import DialError, Host
from sfnode.network.link import Link, LinkBrokenError


def manifest_part(manifest_bytes: bytes, offset: int) -> ManifestPart:
    """The answer to a ManifestRequest."""
    data = manifest_bytes[offset : offset + MANIFEST_PART_BYTES_MAX]
    return ManifestPart(total=len(manifest_bytes), offset=offset, data=data)


async def serve_observer(channel: Channel, manifest_bytes: bytes) -> None:
    """Answer a stranger's requests until it leaves, OBSERVER_S pass or it has had enough. LinkBrokenError, Reject."""
    served_bytes = 0
    with trio.move_on_after(limits.OBSERVER_S):
        while served_bytes < limits.MANIFEST_BYTES_SERVED_MAX:
            received = await channel.receive_untrusted()
            match received[0] if received else None:
                case ManifestRequest(offset=offset):
                    part = manifest_part(manifest_bytes, offset)
                    served_bytes += len(part.data) + limits.FRAME_COST_BYTES
                    await channel.send_now(part)
                case Ping(nonce=nonce):
                    served_bytes += limits.FRAME_COST_BYTES
                    await channel.send_now(Pong(nonce=nonce))
                case None | Bye():
                    return
                case other:
                    raise Reject(RejectReason.UNREQUESTED, f"{type(other).__name__} from an observer")


async def fetch_manifest(
    addresses: tuple[str, ...],
    identity_seed: bytes,
    *,
    agent: str = "sfnode",
    timings: Timings | None = None,
    on_failure: Callable[[DialReport], None] | None = None,
) -> bytes:
    """The signed manifest of the run that the nodes at these addresses are in. Not yet checked: the caller must.

    Tries the addresses in turn, for ever, with growing pauses; ``on_failure`` is told of each failure. Put a deadline
    around it to give up. OperatorError at once for an address that is malformed.
    """
    if not addresses:
        raise OperatorError("no bootstrap address: name at least one node of the run")
    dialled = tuple(parse_bootstrap(address) for address in addresses)
    report = on_failure or _ignore
    host = Host(identity_seed=identity_seed, on_inbound=_decline)
    async with host.running(()):
        for attempt, address in _rounds(dialled):
            pause_s = random.uniform(0.0, min(limits.BACKOFF_BOOTSTRAP_MAX_S, 2.0 ** min(attempt, 10)))
            try:
                return await _fetch_from(host, address, agent, timings or Timings())
            except (DialError, LinkBrokenError, RefusedError, Reject) as error:
                reason = str(error)
            report(DialReport(address=str(address), reason=reason, failures=attempt, retry_in_s=pause_s))
            if address == dialled[-1]:
                await trio.sleep(pause_s)
    raise AssertionError("unreachable")


def _rounds(addresses: tuple[Address, ...]) -> Iterator[tuple[int, Address]]:
    """All addresses again and again, each with the number of the round, from 1."""
    for number in itertools.count(1):
        for address in addresses:
            yield number, address


def _ignore(_report: DialReport) -> None:
    """Nobody wants to know."""


async def _decline(link: Link) -> None:
    await link.aclose()


async def _fetch_from(host: Host, address: Address, agent: str, timings: Timings) -> bytes:
    """One attempt at one node; DialError, LinkBrokenError, RefusedError, Reject."""
    link = await host.dial(address)
    try:
        channel = Channel(link, timings, Traffic())
        await greet(channel, own_hello(run_id=OBSERVER_RUN_ID, agent=agent, listen=(), head_step=0))
        manifest = await _receive_manifest(channel)
        await channel.send_now(Bye(reason="thank you"))
        return manifest
    finally:
        await link.aclose()


async def _receive_manifest(channel: Channel) -> bytes:
    received = bytearray()
    while True:
        part = await _receive_part(channel, len(received))
        # [REJECT] SPEC 8: parts answer the request, and the whole stays within its bound
        if part.offset != len(received) or not part.data or not len(part.data) <= part.total <= MANIFEST_BYTES_MAX:
            raise Reject(RejectReason.MESSAGE_FIELD, f"manifest part {part.offset}/{part.total} does not fit")
        received += part.data
        if len(received) >= part.total:
            return bytes(received)


async def _receive_part(channel: Channel, offset: int) -> ManifestPart:
    with trio.move_on_after(channel.timings.hello_s):
        await channel.send_now(ManifestRequest(offset=offset))
        message = await channel.receive_untrusted()
        if message is not None and isinstance(message[0], ManifestPart):
            return message[0]
        raise RefusedError("it ended the session instead of sending the manifest")
    raise RefusedError(f"no part of the manifest within {channel.timings.hello_s:.0f} s")
