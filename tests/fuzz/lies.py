"""Messages that differ a little from honest ones, as a peer that lies would send them; and any request at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from protocol.errors import Reject
from protocol.ledger.digest_buckets import bitmap_of, shard_of
from protocol.sync.anti_entropy import Request
from protocol.wire import (
    AuthorsRequest,
    Message,
    PayloadsRequest,
    PullRequest,
    ShardsRequest,
    SpansRequest,
    WantedSlots,
    decode_untrusted,
    encode,
)
from tests.fuzz.choices import Choices
from tests.support.ledgers import signer

AUTHORS = tuple(signer(number).author for number in range(4))


def lie(message: Message, choices: Choices) -> Message | None:
    """The message with one part changed; None where the result is not a message."""
    try:
        return decode_untrusted(encode(_changed(message, choices)))
    except (Reject, OverflowError):
        return None


def _changed(value: Any, choices: Choices) -> Any:
    if is_dataclass(value):
        if not fields(value):
            return value
        name = choices.pick(fields(value)).name
        return replace(value, **{name: _changed(getattr(value, name), choices)})  # type: ignore[type-var]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return choices.pick((value + 1, max(0, value - 1), 0, choices.byte()))
    if isinstance(value, bytes):
        return _changed_bytes(value, choices)
    if isinstance(value, tuple):
        return _changed_items(value, choices)
    return "?"


def _changed_bytes(value: bytes, choices: Choices) -> bytes:
    if not value:
        return choices.short()
    at, mask = choices.below(len(value)), choices.byte()
    flipped = value[:at] + bytes([value[at] ^ mask]) + value[at + 1 :]
    return choices.pick(
        (flipped, flipped, flipped, bytes(len(value)), b"\xff" * len(value), value[:-8], value + value[:8])
    )


def _changed_items(value: tuple[Any, ...], choices: Choices) -> tuple[Any, ...]:
    if not value:
        return value
    at = choices.below(len(value))
    one = (*value[:at], _changed(value[at], choices), *value[at + 1 :])
    return choices.pick((one, one, one, value[:at] + value[at + 1 :], value + value[at : at + 1], value[::-1], ()))


def any_request(choices: Choices) -> Request:
    """A well-formed request about anything."""
    number, span = choices.below(3), choices.pick((0, 0, 0, 1, 1_023))
    author = choices.pick((*AUTHORS, bytes(32), b"\xff" * 32))
    match choices.below(5):
        case 0:
            return SpansRequest(request=number)
        case 1:
            return ShardsRequest(request=number, span=span)
        case 2:
            return AuthorsRequest(request=number, span=span, shards=_shards(choices), after=author)
        case 3:
            return PayloadsRequest(request=number, span=span, author=author)
        case _:
            pieces = [WantedSlots(span=span, author=author, steps=_steps(choices)) for author in _authors(choices)]
            return PullRequest(request=number, wanted=tuple(pieces))


def _shards(choices: Choices) -> tuple[int, ...]:
    known = tuple(map(shard_of, AUTHORS))
    return choices.pick((known, known[::-1], known[:1] * 3, tuple(range(256)), (choices.byte(),)))


def _steps(choices: Choices) -> bytes:
    return choices.pick((b"\xff" * 128, bytes(128), bitmap_of([choices.below(1_024)]), choices.take(128)))


def _authors(choices: Choices) -> Sequence[bytes]:
    return choices.pick((AUTHORS, AUTHORS[:1], AUTHORS[:1] * 256, AUTHORS * 64, (bytes(32),)))
