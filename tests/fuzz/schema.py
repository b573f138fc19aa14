"""The messages of SPEC 8.1 as a table, and a decoder that follows it literally: what ``protocol.wire`` is held against.

Written from the specification alone, slow and plain. It must not import ``protocol.wire`` or ``protocol.schema``.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

FRAME_BYTES_MAX = 65_536
ARRAY_MAX = 1_024


@dataclass(frozen=True, slots=True)
class Integer:
    """low ... high; a bool does not count as an integer."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Octets:
    """low ... high bytes."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Text:
    """low ... high code points."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""


@dataclass(frozen=True, slots=True)
class Row:
    """A fixed number of fields."""

    fields: tuple[Kind, ...]


@dataclass(frozen=True, slots=True)
class Several:
    """low ... high items."""

    item: Kind
    low: int
    high: int


Kind = Integer | Octets | Text | Flag | Row | Several

U32, U64 = Integer(0, 2**32 - 1), Integer(0, 2**64 - 1)
B16, B32, BITMAP = Octets(16, 16), Octets(32, 32), Octets(128, 128)
SPAN, SHARD = Integer(0, 1_023), Integer(0, 255)
ADDRESSES = Several(Text(1, 256), 0, 8)

MESSAGES: dict[int, Row] = {
    0: Row((U32, B32, Text(0, 256), ADDRESSES, U32)),
    1: Row((U64,)),
    2: Row((U64,)),
    3: Row(()),
    4: Row((Several(Row((Text(1, 128), ADDRESSES)), 0, 64),)),
    5: Row((U32,)),
    6: Row((U32, U32, Octets(0, 32_768))),
    7: Row((Text(0, 256),)),
    8: Row((U32, Octets(0, 65_472))),
    9: Row((B32, B32, U64, U32, Integer(0, 16))),
    10: Row((U32,)),
    11: Row((U32, B16, Several(Row((SPAN, B16)), 0, 1_024))),
    12: Row((U32, SPAN)),
    13: Row((U32, SPAN, Several(Row((SHARD, B16)), 0, 256))),
    14: Row((U32, SPAN, Several(SHARD, 1, 256), B32)),
    15: Row((U32, SPAN, Several(Row((B32, B16, BITMAP, BITMAP)), 0, 128), Flag())),
    16: Row((U32, SPAN, B32)),
    17: Row((U32, SPAN, B32, Octets(0, 8_192))),
    18: Row((U32, Several(Row((SPAN, B32, BITMAP)), 1, 256))),
    19: Row((U32, U32)),
    20: Row((B32, U32)),
    21: Row((U32, U32, Octets(0, 32_768))),
    22: Row((U32, Octets(33, 33))),
    23: Row((U32, Several(Octets(1, 193), 0, 256), Flag())),
    24: Row(()),
    25: Row((Several(Octets(136, 136), 0, 256),)),
}


def reason_to_reject(payload: bytes) -> str | None:
    """The name of the reason of SPEC 8.2 for which the payload is rejected, None for a message."""
    if len(payload) > FRAME_BYTES_MAX:
        return "SIZE"
    try:
        row = msgpack.unpackb(payload, raw=False, max_map_len=0, max_ext_len=0, max_array_len=ARRAY_MAX)
    except ValueError:  # all that msgpack documents for bad bytes derive from it
        return "FRAME"
    if not isinstance(row, list) or not row or type(row[0]) is not int:
        return "FRAME"
    if row[0] not in MESSAGES:
        return "MESSAGE_KIND"
    if not fits(MESSAGES[row[0]], row[1:]):
        return "MESSAGE_FIELD"
    return None if msgpack.packb(row) == payload else "MESSAGE_NOT_CANONICAL"


def fits(kind: Kind, value: object) -> bool:
    """Whether ``value`` is of the kind and within its bounds."""
    match kind, value:
        case Integer(), int() if not isinstance(value, bool):
            return kind.low <= value <= kind.high
        case Octets(), bytes():
            return kind.low <= len(value) <= kind.high
        case Text(), str():
            return kind.low <= len(value) <= kind.high
        case Flag(), bool():
            return True
        case Row(), list():
            return len(value) == len(kind.fields) and all(map(fits, kind.fields, value))
        case Several(), list():
            return kind.low <= len(value) <= kind.high and all(fits(kind.item, item) for item in value)
    return False
