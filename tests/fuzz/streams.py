"""Targets ``frames``, ``channel``, ``handshake``: byte streams, cut anywhere, give the messages in them or a Reject."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any, cast

import trio

from protocol.errors import Reject
from protocol.framing import FrameParser, frame
from protocol.limits import BASIS_BYTES_MAX, FRAME_BYTES_MAX, MANIFEST_BYTES_MAX
from protocol.run.manifest import sign_manifest
from protocol.wire import (
    Bye,
    FilePart,
    FileRequest,
    Hello,
    ManifestPart,
    ManifestRequest,
    Message,
    PeerId,
    Ping,
    decode_untrusted,
    encode,
)
from sfnode.network import bounds
from sfnode.network.network_config import Timings
from sfnode.network.sessions.bandwidth_limit import Traffic
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.file_download import Download, Wanted
from sfnode.network.sessions.file_server import serve_files
from sfnode.network.sessions.handshake import OBSERVER_RUN_ID, RefusedError, await_hello, exchange_hello, own_hello
from sfnode.network.transport.link import Link, LinkBrokenError
from tests.fuzz.catalogue import Target
from tests.fuzz.choices import Choices
from tests.fuzz.verdicts import reason_of
from tests.support.manifests import OWNER, small_manifest
from tests.support.sample_messages import MESSAGES

RUN_FILE = sign_manifest(small_manifest(), OWNER).encode()
_OWN = own_hello(run_id=b"\1" * 32, agent="sfnode", listen=(), head_step=0)
_CHUNKS_MAX = 64
_BASIS = bytes(range(256)) * 200  # two parts
_WANTED = Wanted(name="basis", bytes_max=BASIS_BYTES_MAX, total=300, sha256=hashlib.sha256(bytes(300)).hexdigest())
Outcome = tuple[list[bytes], str | None]  # payloads, and the reason of the Reject that ended them


# --- frames


def check_frames(data: bytes) -> None:
    """However the stream is cut, the same payloads come out and the same Reject ends it; no more than a frame waits."""
    choices = Choices(data)
    frame_bytes_max = choices.pick((1, 64, bounds.HELLO_FRAME_BYTES_MAX, FRAME_BYTES_MAX))
    sizes = [1 + choices.below(32) for _ in range(choices.below(8))] or [1]
    stream = choices.rest()
    expected = _by_hand(stream, frame_bytes_max)
    assert _parsed([stream], frame_bytes_max) == expected
    assert _parsed(_cut(stream, sizes), frame_bytes_max) == expected


def _by_hand(stream: bytes, frame_bytes_max: int) -> Outcome:
    """SPEC 8: u32 length, 1 ... bound, then so many bytes."""
    payloads: list[bytes] = []
    while len(stream) >= 4:
        length = int.from_bytes(stream[:4], "big")
        if not 1 <= length <= frame_bytes_max:
            return payloads, "FRAME"
        if len(stream) < 4 + length:
            break
        payloads.append(stream[4 : 4 + length])
        stream = stream[4 + length :]
    return payloads, None


def _parsed(chunks: list[bytes], frame_bytes_max: int) -> Outcome:
    parser = FrameParser(frame_bytes_max)
    payloads: list[bytes] = []
    try:
        for chunk in chunks:
            parser.feed_untrusted(chunk)
            while (payload := parser.next_payload()) is not None:
                payloads.append(payload)
    except Reject as reject:
        return payloads, reject.reason.name
    return payloads, None


def _cut(stream: bytes, sizes: list[int]) -> list[bytes]:
    chunks: list[bytes] = []
    start = 0
    while start < len(stream) and len(chunks) < _CHUNKS_MAX:
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(stream[start : start + size])
        start += size
    return [*chunks, stream[start:]]


# --- channel


class StreamLink:
    """A link whose other end has already said everything: ``stream`` in chunks, then the end or a broken connection."""

    peer = PeerId("x")
    is_outbound = True
    remote_host = "192.0.2.1"

    def __init__(self, stream: bytes, chunk_bytes: int, *, is_broken: bool) -> None:
        self._stream = stream
        self._chunk_bytes = chunk_bytes
        self._is_broken = is_broken
        self.sent = bytearray()

    async def receive_some(self, bytes_max: int) -> bytes:
        size = min(bytes_max, self._chunk_bytes)
        part, self._stream = self._stream[:size], self._stream[size:]
        if not part and self._is_broken:
            raise LinkBrokenError("broken")
        return part

    async def send_all(self, data: bytes) -> None:
        self.sent += data

    async def send_eof(self) -> None: ...

    def abort(self) -> None: ...

    def introduced(self) -> None: ...


def _channel(choices: Choices) -> tuple[Channel, StreamLink, Traffic]:
    is_broken = choices.one_in(2)
    chunk_bytes = choices.pick((1, 7, 100, bounds.READ_BYTES_MAX))
    link, total = StreamLink(choices.rest(), chunk_bytes, is_broken=is_broken), Traffic()
    return Channel(cast("Link", link), Timings(), total), link, total


def _run(step: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine whose link never makes it wait: no event loop, so that fuzzing stays fast."""
    try:
        step.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the coroutine waits for something")


