"""Vectors of messages (SPEC 8.1, 8.2): every kind at its bounds, and every way in which bytes fail to be a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import msgpack

from protocol import wire
from protocol.schema import to_plain
from protocol.wire import Kind, decode_untrusted, encode
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
_U64_FIELDS = {Kind.PING: (0,), Kind.PONG: (0,), Kind.HEAD: (2,)}

# Smallest and largest content of every kind that SPEC 8.1 allows: rows of fields in wire order.
BOUNDS: dict[Kind, tuple[Row, Row]] = {
    Kind.HELLO: ([0, bytes(32), "", [], 0], [_U32, _D32, "x" * 256, ["x" * 256] * 8, _U32]),
    Kind.PING: ([0], [_U64]),
    Kind.PONG: ([0], [_U64]),
    Kind.PEERS_REQUEST: ([], []),
    Kind.PEERS: ([[]], [[["x" * 128, ["x" * 256] * 2]] * 64]),
    Kind.MANIFEST_REQUEST: ([0], [_U32]),
    Kind.MANIFEST_PART: ([0, 0, b""], [_U32, _U32, b"\0" * 32_768]),
    Kind.BYE: ([""], ["x" * 256]),
    Kind.RECORDS: ([0, b""], [_U32, b"\0" * 65_472]),
    Kind.HEAD: ([bytes(32), bytes(32), 0, 0, 0], [_D32, b"\xff" * 32, _U64, _U32, 16]),
    Kind.SPANS_REQUEST: ([0], [_U32]),
    Kind.SPANS: ([0, bytes(16), []], [_U32, _D16, [[1_023, _D16]] * 1_024]),
    Kind.SHARDS_REQUEST: ([0, 0], [_U32, 1_023]),
    Kind.SHARDS: ([0, 0, []], [_U32, 1_023, [[255, _D16]] * 256]),
    Kind.AUTHORS_REQUEST: ([0, 0, [0], bytes(32)], [_U32, 1_023, [255] * 256, _D32]),
    Kind.AUTHORS: ([0, 0, [], False], [_U32, 1_023, [[_D32, _D16, _BITMAP, _BITMAP]] * 128, True]),
    Kind.PAYLOADS_REQUEST: ([0, 0, bytes(32)], [_U32, 1_023, _D32]),
    Kind.PAYLOADS: ([0, 0, bytes(32), b""], [_U32, 1_023, _D32, b"\0" * 8_192]),
    Kind.PULL_REQUEST: ([0, [[0, bytes(32), bytes(128)]]], [_U32, [[1_023, _D32, _BITMAP]] * 256]),
    Kind.PULL_DONE: ([0, 0], [_U32, _U32]),
    Kind.FILE_REQUEST: ([bytes(32), 0], [_D32, _U32]),
    Kind.FILE_PART: ([0, 0, b""], [_U32, _U32, b"\0" * 32_768]),
    Kind.STATEMENTS_REQUEST: ([0, bytes(33)], [_U32, b"\xff" * 33]),
    Kind.STATEMENTS: ([0, [], False], [_U32, [b"\xff" * 193] * 256, True]),
    Kind.ATTESTATIONS_REQUEST: ([], []),
    Kind.ATTESTATIONS: ([[]], [[b"\xff" * 136] * 256]),
}
# One beyond a bound, or of another type: kind, place of the field, bad values.
BAD_FIELDS: tuple[tuple[Kind, int, tuple[Any, ...]], ...] = (
    (Kind.HELLO, 0, (_U32 + 1, -1, True, "1", None, 1.0)),
    (Kind.HELLO, 1, (_D32[:31], _D32 + b"\0", _D32.hex(), "x" * 32)),
    (Kind.HELLO, 2, ("x" * 257, b"agent", 0)),
    (Kind.HELLO, 3, (["x"] * 9, [""], ["x" * 257], [b"x"], "x")),
    (Kind.HELLO, 4, (_U32 + 1, -1, False)),
    (Kind.PING, 0, (-1, True, 1.0, None, "1", b"1", [1])),
    (Kind.PONG, 0, (-1, False)),
    (Kind.PEERS, 0, ([["x", []]] * 65, [["", []]], [["x" * 129, []]], [["x", ["x"] * 9]], [["x"]], [["x", [], 0]], 0)),
    (Kind.MANIFEST_REQUEST, 0, (_U32 + 1, -1)),
    (Kind.MANIFEST_PART, 0, (_U32 + 1,)),
    (Kind.MANIFEST_PART, 1, (_U32 + 1,)),
    (Kind.MANIFEST_PART, 2, (b"\0" * 32_769, "text")),
    (Kind.BYE, 0, ("x" * 257, b"bye", None)),
    (Kind.RECORDS, 0, (_U32 + 1,)),
    (Kind.RECORDS, 1, (b"\0" * 65_473, "", [])),
    (Kind.HEAD, 0, (_D32[:31],)),
    (Kind.HEAD, 1, (_D32 + b"\0",)),
    (Kind.HEAD, 2, (-1, True)),
    (Kind.HEAD, 3, (_U32 + 1,)),
    (Kind.HEAD, 4, (17, -1, True)),
    (Kind.SPANS_REQUEST, 0, (_U32 + 1, True)),
    (Kind.SPANS, 1, (_D16[:15], _D16 + b"\0", None)),
    (Kind.SPANS, 2, ([[1_024, _D16]], [[0, _D16[:15]]], [[0, _D16 + b"\0"]], [[0]], [0, _D16], [[True, _D16]])),
    (Kind.STATEMENTS_REQUEST, 0, (_U32 + 1,)),
    (Kind.STATEMENTS_REQUEST, 1, (bytes(32), bytes(34), "")),
    (Kind.STATEMENTS, 1, ([b""], [b"\0" * 194], [b"\0"] * 257, ["text"], b"\0")),
    (Kind.STATEMENTS, 2, (0, 1, None)),
    (Kind.SHARDS_REQUEST, 1, (1_024, -1)),
    (Kind.SHARDS, 1, (1_024,)),
    (Kind.SHARDS, 2, ([[256, _D16]], [[0, _D16]] * 257, [[0, _D32]])),
    (Kind.AUTHORS_REQUEST, 1, (1_024,)),
    (Kind.AUTHORS_REQUEST, 2, ([], [256], [0] * 257, [-1], [True])),
    (Kind.AUTHORS_REQUEST, 3, (_D32[:31], b"")),
    (Kind.AUTHORS, 1, (1_024,)),
    (Kind.AUTHORS, 2, ([[_D32, _D16, _BITMAP, _BITMAP]] * 129, [[_D32, _D16, _BITMAP, _BITMAP + b"\0"]])),
    (Kind.AUTHORS, 2, ([[_D32, _D16, _BITMAP[:127], _BITMAP]], [[_D32, _D16, _BITMAP]], [[_D16, _D16, b"", b""]])),
    (Kind.AUTHORS, 3, (0, 1, None)),
    (Kind.PAYLOADS_REQUEST, 1, (1_024,)),
    (Kind.PAYLOADS_REQUEST, 2, (_D32[:31],)),
    (Kind.PAYLOADS, 1, (1_024,)),
    (Kind.PAYLOADS, 2, (_D32[:31],)),
    (Kind.PAYLOADS, 3, (b"\0" * 8_193, "")),
    (Kind.PULL_REQUEST, 1, ([], [[1_024, _D32, _BITMAP]], [[0, _D32, _BITMAP[1:]]], [[0, _D32[1:], _BITMAP]])),
    (Kind.PULL_REQUEST, 1, ([[0, _D32, _BITMAP]] * 257, [[0, _D32]])),
    (Kind.PULL_DONE, 1, (_U32 + 1, -1, True)),
    (Kind.FILE_REQUEST, 0, (_D32[:31], _D32 + b"\0", "")),
    (Kind.FILE_REQUEST, 1, (_U32 + 1, -1)),
    (Kind.FILE_PART, 0, (_U32 + 1,)),
    (Kind.FILE_PART, 1, (_U32 + 1,)),
    (Kind.FILE_PART, 2, (b"\0" * 32_769, "text")),
    (Kind.ATTESTATIONS, 0, ([b"\0" * 135], [b"\0" * 137], [b"\0" * 136] * 257, ["x" * 136], b"\0")),
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
    for kind in Kind:
        for what, row in beyond_bounds(kind.declared):
            data = pack(kind, row)
            is_long = any(isinstance(field, list) and len(field) > 1_024 for field in row)
            reason = "FRAME" if is_long else "MESSAGE_FIELD" if len(data) <= 65_536 else "SIZE"
            yield message_case(f"{_name(kind)}: beyond a bound: {what}", data, reason, *_rows(row), b"\0", b"x")
    largest = pack(Kind.PEERS, [[["x" * 128, ["x" * 256] * 8]] * 28])
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
    kind = next(kind for kind in Kind if getattr(wire, _name(kind)) is type(message))
    fields = [_plain(value) for value in to_plain(message, as_rows=True)]
    for place in _U64_FIELDS.get(kind, ()):
        fields[place] = str(fields[place])
    if len(data) > _SHOWN_BYTES_MAX:
        return {"message": _name(kind)}
    return {"message": _name(kind), "fields": fields}


def _name(kind: Kind) -> str:
    return kind.name.title().replace("_", "")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    return [_plain(item) for item in value] if isinstance(value, list) else value


def pack(kind: int, fields: Row) -> bytes:
    """Canonical msgpack of any row, also of one that is not a message."""
    packed: bytes = msgpack.packb([kind, *fields], use_bin_type=True)
    return packed


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
        yield message_case(f"{_name(kind)}: least", pack(kind, least), None)
        if most:
            yield message_case(f"{_name(kind)}: most", pack(kind, most), None, *_rows(most), b"\0", b"x")
    yield message_case("Bye: 256 characters above U+FFFF", pack(Kind.BYE, [_FACE * 256]), None, _FACE.encode())
    yield message_case(
        "Bye: 257 characters above U+FFFF", pack(Kind.BYE, [_FACE * 257]), "MESSAGE_FIELD", _FACE.encode()
    )
    for text in ("\0", "\x7f", "\u00e9", "\u2028", "\ufeff", "\uffff", "\ud7ff\ue000"):
        yield message_case(f"Bye: {text.encode('unicode_escape').decode()}", pack(Kind.BYE, [text]), None)
    unordered = [0, 0, [[3, _D16], [3, _D16], [1, _D16]]]
    yield message_case("Shards: order is not the decoder's business", pack(Kind.SHARDS, unordered), None)
    yield message_case("Payloads: nor is a part of a hash", pack(Kind.PAYLOADS, [0, 0, _D32, b"\0" * 7]), None)


def _rows(fields: Row) -> Iterator[bytes]:
    """The bytes of what a list repeats."""
    for field in fields:
        if isinstance(field, list) and len(field) > 1:
            yield pack(0, field[:1])[2:]


def _integers() -> Iterator[Case]:
    """Where the shortest form changes."""
    for value in (127, 128, 255, 256, 65_535, 65_536, _U32, _U32 + 1, 1 << 63):
        yield message_case(f"Ping: nonce {value}", pack(Kind.PING, [value]), None)


def _counts() -> Iterator[Case]:
    for kind, (least, _) in BOUNDS.items():
        yield message_case(f"{_name(kind)}: a field more", pack(kind, [*least, 0]), "MESSAGE_FIELD")
        if least:
            yield message_case(f"{_name(kind)}: a field less", pack(kind, least[:-1]), "MESSAGE_FIELD")


def _bad_fields() -> Iterator[Case]:
    numbers: dict[Kind, int] = {}
    for kind, place, values in BAD_FIELDS:
        for value in values:
            numbers[kind] = numbers.get(kind, 0) + 1
            row = [value if index == place else good for index, good in enumerate(BOUNDS[kind][0])]
            name = f"{_name(kind)}: bad field {numbers[kind]}, {_shown(value)} in place {place}"
            data = pack(kind, row)
            reason = "MESSAGE_FIELD" if len(data) <= 65_536 else "SIZE"
            yield message_case(name, data, reason, *_rows([value]), b"\0", b"x")


def _shown(value: Any) -> str:
    if isinstance(value, str | bytes | list):
        return f"{type(value).__name__} of {len(value)}"
    return repr(value)
