"""Messages: one encoding each; whatever is not it raises Reject and nothing else, and costs little."""

from __future__ import annotations

import time
from dataclasses import fields

import msgpack
import pytest
from hypothesis import given, strategies as st

from protocol import limits
from protocol.errors import Reject, RejectReason
from protocol.wire import (
    CLASSES,
    AuthorHoldings,
    Message,
    PeerAddress,
    ShardDigest,
    SpanDigest,
    WantedSlots,
    decode_untrusted,
    encode,
)
from tests.support.sample_messages import D16, MAP, MESSAGES, A

NAMES = [type(message).__name__ for message in MESSAGES]
Reason = RejectReason


def verdict(payload: bytes) -> RejectReason | None:
    """What the decoder says of the payload; None: it is accepted. What it accepts must be canonical."""
    try:
        message = decode_untrusted(payload)
    except Reject as reject:
        return reject.reason
    assert encode(message) == payload
    return None


def test_messages__of_all_kinds__are_in_this_list_in_their_order() -> None:
    assert [encode(message)[1] for message in MESSAGES] == list(range(len(CLASSES))) == list(range(26))


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_message__encoded_and_decoded__is_equal(message: Message) -> None:
    assert decode_untrusted(encode(message)) == message


@pytest.mark.parametrize(
    ("number", "expected"), [(1, "9201cd012c"), (3, "9103"), (10, "920a05"), (19, "93130501")], ids=str
)
def test_message__examples_of_the_specification__have_these_bytes(number: int, expected: str) -> None:
    assert encode(MESSAGES[number]).hex() == expected
    hello = "960002c420" + "00" * 32 + "aa73666e6f64652f302e3191b62f6970342f31302e302e302e312f7463702f3430303100"
    assert encode(MESSAGES[0]).hex() == hello


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_message__cut_anywhere_or_with_more_behind__is_rejected(message: Message) -> None:
    payload = encode(message)
    assert {verdict(payload[:length]) for length in range(len(payload))} == {Reason.FRAME}
    assert verdict(payload + b"\0") is Reason.FRAME


@given(st.binary(max_size=64))
def test_message__any_bytes__are_rejected_or_canonical(payload: bytes) -> None:
    verdict(payload)
    verdict(b"\x92\x0a" + payload)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=40) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=5),
        max_leaves=12,
    )
)
def test_message__any_structure__is_rejected_or_canonical(data: object) -> None:
    verdict(msgpack.packb(data))
    for kind in (0, 4, 11, 15, 18):
        verdict(msgpack.packb([kind, data, data]))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", Reason.FRAME),
        (b"\x90", Reason.FRAME),
        (b"\xc0", Reason.FRAME),
        (b"\x91\xc3", Reason.FRAME),
        (b"\x91\xa0", Reason.FRAME),
        (b"\x81\x01\x02", Reason.FRAME),
        (b"\x91\x1a", Reason.MESSAGE_KIND),
        (b"\x91\xff", Reason.MESSAGE_KIND),
        (b"\x91\x01", Reason.MESSAGE_FIELD),
        (b"\x93\x01\x05\x05", Reason.MESSAGE_FIELD),
        (b"\x92\x01\xc3", Reason.MESSAGE_FIELD),
        (b"\x92\x01\xff", Reason.MESSAGE_FIELD),
        (b"\x92\x01\xcb\x3f\xf0\0\0\0\0\0\0", Reason.MESSAGE_FIELD),
        (b"\x92\x01\x80", Reason.MESSAGE_FIELD),
        (b"\x92\x07\xc4\x01a", Reason.MESSAGE_FIELD),
        (b"\x92\x07\xa1\xff", Reason.FRAME),
        (b"\x92\x01\xc7\x00\x05", Reason.MESSAGE_FIELD),
        (b"\x92\x01\xd4\x05\x00", Reason.FRAME),
        (b"\x92\x01\xc7\x00\xff", Reason.FRAME),
        (b"\xdc\x00\x02\x01\x05", Reason.MESSAGE_NOT_CANONICAL),
        (b"\x92\x01\xcc\x05", Reason.MESSAGE_NOT_CANONICAL),
        (b"\x92\x01\xcf\0\0\0\0\0\0\0\x05", Reason.MESSAGE_NOT_CANONICAL),
        (b"\x92\x01\xd3\0\0\0\0\0\0\0\x05", Reason.MESSAGE_NOT_CANONICAL),
        (b"\x92\x07\xd9\x01a", Reason.MESSAGE_NOT_CANONICAL),
        (b"\x00" * (limits.FRAME_BYTES_MAX + 1), Reason.SIZE),
    ],
)
def test_message__not_well_formed__is_rejected_with_its_reason(payload: bytes, reason: RejectReason) -> None:
    assert verdict(payload) is reason


@pytest.mark.parametrize(
    ("message", "field", "bad"),
    [
        (0, "run_id", bytes(31)),
        (0, "agent", "x" * 257),
        (0, "listen", ("",)),
        (0, "listen", ("x",) * 9),
        (0, "head_step", 2**32),
        (4, "peers", (PeerAddress(peer="a", addresses=()),) * 65),
        (4, "peers", (PeerAddress(peer="", addresses=()),)),
        (6, "data", bytes(limits.PART_BYTES_MAX + 1)),
        (7, "reason", "x" * 257),
        (9, "root", bytes(33)),
        (9, "updates", -1),
        (11, "spans", (SpanDigest(span=1_024, digest=D16),)),
        (11, "spans", (SpanDigest(span=0, digest=bytes(15)),)),
        (13, "shards", (ShardDigest(shard=256, digest=D16),)),
        (14, "shards", ()),
        (14, "shards", (1,) * 257),
        (15, "authors", (AuthorHoldings(author=A, digest=D16, valid=MAP[:-1], void=MAP),)),
        (15, "is_last", 1),
        (17, "hashes", bytes(8_193)),
        (18, "wanted", ()),
        (18, "wanted", (WantedSlots(span=0, author=A, steps=MAP),) * 257),
    ],
)
def test_message__field_beyond_its_bound__is_rejected_by_name(message: int, field: str, bad: object) -> None:
    original = MESSAGES[message]
    values = {entry.name: getattr(original, entry.name) for entry in fields(original)}
    payload = encode(type(original)(**{**values, field: bad}))
    with pytest.raises(Reject, match=field) as caught:
        decode_untrusted(payload)
    assert caught.value.reason is Reason.MESSAGE_FIELD


BOMBS = {
    "nested-arrays": b"\x91" * 65_000,
    "wide-arrays": b"\x92\x0b\xdc\xff\xff" + b"\x90" * 65_000,
    "promised-array": b"\xdd\xff\xff\xff\xff" * 10,
    "promised-bytes": b"\x92\x01\xc6\xff\xff\xff\xff",
    "promised-map": b"\x92\x01\xdf\xff\xff\xff\xff",
    "arrays-of-arrays": (b"\xdc\x04\x00" + b"\x90" * 1_024) * 60,
    "long-text": b"\x92\x07\xda\xff\x00" + b"x" * 0xFF00,
    "long-bytes": b"\x92\x07\xc5\xff\x00" + b"\xff" * 0xFF00,
}


@pytest.mark.parametrize("payload", BOMBS.values(), ids=BOMBS.keys())
def test_message__bomb__is_rejected_cheaply(payload: bytes) -> None:
    start_s = time.process_time()
    for _ in range(5):
        assert verdict(payload) in (Reason.FRAME, Reason.MESSAGE_FIELD)
    assert (time.process_time() - start_s) / 5 < 0.02