def check_channel(data: bytes) -> None:
    """The messages that decoding each frame gives, until the end, a Reject or a break; all bytes are counted."""
    choices = Choices(data)
    trusted_after = choices.below(4)
    channel, link, total = _channel(choices)
    stream = link._stream
    messages: list[Message] = []
    taken = 0
    try:
        while True:
            if len(messages) == trusted_after:
                channel.trust()
            received = _run(channel.receive_untrusted())
            if received is None:
                break
            messages.append(received)
            taken += channel.message_bytes
    except LinkBrokenError:
        pass
    except Reject:
        taken = total.bytes_in  # the frame that was refused counts, too
    of_link = channel.traffic
    assert (total.bytes_in, total.frames_in) == (of_link.bytes_in, of_link.frames_in)
    assert total.bytes_in == taken <= len(stream) and not total.bytes_out and not total.frames_out
    assert b"".join(frame(encode(message)) for message in messages) == stream[: len(_joined(messages))]


def _joined(messages: list[Message]) -> bytes:
    return b"".join(frame(encode(message)) for message in messages)


# --- handshake, manifest and basis


def check_handshake(data: bytes) -> None:
    """Only the documented errors come out of the first words, on either side, and of what observers fetch."""
    choices = Choices(data)
    scene: Callable[[Channel], Coroutine[Any, Any, None]] = choices.pick(_SCENES)
    channel, link, _ = _channel(choices)
    reasons: list[str] = []
    try:
        trio.run(scene, channel)
    except Reject as reject:
        reasons.append(reason_of(reject))
    except (RefusedError, LinkBrokenError):
        pass
    assert all(reason in ("FRAME", "UNREQUESTED") or reason.startswith("MESSAGE") for reason in reasons)
    payloads, reason = _by_hand(bytes(link.sent), FRAME_BYTES_MAX)
    assert reason is None and all(decode_untrusted(payload) for payload in payloads), "we sent what nobody accepts"


async def _dialler(channel: Channel) -> None:
    hello = await exchange_hello(channel, _OWN)
    assert hello.version == _OWN.version and hello.run_id in (_OWN.run_id, OBSERVER_RUN_ID)


async def _dialled(channel: Channel) -> None:
    assert isinstance(await await_hello(channel), Hello)


async def _observed(channel: Channel) -> None:
    """We serve a stranger."""
    await serve_files(channel, RUN_FILE, lambda _sha256: _Basis())


async def _observed_without_basis(channel: Channel) -> None:
    """The same, of a run whose basis is random."""
    await serve_files(channel, RUN_FILE, lambda _sha256: None)


async def _observer(channel: Channel) -> None:
    """We fetch a manifest from a stranger."""
    channel.trust()
    manifest = await Download(Wanted.manifest(None)).run(channel)
    assert 0 < len(manifest) <= MANIFEST_BYTES_MAX


async def _observer_of_basis(channel: Channel) -> None:
    """We fetch a basis from a stranger; a wrong one is never taken."""
    channel.trust()
    assert await Download(_WANTED).run(channel) == bytes(300)


class _Basis:
    """A basis in memory."""

    total = len(_BASIS)

    def read(self, offset: int, bytes_max: int) -> bytes:
        return _BASIS[offset : offset + bytes_max]


_SCENES = (_dialler, _dialled, _observed, _observer, _observed_without_basis, _observer_of_basis)


# --- seeds


def frame_seeds() -> Iterator[bytes]:
    """All messages at once under each bound; lengths that are wrong."""
    stream = _joined(list(MESSAGES))[:400]
    for number in range(4):
        yield bytes([number, 0]) + stream
        yield bytes([number, 3, 1, 4, 30]) + stream
    yield bytes([3, 0]) + bytes(4)
    yield bytes([3, 0]) + b"\xff" * 5
    yield bytes([2, 0]) + (1_025).to_bytes(4, "big")


def channel_seeds() -> Iterator[bytes]:
    """Each message twice, in small and large chunks; some with a fault."""
    for number, message in enumerate(MESSAGES):
        yield bytes([number % 4, number % 2, number % 4]) + _joined([message, message])
    yield bytes([0, 0, 3]) + _joined([Ping(nonce=5)]) + frame(b"\xc1")


def handshake_seeds() -> Iterator[bytes]:
    """What honest others say in each scene, and the same in another."""
    hello = Hello(version=1, run_id=_OWN.run_id, agent="a", listen=("/ip4/192.0.2.1/tcp/1",), head_step=3)
    observer = Hello(version=1, run_id=OBSERVER_RUN_ID, agent="a", listen=(), head_step=3)
    part = ManifestPart(total=300, offset=0, data=bytes(200))
    words: list[list[Message]] = [
        [ManifestPart(total=3, offset=0, data=b"abc")],
        [FilePart(total=300, offset=0, data=bytes(300))],
        [hello],
        [replace(hello, version=2)],
        [replace(hello, run_id=b"\2" * 32)],
        [observer],
        [MESSAGES[4], Bye(reason="full")],
        [Bye(reason="other run")],
        [ManifestRequest(offset=0), ManifestRequest(offset=2**32 - 1), Ping(nonce=1), Bye(reason="")],
        [part, ManifestPart(total=300, offset=200, data=bytes(100))],
        [part, part],
        [MESSAGES[9]],
        [],
        [*(FileRequest(sha256=bytes(32), offset=offset) for offset in (0, 32_768, 2**32 - 1)), Bye(reason="")],
        [FilePart(total=300, offset=0, data=b"x" * 300)],
        [FilePart(total=300, offset=0, data=bytes(299)), FilePart(total=300, offset=299, data=b"")],
    ]
    for number, said in enumerate(words):
        for scene in range(len(_SCENES)):
            yield bytes([scene, number % 2, 3]) + _joined(said)


TARGETS = {
    "frames": Target(check=check_frames, seeds=frame_seeds),
    "channel": Target(check=check_channel, seeds=channel_seeds),
    "handshake": Target(check=check_handshake, seeds=handshake_seeds),
}
