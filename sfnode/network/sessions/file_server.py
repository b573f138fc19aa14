"""Serves a node's files to others: parts of the manifest, bases, snapshots, pieces of a model, within bounds.

Strangers ask on a connection of their own. Neighbours ask on a separate stream, so that files do not delay the flood.
"""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import Protocol

import trio
from libp2p.custom_types import TProtocol

from protocol.errors import Reject, RejectReason
from protocol.limits import MODEL_PIECE_BYTES, PART_BYTES_MAX
from protocol.wire import Bye, FilePart, FileRequest, Hello, ManifestPart, ManifestRequest, Message, PeerId, Ping, Pong
from sfnode.network import bounds
from sfnode.network.policy import FairPlace, FairPlaces, Fault, Origins, Places, TokenBucket, ip_groups
from sfnode.network.sessions.bandwidth_limit import Pace
from sfnode.network.sessions.channel import Channel
from sfnode.network.sessions.handshake import FULL, NO_BASIS, RefusedError, refuse
from sfnode.network.sessions.open_sessions import OpenSessions
from sfnode.network.transport import Link, LinkBrokenError

FILES_PROTOCOL = TProtocol("/sfnode/files/1")


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


def manifest_part(manifest_bytes: bytes, offset: int) -> ManifestPart:
    data = manifest_bytes[offset : offset + PART_BYTES_MAX]
    return ManifestPart(total=len(manifest_bytes), offset=offset, data=data)


def file_part(file: FileSource | None, offset: int, check: Callable[[], None]) -> FilePart | None:
    """Return the answer to a FileRequest; None if this node lacks the file or cannot read it. ``check`` may refuse."""
    if file is None:
        return None
    check()
    try:
        return FilePart(total=file.total, offset=offset, data=file.read(offset, PART_BYTES_MAX))
    except OSError:
        return None


