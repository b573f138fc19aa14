"""Vectors of frames (SPEC 8, 8.2.1): bytes in pieces in, messages out, and lengths that end the session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from protocol.errors import Reject
from protocol.framing import FrameParser, frame
from protocol.limits import FRAME_BYTES_MAX
from protocol.wire import PeersRequest, Ping, encode
from sfnode.network.bounds import HELLO_FRAME_BYTES_MAX
from tests.vectors.notation import Case, Document, case, compact, document

_PING, _PEERS = encode(Ping(nonce=300)), encode(PeersRequest())


def frames() -> Document:
    """frames.json"""
    return document("Frames, before and after Hello: SPEC 8, 8.2.1", [*_whole(), *_bounds()])


def _cut(name: str, pieces: Sequence[bytes], *, is_introduced: bool = True, expect: str | None = None) -> Case:
    parser = FrameParser(FRAME_BYTES_MAX if is_introduced else HELLO_FRAME_BYTES_MAX)
    messages: list[bytes] = []
    verdict: dict[str, str | None] = {"verdict": "ACCEPT", "reason": None}
    try:
        for piece in pieces:
            parser.feed_untrusted(piece)
            while (payload := parser.next_payload()) is not None:
                messages.append(payload)
    except Reject as reject:
        verdict = {"verdict": "REJECT", "reason": reject.reason.name}
    assert verdict["reason"] == expect, (name, verdict)
    given = {"is_introduced": is_introduced, "pieces": [_written(piece) for piece in pieces]}
    return case(name, "cut", given, {**verdict, "messages": [_written(each) for each in messages]})


def _written(data: bytes) -> object:
    parts = compact(data, b"\0", readable=False)
    return parts[0] if len(parts) == 1 else parts or ""


def _whole() -> Iterator[Case]:
    two = frame(_PING) + frame(_PEERS)
    yield _cut("one frame", [frame(_PING)])
    yield _cut("two frames in one piece", [two])
    yield _cut("two frames, byte by byte", [two[place : place + 1] for place in range(len(two))])
    yield _cut("cut within the length and within the message", [two[:2], two[2:7], two[7:]])
    yield _cut("nothing", [b""])
    yield _cut("a length without its end", [two[:3]])
    yield _cut("a message without its end", [frame(_PING)[:-1]])
    yield _cut("one and the beginning of another", [two[:-1]])


def _bounds() -> Iterator[Case]:
    for is_introduced, most in ((True, FRAME_BYTES_MAX), (False, HELLO_FRAME_BYTES_MAX)):
        when = "after" if is_introduced else "before"
        yield _cut(f"{most} bytes {when} Hello", [frame(bytes(most))], is_introduced=is_introduced)
        head = (most + 1).to_bytes(4, "big")
        yield _cut(f"{most + 1} bytes {when} Hello", [head], is_introduced=is_introduced, expect="FRAME")
        yield _cut(f"length 0 {when} Hello", [bytes(4)], is_introduced=is_introduced, expect="FRAME")
    yield _cut("the largest length", [b"\xff" * 4], expect="FRAME")
    yield _cut("little-endian", [len(_PING).to_bytes(4, "little") + _PING], expect="FRAME")
    yield _cut("a good frame before a bad one", [frame(_PING) + bytes(4) + frame(_PEERS)], expect="FRAME")
