"""Bytes that are not a message (SPEC 8.2), spelled by hand: no msgpack library would write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

Fault: TypeAlias = tuple[str, bytes, str | None, tuple[bytes, ...]]  # name, bytes, reason, pieces that repeat

_FRAME, _KIND, _FIELD = "FRAME", "MESSAGE_KIND", "MESSAGE_FIELD"
_NOT_CANONICAL = "MESSAGE_NOT_CANONICAL"
_ZEROS_32 = b"\xc4\x20" + bytes(32)


def malformed() -> Iterator[Fault]:
    """Each with the reason that is meant."""
    for group in (_no_message, _no_kind, _types, _spellings, _too_long, _nested):
        for name, data, reason in group():
            yield name, data, reason, (b"\0", b"\x91", b"\xc0", b"\x92\x01")


_Rows: TypeAlias = Iterator[tuple[str, bytes, str | None]]


def _no_message() -> _Rows:
    for name, data in {
        "nothing": b"",
        "an integer": b"\x01",
        "nil": b"\xc0",
        "text": b"\xa5hello",
        "bytes": b"\xc4\x01\x00",
        "an empty array": b"\x90",
        "an empty map": b"\x80",
        "a map": b"\x81\x01\x02",
        "a map of 65536": b"\xdf\x00\x01\x00\x00",
        "an extension": b"\xd4\x00\x00",
        "the byte that msgpack never uses": b"\xc1",
        "cut after the head": b"\x92",
        "cut in an integer": b"\x92\x01\xcd\x01",
        "cut in text": b"\x92\x07\xa5hel",
        "cut in bytes": b"\x93\x08\x00\xc4\x05\x00",
        "cut in an array head": b"\xdc\x00",
        "a byte more": b"\x92\x01\x00\x00",
        "two messages": b"\x92\x01\x00\x92\x01\x00",
        "an unused byte inside": b"\x92\x01\xc1",
        "a map inside": b"\x92\x01\x81\x01\x02",
        "an extension inside": b"\x92\x01\xd4\x05\x00",
        "an extension of 16 bytes inside": b"\x92\x01\xd8\x05" + bytes(16),
        "a time inside": b"\x92\x01\xd6\xff\x00\x00\x00\x00",
        "text that is no UTF-8": b"\x92\x07\xa1\xff",
        "text cut inside a character": b"\x92\x07\xa1\xc3",
        "text with half of a surrogate pair": b"\x92\x07\xa3\xed\xa0\x80",
        "text with a character in too many bytes": b"\x92\x07\xa2\xc0\x80",
        "text beyond U+10FFFF": b"\x92\x07\xa4\xf4\x90\x80\x80",
        "an array of 1025": b"\xdc\x04\x01" + bytes(1_025),
        "an array of 1025 inside": b"\x92\x01\xdc\x04\x01" + bytes(1_025),
        "an array that claims 2^32 - 1": b"\xdd\xff\xff\xff\xff\x01",
        "bytes that claim 2^32 - 1": b"\x93\x08\x00\xc6\xff\xff\xff\xff\x00",
        "text that claims 2^32 - 1": b"\x92\x07\xdb\xff\xff\xff\xffx",
    }.items():
        yield f"no message: {name}", data, _FRAME
    # Parsers that bound the size of a map or extension may let an empty one pass to the check of types.
    yield "an empty map inside", b"\x92\x01\x80", "ANY"
    yield "an empty extension inside", b"\x92\x01\xc7\x00\x05", "ANY"


def _no_kind() -> _Rows:
    for name, data in {
        "true": b"\x92\xc3\x00",
        "false": b"\x96\xc2" + _ZEROS_32,
        "nil": b"\x91\xc0",
        "a fraction": b"\x92\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00\x00",
        "text": b"\x92\xa1\x01\x00",
        "an array": b"\x92\x91\x01\x00",
    }.items():
        # The second one also lacks fields: an array with fewer values than it claims is a fault of the frame, too.
        yield f"kind: {name}", data, _FRAME
    for name, data in {
        "26": b"\x91\x1a",
        "127": b"\x91\x7f",
        "255": b"\x91\xcc\xff",
        "-1": b"\x91\xff",
        "-128": b"\x91\xd0\x80",
        "2^64 - 1": b"\x91\xcf" + b"\xff" * 8,
        "26, with an array of 1024": b"\xdc\x04\x00\x1a" + bytes(1_023),
        "26, not canonical": b"\x91\xcc\x1a",
    }.items():
        yield f"kind: {name}", data, _KIND


def _types() -> _Rows:
    for name, data in {
        "an array of 1024": b"\xdc\x04\x00\x03" + bytes(1_023),
        "true is no integer": b"\x92\x01\xc3",
        "a fraction that is whole": b"\x92\x01\xca\x3f\x80\x00\x00",
        "not a number": b"\x92\x01\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
        "an integer below 0": b"\x92\x01\xe0",
        "the least integer": b"\x92\x01\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
        "text where bytes belong": b"\x96\x00\x01\xd9\x20" + bytes(32) + b"\xa0\x90\x00",
        "bytes where text belongs": b"\x92\x07\xc4\x01x",
        "an integer where an array belongs": b"\x92\x04\x00",
        "an array where an integer belongs": b"\x92\x01\x90",
        "nil where an integer belongs": b"\x92\x01\xc0",
        "an integer where a boolean belongs": b"\x95\x0f\x00\x00\x90\x00",
        "field before canonical form": b"\x92\x0a\xcf\x00\x00\x00\x01\x00\x00\x00\x00",
        "field before canonical form, another field": b"\xdc\x00\x02\x0a\xc3",
    }.items():
        yield f"field: {name}", data, _FIELD


def _spellings() -> _Rows:
    """Values that are right, in a longer form than the shortest."""
    for name, data in {
        "kind as u8": b"\x92\xcc\x01\x00",
        "kind as u16": b"\x92\xcd\x00\x01\x00",
        "kind as i8": b"\x92\xd0\x01\x00",
        "0 as u8": b"\x92\x01\xcc\x00",
        "5 as u8": b"\x92\x01\xcc\x05",
        "5 as u16": b"\x92\x01\xcd\x00\x05",
        "5 as u32": b"\x92\x01\xce\x00\x00\x00\x05",
        "5 as u64": b"\x92\x01\xcf" + bytes(7) + b"\x05",
        "5 as i8": b"\x92\x01\xd0\x05",
        "5 as i16": b"\x92\x01\xd1\x00\x05",
        "5 as i32": b"\x92\x01\xd2\x00\x00\x00\x05",
        "5 as i64": b"\x92\x01\xd3" + bytes(7) + b"\x05",
        "300 as i16": b"\x92\x01\xd1\x01\x2c",
        "300 as u32": b"\x92\x01\xce\x00\x00\x01\x2c",
        "array head of 3 bytes": b"\xdc\x00\x02\x01\x05",
        "array head of 5 bytes": b"\xdd\x00\x00\x00\x02\x01\x05",
        "empty list with a head of 3 bytes": b"\x92\x04\xdc\x00\x00",
        "text head of 2 bytes": b"\x92\x07\xd9\x01x",
        "text head of 3 bytes": b"\x92\x07\xda\x00\x01x",
        "text head of 5 bytes": b"\x92\x07\xdb\x00\x00\x00\x01x",
        "text of 32 bytes, head of 3": b"\x92\x07\xda\x00\x20" + b"y" * 32,
        "bytes head of 3 bytes": b"\x93\x08\x00\xc5\x00\x01z",
        "bytes head of 5 bytes": b"\x93\x08\x00\xc6\x00\x00\x00\x01z",
        "bytes of 256, head of 5": b"\x93\x08\x00\xc6\x00\x00\x01\x00" + b"z" * 256,
    }.items():
        yield f"not canonical: {name}", data, _NOT_CANONICAL


def _too_long() -> _Rows:
    yield "size: 65537 bytes, no message", bytes(65_537), "SIZE"
    yield "size: 65537 bytes of records", b"\x93\x08\x00\xc6\x00\x00\xff\xf9" + bytes(65_529), "SIZE"
    yield "size: 65536 bytes of records", b"\x93\x08\x00\xc6\x00\x00\xff\xf8" + bytes(65_528), _FIELD
    yield "size: 65536 bytes, no message", bytes(65_536), _FRAME


def _nested() -> _Rows:
    """Depth: however a parser takes it, such bytes are refused."""
    yield "nested: 8 deep", b"\x92\x01" + b"\x91" * 8 + b"\xc0", _FIELD
    yield "nested: 65,000 deep", b"\x91" * 65_000 + b"\xc0", "ANY"
    yield "nested: 65,000 deep in a field", b"\x92\x01" + b"\x91" * 65_000 + b"\xc0", "ANY"
    yield "nested: 30,000 deep and wide", b"\x92\x01" * 30_000 + b"\xc0", "ANY"
    yield "an array of 1024 arrays", b"\x92\x04\xdc\x04\x00" + b"\x90" * 1_024, _FIELD
