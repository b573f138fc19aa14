"""Targets ``wire`` and ``rows``: the decoder of messages gives the verdict of a literal reading of SPEC 8."""

from __future__ import annotations

from collections.abc import Iterator

import msgpack

from protocol.errors import Reject
from protocol.wire import decode_untrusted, encode
from tests.fuzz import schema
from tests.fuzz.catalogue import Target
from tests.fuzz.choices import Choices
from tests.fuzz.verdicts import reason_of
from tests.support.sample_messages import MESSAGES


def check_payload(payload: bytes) -> None:
    """The verdict is the schema's, the same twice; what is accepted has one encoding; texts can be shown."""
    expected = schema.reason_to_reject(payload)
    found = [_verdict(payload) for _ in range(2)]
    assert found[0] == found[1], f"two verdicts: {found}"
    assert found[0] == expected, f"verdict {found[0]}, by the schema {expected}"


def _verdict(payload: bytes) -> str | None:
    try:
        message = decode_untrusted(payload)
    except Reject as reject:
        return reason_of(reject)
    assert encode(message) == payload
    return None


def payload_seeds() -> Iterator[bytes]:
    """A message of each kind."""
    return map(encode, MESSAGES)


def check_row(data: bytes) -> None:
    """A message whose fields are mostly valid, at a bound or just beyond, sometimes of another type."""
    choices = Choices(data)
    number = choices.below(len(schema.MESSAGES) + 1)
    kind = schema.MESSAGES.get(number, schema.Row((schema.U32,)))
    row = [_value(field, choices) for field in kind.fields]
    if choices.one_in(16):
        row.append(_other(choices))
    check_payload(msgpack.packb([number, *row]))


def _value(kind: schema.Kind, choices: Choices) -> object:
    if choices.one_in(16):
        return _other(choices)
    match kind:
        case schema.Integer():
            beyond = min(kind.high + 1, 2**64 - 1)  # msgpack has no larger ones
            return choices.pick((kind.low, 1, 7, choices.below(256), kind.high, beyond, -1))
        case schema.Octets():
            return bytes([choices.byte()]) * _length(kind.low, kind.high, choices)
        case schema.Text():
            return choices.pick(("a", "\0", "\u00fc", "\U0001f600")) * _length(kind.low, kind.high, choices)
        case schema.Flag():
            return choices.pick((False, True))
        case schema.Row():
            return [_value(field, choices) for field in kind.fields]
        case schema.Several():
            count = _length(kind.low, kind.high, choices)
            few = [_value(kind.item, choices) for _ in range(min(count, 4))]
            return few + few[-1:] * (count - len(few))


def _length(low: int, high: int, choices: Choices) -> int:
    """Small, at times at a bound or beyond it: long ones cost speed."""
    usual = min(high, low + choices.below(4))
    if not choices.one_in(64):
        return usual
    return choices.pick((low, high, high + 1, max(0, low - 1)))


def _other(choices: Choices) -> object:
    return choices.pick((None, True, -1, 0.5, "x", b"x", [], [[]], {}, {"a": 1}, 2**64 - 1, msgpack.ExtType(5, b"")))


def row_seeds() -> Iterator[bytes]:
    """Each kind with all choices zero, and with some."""
    for number in schema.MESSAGES:
        yield bytes([number])
        yield bytes([number]) + bytes((number * 7 + index * 3) % 256 for index in range(24))


TARGETS = {
    "wire": Target(check=check_payload, seeds=payload_seeds),
    "rows": Target(check=check_row, seeds=row_seeds),
}