async def serve_files(
    channel: Channel, manifest_bytes: bytes, find_file: FindFile, check_place: Callable[[], None] = lambda: None
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
            if isinstance(answer, ManifestPart | FilePart):
                scope.deadline += await channel.file_pace.wait(len(answer.data))
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
        message = None
        with trio.move_on_at(self._asked_s + bounds.OBSERVER_IDLE_S):
            message = await self._channel.receive_untrusted()
        return message  # noqa: RET504  # None where the time was over first

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRun:
    """The run as the network describes and serves it.

    Attributes:
        manifest_bytes: signed manifest, for nodes that are about to join.
        record_bytes: size of one record; 0 while it is unknown.
        head_step: returns the node's step, which hello names.
        find_file: returns a published basis or a snapshot by its hash.
        find_piece: returns a piece of the model, or the list of a file's pieces, by its hash; for neighbours only.
        pieces_bytes_per_s: upload limit of all such pieces together; 0 means none.
    """

    run_id: bytes
    manifest_bytes: bytes
    record_bytes: int = 0
    head_step: Callable[[], int] = lambda: 0
    find_file: FindFile = lambda _sha256: None
    find_piece: FindFile = lambda _sha256: None
    pieces_bytes_per_s: float = 0.0


class FileServer:
    """Serves strangers and neighbours in separate places, so that strangers never keep neighbours waiting.

    Strangers that count together get OBSERVERS_PER_CROWD_MAX places, and MANIFEST_PLACES are reserved for the manifest:
    nobody can keep newcomers out by downloading. Neighbours take turns (`FairPlaces`). Downloads of a model, which take
    minutes, have a limit of their own.
    """

    def __init__(
        self,
        run: ServedRun,
        open_channel: Callable[[Link], Channel],
        origins: Origins = ip_groups.DEFAULT_ORIGINS,
        bytes_per_s: float = math.inf,
    ) -> None:
        """``bytes_per_s``: of all files. With more streams than get each part in time no piece would ever be whole."""
        streams_max = max(1.0, bytes_per_s * bounds.PART_SENT_S / PART_BYTES_MAX)
        downloads_max = int(min(streams_max, bounds.OBSERVERS_MAX - bounds.MANIFEST_PLACES))
        served_max = int(min(streams_max, bounds.NEIGHBOURS_SERVED_MAX))
        given_max = int(min(streams_max, bounds.NEIGHBOURS_GIVEN_MAX))
        turn_s = max(bounds.UNFINISHED_TURN_S, given_max * MODEL_PIECE_BYTES / bytes_per_s)  # for a whole piece
        self._run, self._open_channel, self._origins = run, open_channel, origins
        self._strangers = Places(bounds.OBSERVERS_MAX, bounds.OBSERVERS_PER_CROWD_MAX)
        self._downloads = Places(downloads_max, bounds.OBSERVERS_PER_CROWD_MAX)
        self._waiting = Places(bounds.OBSERVERS_MAX, bounds.OBSERVERS_MAX // 2)
        self._without_room = trio.lowlevel.ParkingLot()  # strangers that wait until another leaves
        self._neighbours = FairPlaces(served_max, bounds.FILES_PER_NEIGHBOUR_MAX, turn_s)
        self._givings = FairPlaces(given_max, bounds.PIECE_STREAMS_PER_NEIGHBOUR_MAX, turn_s)
        self._pace = Pace(run.pieces_bytes_per_s)

    def has_room_for(self, host: str) -> bool:
        """Return whether a stranger from IP address ``host`` gets a place now."""
        return self._strangers.has_room(self._origins.crowd_of(host))

    async def wait_for_room(self, host: str) -> None:
        """Let a stranger from IP address ``host`` wait a moment for a place, if not too many wait already."""
        crowd = self._origins.crowd_of(host)
        if not self._waiting.has_room(crowd):
            return
        with self._waiting.taken(crowd), trio.move_on_after(bounds.OBSERVER_WAIT_S):
            while not self._strangers.has_room(crowd):
                await self._without_room.park()

    async def serve_stranger(self, channel: Channel, hello: Hello) -> None:
        """Say hello, then serve files to a stranger. LinkBrokenError, Reject.

        Call `has_room_for` first, without a checkpoint in between.
        """
        crowd = self._origins.crowd_of(channel.link.remote_host)
        with ExitStack() as places:

            @cache
            def take_download() -> None:  # once, with the first file
                if not self._downloads.has_room(crowd):
                    raise RefusedError(FULL)
                places.enter_context(self._downloads.taken(crowd))

            def find_file(sha256: str) -> FileSource | None:
                take_download()
                return self._run.find_file(sha256)

            places.callback(self._without_room.unpark_all)
            places.enter_context(self._strangers.taken(crowd))
            await channel.send_now(hello)
            try:
                await serve_files(channel, self._run.manifest_bytes, find_file)
            except RefusedError as error:
                await refuse(channel, error.reason)

    async def serve_neighbour(self, link: Link, open_sessions: OpenSessions) -> None:
        """Serve files on a stream that a neighbour has opened in addition to its session."""
        channel = self._open_channel(link)
        channel.trust()
        try:
            if open_sessions.get(link.peer) is None:
                raise RefusedError(FULL)
            with ExitStack() as places:
                stream = _FileStream(link.peer, self._origins.crowd_of(link.remote_host), places)
                stream.take(self._neighbours)
                find_file = partial(self._find_for, stream)
                await serve_files(channel, self._run.manifest_bytes, find_file, stream.check)
        except RefusedError as error:
            await refuse(channel, error.reason)
        except LinkBrokenError:
            pass  # only this stream is lost
        except Reject as error:
            open_sessions.penalise(link.peer, Fault.GARBAGE, str(error))

    def _find_for(self, stream: "_FileStream", sha256: str) -> FileSource | None:
        """Return a file for a neighbour. Its first piece of the model takes a place for pieces. RefusedError."""
        piece = self._run.find_piece(sha256)
        file = piece if piece is not None else self._run.find_file(sha256)
        if file is None:
            return None
        if piece is not None and not stream.is_given:
            stream.take(self._givings)
            stream.is_given = True
        stream.count_file()
        return file if piece is None else PacedFile(source=piece, pace=self._pace)


class _FileStream:
    """Holds the places of a neighbour on one stream."""

    def __init__(self, peer: PeerId, crowd: str | None, stack: ExitStack) -> None:
        self.is_given = False  # whether it gets pieces of the model
        self._peer, self._crowd, self._stack = peer, crowd, stack
        self._held: list[FairPlace] = []

    def take(self, places: FairPlaces) -> None:
        """Take one of ``places`` until the stream ends. RefusedError if none is free."""
        place = places.take(self._peer, self._crowd, trio.current_time())
        if place is None:
            raise RefusedError(FULL)
        self._stack.callback(lambda: places.leave(place, trio.current_time()))
        self._held.append(place)

    def count_file(self) -> None:
        for place in self._held:
            place.files += 1

    def check(self) -> None:
        """Note a request for a part. RefusedError if another peer has taken its place."""
        for place in self._held:
            place.asked_s = trio.current_time()
            if place.is_lost:
                raise RefusedError(FULL)
