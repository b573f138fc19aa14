"""Vectors of messages (SPEC 8.1, 8.2): every kind at its bounds, and every way in which bytes fail to be a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgpack

from protocol import wire
from protocol.schema import to_plain
from protocol.wire import CLASSES, Message, decode_untrusted, encode
from tests.vectors.message_bounds import beyond_bounds
from tests.vectors.message_faults import malformed
from tests.vectors.notation import Case, Document, as_bytes, case, compact, document, judged

Row: TypeAlias = list[Any]

_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1
_BITMAP = bytes(range(128))
_D16, _D32 = bytes(range(16)), bytes(range(32))
_ADDRESS = "/ip4/10.0.0.1/tcp/4001"
_SHOWN_BYTES_MAX = 400  # fields of longer messages are not written out
_FACE = "\N{GRINNING FACE}"
_U64_FIELDS = {wire.Ping: (0,), wire.Pong: (0,), wire.Head: (2,)}

# Smallest and largest content of every kind that SPEC 8.1 allows: rows of fields in wire order.
BOUNDS: dict[type[Message], tuple[Row, Row]] = {
    wire.Hello: ([0, bytes(32), "", [], 0], [_U32, _D32, "x" * 256, ["x" * 256] * 8, _U32]),
    wire.Ping: ([0], [_U64]),
    wire.Pong: ([0], [_U64]),
    wire.PeersRequest: ([], []),
    wire.Peers: ([[]], [[["x" * 128, ["x" * 256] * 2]] * 64]),
    wire.ManifestRequest: ([0], [_U32]),
    wire.ManifestPart: ([0, 0, b""], [_U32, _U32, b"\0" * 32_768]),
    wire.Bye: ([""], ["x" * 256]),
    wire.Records: ([0, b""], [_U32, b"\0" * 65_472]),
    wire.Head: ([bytes(32), bytes(32), 0, 0, 0], [_D32, b"\xff" * 32, _U64, _U32, 16]),
    wire.SpansRequest: ([0], [_U32]),
    wire.Spans: ([0, bytes(16), []], [_U32, _D16, [[1_023, _D16]] * 1_024]),
    wire.ShardsRequest: ([0, 0], [_U32, 1_023]),
    wire.Shards: ([0, 0, []], [_U32, 1_023, [[255, _D16]] * 256]),
    wire.AuthorsRequest: ([0, 0, [0], bytes(32)], [_U32, 1_023, [255] * 256, _D32]),
    wire.Authors: ([0, 0, [], False], [_U32, 1_023, [[_D32, _D16, _BITMAP, _BITMAP]] * 128, True]),
    wire.PayloadsRequest: ([0, 0, bytes(32)], [_U32, 1_023, _D32]),
    wire.Payloads: ([0, 0, bytes(32), b""], [_U32, 1_023, _D32, b"\0" * 8_192]),
    wire.PullRequest: ([0, [[0, bytes(32), bytes(128)]]], [_U32, [[1_023, _D32, _BITMAP]] * 256]),
    wire.PullDone: ([0, 0], [_U32, _U32]),
    wire.FileRequest: ([bytes(32), 0], [_D32, _U32]),
    wire.FilePart: ([0, 0, b""], [_U32, _U32, b"\0" * 32_768]),
    wire.StatementsRequest: ([0, bytes(33)], [_U32, b"\xff" * 33]),
    wire.Statements: ([0, [], False], [_U32, [b"\xff" * 193] * 256, True]),
    wire.AttestationsRequest: ([], []),
    wire.Attestations: ([[]], [[b"\xff" * 136] * 256]),
}
# One beyond a bound, or of another type: kind, place of the field, bad values.
BAD_FIELDS: tuple[tuple[type[Message], int, tuple[Any, ...]], ...] = (
    (wire.Hello, 0, (_U32 + 1, -1, True, "1", None, 1.0)),
    (wire.Hello, 1, (_D32[:31], _D32 + b"\0", _D32.hex(), "x" * 32)),
    (wire.Hello, 2, ("x" * 257, b"agent", 0)),
    (wire.Hello, 3, (["x"] * 9, [""], ["x" * 257], [b"x"], "x")),
    (wire.Hello, 4, (_U32 + 1, -1, False)),
    (wire.Ping, 0, (-1, True, 1.0, None, "1", b"1", [1])),
    (wire.Pong, 0, (-1, False)),
    (wire.Peers, 0, ([["x", []]] * 65, [["", []]], [["x" * 129, []]], [["x", ["x"] * 9]], [["x"]], [["x", [], 0]], 0)),
    (wire.ManifestRequest, 0, (_U32 + 1, -1)),
    (wire.ManifestPart, 0, (_U32 + 1,)),
    (wire.ManifestPart, 1, (_U32 + 1,)),
    (wire.ManifestPart, 2, (b"\0" * 32_769, "text")),
    (wire.Bye, 0, ("x" * 257, b"bye", None)),
    (wire.Records, 0, (_U32 + 1,)),
    (wire.Records, 1, (b"\0" * 65_473, "", [])),
    (wire.Head, 0, (_D32[:31],)),
    (wire.Head, 1, (_D32 + b"\0",)),
    (wire.Head, 2, (-1, True)),
    (wire.Head, 3, (_U32 + 1,)),
    (wire.Head, 4, (17, -1, True)),
    (wire.SpansRequest, 0, (_U32 + 1, True)),
    (wire.Spans, 1, (_D16[:15], _D16 + b"\0", None)),
    (wire.Spans, 2, ([[1_024, _D16]], [[0, _D16[:15]]], [[0, _D16 + b"\0"]], [[0]], [0, _D16], [[True, _D16]])),
    (wire.StatementsRequest, 0, (_U32 + 1,)),
    (wire.StatementsRequest, 1, (bytes(32), bytes(34), "")),
    (wire.Statements, 1, ([b""], [b"\0" * 194], [b"\0"] * 257, ["text"], b"\0")),
    (wire.Statements, 2, (0, 1, None)),
    (wire.ShardsRequest, 1, (1_024, -1)),
    (wire.Shards, 1, (1_024,)),
    (wire.Shards, 2, ([[256, _D16]], [[0, _D16]] * 257, [[0, _D32]])),
    (wire.AuthorsRequest, 1, (1_024,)),
    (wire.AuthorsRequest, 2, ([], [256], [0] * 257, [-1], [True])),
    (wire.AuthorsRequest, 3, (_D32[:31], b"")),
    (wire.Authors, 1, (1_024,)),
    (wire.Authors, 2, ([[_D32, _D16, _BITMAP, _BITMAP]] * 129, [[_D32, _D16, _BITMAP, _BITMAP + b"\0"]])),
    (wire.Authors, 2, ([[_D32, _D16, _BITMAP[:127], _BITMAP]], [[_D32, _D16, _BITMAP]], [[_D16, _D16, b"", b""]])),
    (wire.Authors, 3, (0, 1, None)),
    (wire.PayloadsRequest, 1, (1_024,)),
    (wire.PayloadsRequest, 2, (_D32[:31],)),
    (wire.Payloads, 1, (1_024,)),
    (wire.Payloads, 2, (_D32[:31],)),
    (wire.Payloads, 3, (b"\0" * 8_193, "")),
    (wire.PullRequest, 1, ([], [[1_024, _D32, _BITMAP]], [[0, _D32, _BITMAP[1:]]], [[0, _D32[1:], _BITMAP]])),
    (wire.PullRequest, 1, ([[0, _D32, _BITMAP]] * 257, [[0, _D32]])),
    (wire.PullDone, 1, (_U32 + 1, -1, True)),
    (wire.FileRequest, 0, (_D32[:31], _D32 + b"\0", "")),
    (wire.FileRequest, 1, (_U32 + 1, -1)),
    (wire.FilePart, 0, (_U32 + 1,)),
    (wire.FilePart, 1, (_U32 + 1,)),
    (wire.FilePart, 2, (b"\0" * 32_769, "text")),
    (wire.Attestations, 0, ([b"\0" * 135], [b"\0" * 137], [b"\0" * 136] * 257, ["x" * 136], b"\0")),
)


def messages() -> Document:
    """messages.json"""
    cases = [*_examples(), *_bounds(), *_integers(), *_counts(), *_bad_fields()]
    faults = [message_case(name, data, reason, *pieces) for name, data, reason, pieces in malformed()]
    seen = {written(each) for each in cases}
    beyond = [each for each in _beyond_bounds() if written(each) not in seen]
    return document("Messages, their fields and verdicts: SPEC 8.1, 8.2", [*cases, *faults, *beyond])


def written(made: Case) -> bytes:
    """The message of a case."""
    return as_bytes(made["input"]["data"])


def _beyond_bounds() -> Iterator[Case]:
    for kind in CLASSES:
        for what, row in beyond_bounds(kind):
            data = _packed(kind, row)
            is_long = any(isinstance(field, list) and len(field) > 1_024 for field in row)
            reason = "FRAME" if is_long else "MESSAGE_FIELD" if len(data) <= 65_536 else "SIZE"
            yield message_case(f"{kind.__name__}: beyond a bound: {what}", data, reason, *_rows(row), b"\0", b"x")
    largest = _packed(wire.Peers, [[["x" * 128, ["x" * 256] * 8]] * 28])
    yield message_case("Peers: as many addresses as fit", largest, None, *_rows([[["x", []]] * 2]), b"x")


def message_case(name: str, data: bytes, reason: str | None, *pieces: bytes) -> Case:
    """A case whose verdict is the one that was meant; reason ``ANY``: the specification leaves the reason open."""
    found = judged(lambda: _members(data))
    assert found["reason"] == reason or (reason == "ANY" and found["verdict"] == "REJECT"), (name, found)
    if reason == "ANY":
        found["reason"] = None
    written = compact(data, *pieces, readable=False)
    assert b"".join(map(as_bytes, written)) == data
    return case(name, "decode", {"data": written[0] if len(written) == 1 else written}, found)


def _members(data: bytes) -> dict[str, Any]:
    message = decode_untrusted(data)
    kind = type(message)
    fields = [_plain(value) for value in to_plain(message, as_rows=True)]
    for place in _U64_FIELDS.get(kind, ()):
        fields[place] = str(fields[place])
    if len(data) > _SHOWN_BYTES_MAX:
        return {"message": kind.__name__}
    return {"message": kind.__name__, "fields": fields}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return [_plain(item) for item in value] if isinstance(value, list) else value


def pack(kind: int, fields: Row) -> bytes:
    """Canonical msgpack of any row, also of one that is not a message."""
    packed: bytes = msgpack.packb([kind, *fields], use_bin_type=True)
    return packed


def _packed(kind: type[Message], fields: Row) -> bytes:
    return pack(CLASSES.index(kind), fields)


def _examples() -> Iterator[Case]:
    hello = wire.Hello(version=1, run_id=bytes(32), agent="sfnode/0.1", listen=(_ADDRESS,), head_step=0)
    chosen: dict[str, wire.Message] = {
        "Ping(300)": wire.Ping(nonce=300),
        "PeersRequest": wire.PeersRequest(),
        "SpansRequest(5)": wire.SpansRequest(request=5),
        "PullDone(5, 1)": wire.PullDone(request=5, records=1),
        "Hello": hello,
    }
    for name, message in chosen.items():
        yield message_case(f"example of SPEC 8.1: {name}", encode(message), None)


def _bounds() -> Iterator[Case]:
    for kind, (least, most) in BOUNDS.items():
        yield message_case(f"{kind.__name__}: least", _packed(kind, least), None)
        if most:
            yield message_case(f"{kind.__name__}: most", _packed(kind, most), None, *_rows(most), b"\0", b"x")
    yield message_case("Bye: 256 characters above U+FFFF", _packed(wire.Bye, [_FACE * 256]), None, _FACE.encode())
    yield message_case(
        "Bye: 257 characters above U+FFFF", _packed(wire.Bye, [_FACE * 257]), "MESSAGE_FIELD", _FACE.encode()
    )
    for text in ("\0", "\x7f", "\u00e9", "\u2028", "\ufeff", "\uffff", "\ud7ff\ue000"):
        yield message_case(f"Bye: {text.encode('unicode_escape').decode()}", _packed(wire.Bye, [text]), None)
    unordered = [0, 0, [[3, _D16], [3, _D16], [1, _D16]]]
    yield message_case("Shards: order is not the decoder's business", _packed(wire.Shards, unordered), None)
    yield message_case("Payloads: nor is a part of a hash", _packed(wire.Payloads, [0, 0, _D32, b"\0" * 7]), None)


def _rows(fields: Row) -> Iterator[bytes]:
    """The bytes of what a list repeats."""
    for field in fields:
        if isinstance(field, list) and len(field) > 1:
            yield pack(0, field[:1])[2:]


def _integers() -> Iterator[Case]:
    """Where the shortest form changes."""
    for value in (127, 128, 255, 256, 65_535, 65_536, _U32, _U32 + 1, 1 << 63):
        yield message_case(f"Ping: nonce {value}", _packed(wire.Ping, [value]), None)


def _counts() -> Iterator[Case]:
    for kind, (least, _) in BOUNDS.items():
        yield message_case(f"{kind.__name__}: a field more", _packed(kind, [*least, 0]), "MESSAGE_FIELD")
        if least:
            yield message_case(f"{kind.__name__}: a field less", _packed(kind, least[:-1]), "MESSAGE_FIELD")


def _bad_fields() -> Iterator[Case]:
    numbers: dict[type[Message], int] = {}
    for kind, place, values in BAD_FIELDS:
        for value in values:
            numbers[kind] = numbers.get(kind, 0) + 1
            row = [value if index == place else good for index, good in enumerate(BOUNDS[kind][0])]
            name = f"{kind.__name__}: bad field {numbers[kind]}, {_shown(value)} in place {place}"
            data = _packed(kind, row)
            reason = "MESSAGE_FIELD" if len(data) <= 65_536 else "SIZE"
            yield message_case(name, data, reason, *_rows([value]), b"\0", b"x")


def _shown(value: Any) -> str:
    if isinstance(value, str | bytes | list):
        return f"{type(value).__name__} of {len(value)}"
    return repr(value)
