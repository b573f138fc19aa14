"""Answers with parts of the manifest and of files (published bases, snapshots, pieces of a model), within bounds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import trio

from protocol.errors import Reject, RejectReason
from protocol.limits import PART_BYTES_MAX
from protocol.wire import Bye, FilePart, FileRequest, ManifestPart, ManifestRequest, Message, Ping, Pong
from sfnode.network import bounds
from sfnode.network.policy import TokenBucket
from sfnode.network.sessions.channel import Channel, Pace
from sfnode.network.sessions.handshake import NO_BASIS, refuse


class FileSource(Protocol):
    """A file that is read in parts, because it may be too large for memory."""

    @property
    def total(self) -> int:
        """Return the file's length in bytes."""

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Return up to ``bytes_max`` bytes from ``offset`` on, none beyond the end. OSError."""


FindFile = Callable[[str], FileSource | None]  # by SHA-256, 64 hex digits


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedFile:
    """A file that is sent no faster than ``pace`` allows; all files with this pace share it."""

    source: FileSource
    pace: Pace

    @property
    def total(self) -> int:
        return self.source.total

    def read(self, offset: int, bytes_max: int) -> bytes:
        return self.source.read(offset, bytes_max)


def no_file(_sha256: str) -> FileSource | None:
    """Return None: this node has no files."""
    return None


def manifest_part(manifest_bytes: bytes, offset: int) -> ManifestPart:
    data = manifest_bytes[offset : offset + PART_BYTES_MAX]
    return ManifestPart(total=len(manifest_bytes), offset=offset, data=data)


def file_part(file: FileSource | None, offset: int, check: Callable[[], None] = lambda: None) -> FilePart | None:
    """Return the answer to a FileRequest; None if this node lacks the file or cannot read it. ``check`` may refuse."""
    if file is None:
        return None
    check()
    try:
        return FilePart(total=file.total, offset=offset, data=file.read(offset, PART_BYTES_MAX))
    except OSError:
        return None


async def serve_files(
    channel: Channel,
    manifest_bytes: bytes,
    find_file: FindFile = no_file,
    check_place: Callable[[], None] = lambda: None,
) -> None:
    """Answer an observer until it leaves, its time is over or its bytes are used up. LinkBrokenError, Reject.

    Its time is OBSERVER_S. Each part of a file adds the time that the part takes at OBSERVER_BYTES_PER_S_MIN, and the
    time that our pace makes it wait. The allowed bytes cover each file once. An observer that requests nothing for
    OBSERVER_IDLE_S is left at once; pings do not count. ``check_place`` is called before each part of a file.
    """
    observer = _Observer(channel)
    found: dict[bytes, FileSource | None] = {}
    with trio.move_on_after(bounds.OBSERVER_S) as scope:
        while observer.allowed_bytes > 0:
            match await observer.next_message():
                case ManifestRequest(offset=offset):
                    answer: Message | None = manifest_part(manifest_bytes, offset)
                case FileRequest(sha256=sha256, offset=offset):
                    is_new = sha256 not in found
                    file = found[sha256] = find_file(sha256.hex()) if is_new else found[sha256]
                    observer.allowed_bytes += file.total if file and is_new else 0
                    answer = file_part(file, offset, check_place)
                    waited_s = await file.pace.wait(PART_BYTES_MAX) if isinstance(file, PacedFile) else 0.0
                    scope.deadline += PART_BYTES_MAX / bounds.OBSERVER_BYTES_PER_S_MIN + waited_s
                case Ping(nonce=nonce):
                    answer = Pong(nonce=nonce)
                case None | Bye():
                    return
                case other:
                    raise Reject(RejectReason.UNREQUESTED, f"{type(other).__name__} from an observer")
            if answer is None:
                await refuse(channel, NO_BASIS)
                return
            await observer.send(answer)


class _Observer:
    """Tracks the bytes that one observer may still receive, and the time of its last request."""

    def __init__(self, channel: Channel) -> None:
        self.allowed_bytes = bounds.OBSERVER_BYTES_MAX
        self._channel = channel
        self._asked_s = trio.current_time()
        self._short_answers = TokenBucket(bounds.SHORT_ANSWERS_BURST, self._asked_s)

    async def next_message(self) -> Message | None:
        """Return the next message; None if the observer has left, or has requested nothing for OBSERVER_IDLE_S."""
        received = None
        with trio.move_on_at(self._asked_s + bounds.OBSERVER_IDLE_S):
            received = await self._channel.receive_untrusted()
        return received[0] if received else None

    async def send(self, answer: Message) -> None:
        """Send an answer and charge its bytes; slow down many short answers. A pong does not count as a request."""
        sent_before = self._channel.traffic.bytes_out
        await self._channel.send_now(answer)
        sent_bytes = self._channel.traffic.bytes_out - sent_before
        self.allowed_bytes -= sent_bytes + bounds.FRAME_COST_BYTES
        if sent_bytes < PART_BYTES_MAX:
            wait_s = self._short_answers.take(1, bounds.SHORT_ANSWERS_PER_S, trio.current_time())
            if wait_s > 0:
                await trio.sleep(wait_s)
        if not isinstance(answer, Pong):
            self._asked_s = trio.current_time()
