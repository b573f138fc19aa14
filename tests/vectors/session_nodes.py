"""A real network layer without sockets: a peer's messages go in one by one, and what comes of each is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast
from unittest.mock import patch

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from protocol.errors import Reject
from protocol.events import Event, MessageArrived
from protocol.framing import FrameParser, frame
from protocol.limits import FRAME_BYTES_MAX
from protocol.wire import Bye, Hello, PeerId, decode_untrusted, encode
from sfnode.network.network import Network
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy import peer_of_author
from sfnode.network.sessions import RefusedError, ServedRun
from sfnode.network.sessions.file_server import FileSource
from sfnode.network.transport import Link
from tests.support.ledgers import signer
from tests.vectors.notation import compact

ASK_PEERS = b""  # a step in which the node asks its neighbour for peers
_MANY = 1_000  # events that nobody reads meanwhile


class PlainLink:
    """A stream whose other end is the test."""

    is_outbound = False
    remote_host = "198.51.100.7"
    local = ("192.0.2.1", 4_001)

    def __init__(self, peer: PeerId) -> None:
        self.peer = peer
        self.is_over = False  # the node has closed it, or said its last word
        self._coming, self._arriving = trio.open_memory_channel[bytes](_MANY)
        self._said = FrameParser(FRAME_BYTES_MAX)

    def feed(self, data: bytes) -> None:
        self._coming.send_nowait(data)

    def said(self) -> list[bytes]:
        """The messages since the last call."""
        found = []
        while (payload := self._said.next_payload()) is not None:
            found.append(payload)
        return found

    async def receive_some(self, _bytes_max: int) -> bytes:
        return await self._arriving.receive()

    async def send_all(self, data: bytes) -> None:
        self._said.feed_untrusted(data)

    async def send_eof(self) -> None:
        self.is_over = True

    async def aclose(self) -> None:
        self.is_over = True

    def abort(self) -> None: ...

    def introduced(self) -> None: ...


class Served:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.total = len(data)

    def read(self, offset: int, bytes_max: int) -> bytes:
        return self._data[offset : offset + bytes_max]


class SessionNode:
    """One node and one peer of it, in one of the roles of `play`."""

    def __init__(self, run: ServedRun) -> None:
        self._inbox, self._unread = trio.open_memory_channel[Event](_MANY)
        self._network = Network(config=NetworkConfig(), identity_seed=bytes(32), run=run, inbox=self._inbox)
        self.hello = self._network.introduction.hello()
        self._peer = peer_of_author(signer(1).author)
        self._fault: str | None = None

    async def play(self, role: str, steps: Sequence[bytes]) -> list[dict[str, object]]:
        """What the node does at once, and after each step.

        ``role``: the node was dialled; it is the dialler; or the peer asks beside a session.
        """
        with patch.object(self._network.sessions, "penalise", self._penalise):
            async with trio.open_nursery() as nursery:
                if role == "beside":
                    session = PlainLink(self._peer)
                    nursery.start_soon(self._network.conversation.inbound, cast("Link", session))
                    session.feed(frame(encode(self.hello)))
                    await wait_all_tasks_blocked()
                link = PlainLink(self._peer)
                nursery.start_soon(self._serve, role, link)
                found = [await self._look(link), *[await self._step(link, step) for step in steps]]
                nursery.cancel_scope.cancel()
        return found

    async def _step(self, link: PlainLink, step: bytes) -> dict[str, object]:
        assert not link.is_over, "a step after the end"
        if step == ASK_PEERS:
            self._network._exchange.ask()
        else:
            link.feed(frame(step))
        return await self._look(link)

    async def _serve(self, role: str, link: PlainLink) -> None:
        plain = cast("Link", link)
        try:
            if role == "dialler":
                await self._network.conversation.dialled(plain, lambda: None)
            elif role == "dialled":
                await self._network.conversation.inbound(plain)
            else:
                await self._network._files.serve_neighbour(plain, self._network.sessions)
        except RefusedError:
            pass
        except Reject as reject:
            self._fault = str(reject)
        link.is_over = True

    async def _look(self, link: PlainLink) -> dict[str, object]:
        await wait_all_tasks_blocked()
        handed_on = 0
        while True:
            try:
                event = self._unread.receive_nowait()
            except trio.WouldBlock:
                break
            if isinstance(event, MessageArrived):
                handed_on += 1
                self._network.conversation.handled(event.peer, event.message, seconds=0.0, news=0)
                await wait_all_tasks_blocked()
        fault, self._fault = self._fault, None
        reason = fault and fault.partition(":")[0].upper()
        verdict = {"verdict": "REJECT" if reason else "ACCEPT", "reason": reason}
        said = [written(data) for data in link.said()]
        return {**verdict, "said": said, "is_handed_on": bool(handed_on), "is_over": link.is_over or bool(reason)}

    def _penalise(self, _peer: PeerId, _fault: object, reason: str) -> None:
        self._fault = reason


def written(data: bytes) -> object:
    """A message; of a Bye only the words that the specification names."""
    message = decode_untrusted(data)
    if isinstance(message, Bye):
        words = message.reason.partition(":")[0]
        return {"bye": words if words.startswith("other ") else ""}
    return in_short(data)


def in_short(data: bytes) -> object:
    """Bytes with long rows of one byte, those of the documents among them."""
    parts = compact(data, b"m", b"f", b"\0", b"a", readable=False)
    return parts[0] if len(parts) == 1 else parts


def played(
    role: str,
    steps: Sequence[bytes],
    *,
    run_id: bytes,
    manifest: bytes,
    files: Mapping[str, FileSource],
    pieces: Mapping[str, FileSource],
) -> tuple[Hello, list[dict[str, object]]]:
    """The hello of a node with these documents, and what it does at once and after each step."""

    async def main() -> tuple[Hello, list[dict[str, object]]]:
        run = ServedRun(
            run_id=run_id,
            manifest_bytes=manifest,
            head_step=lambda: 7,
            find_file=files.get,
            find_piece=pieces.get,
        )
        node = SessionNode(run)
        return node.hello, await node.play(role, steps)

    return trio.run(main, clock=MockClock())
