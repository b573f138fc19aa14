"""Every small fault in valid bytes: one byte replaced, removed or inserted, or the end cut off. Nothing escapes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from protocol.errors import Reject, RejectReason
from protocol.framing import FrameParser, frame
from protocol.ledger.ledger import Ledger
from protocol.limits import FRAME_BYTES_MAX
from protocol.run.manifest import decode_run_untrusted, sign_manifest
from protocol.wire import Message, decode_untrusted, encode
from tests.fuzz.envelopes import reason_to_reject as envelope_reason
from tests.fuzz.schema import reason_to_reject as message_reason
from tests.support.ledgers import seal
from tests.support.manifests import OWNER, small_manifest
from tests.support.sample_messages import MESSAGES

FLIPS = (1, 2, 4, 8, 16, 32, 64, 128)
SOME = (*FLIPS, 0x0F, 0x55, 0xAA, 0xFF)
ALL = tuple(range(1, 256))
INSERTED = (0x00, 0x01, 0x20, 0x30, 0x7F, 0x80, 0xC0, 0xFF)
NAMES = [type(message).__name__ for message in MESSAGES]
R = RejectReason


def replaced(data: bytes, masks: tuple[int, ...], start: int = 0, end: int | None = None) -> Iterator[bytes]:
    """One byte changed."""
    for at in range(start, len(data) if end is None else end):
        for mask in masks:
            yield data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def resized(data: bytes) -> Iterator[bytes]:
    """One byte removed or inserted, or cut off anywhere; never the data itself."""
    for at in range(len(data)):
        yield data[:at]
        yield data[:at] + data[at + 1 :]
    for at in range(len(data) + 1):
        for octet in INSERTED:
            yield data[:at] + bytes([octet]) + data[at:]


# --- envelopes

RAW = small_manifest()
WIDE = small_manifest(scalar="normalised", directions=4, clip=127)
RECORD = seal(RAW, 1, 8, -300)
SCALARS_AT, SIGNATURE_AT = 44, 46


def envelope_verdict(ledger: Ledger, record: bytes) -> RejectReason | None:
    try:
        ledger.add(record)
    except Reject as reject:
        return reject.reason
    return None


def test_envelope__any_other_value_of_any_payload_byte__is_rejected_for_the_reason_of_the_specification() -> None:
    ledger, reasons = Ledger(RAW), set()
    for record in replaced(RECORD, ALL, 0, SIGNATURE_AT):
        reason = envelope_verdict(ledger, record)
        assert reason is not None and reason.name == envelope_reason(RAW, record)
        reasons.add(reason)
    assert reasons == {R.STEP_RANGE, R.SEED, R.SCALAR_RANGE, R.SIGNATURE}
    assert (ledger.updates, ledger.root()) == (0, Ledger(RAW).root())


def test_envelope__any_bit_of_any_signature_byte__is_rejected() -> None:
    ledger = Ledger(RAW)
    assert {envelope_verdict(ledger, record) for record in replaced(RECORD, SOME, SIGNATURE_AT)} == {R.SIGNATURE}
    assert ledger.updates == 0


@pytest.mark.parametrize("manifest", [RAW, WIDE], ids=["raw", "normalised"])
def test_envelope__one_byte_more_or_less__is_rejected_by_its_size(manifest: object) -> None:
    record = RECORD if manifest is RAW else seal(WIDE, 1, 8, 32, -32, 32, -32)
    ledger = Ledger(manifest)  # type: ignore[arg-type]
    assert {envelope_verdict(ledger, changed) for changed in resized(record)} == {R.SIZE}


def test_envelope__any_bit_of_normalised_scalars__is_rejected() -> None:
    record, ledger = seal(WIDE, 1, 8, 32, -32, 32, -32), Ledger(WIDE)
    reasons = {envelope_verdict(ledger, changed) for changed in replaced(record, FLIPS, SCALARS_AT, SCALARS_AT + 8)}
    assert reasons == {R.SCALAR_RANGE, R.SCALAR_ENERGY, R.SIGNATURE}


# --- messages and their frames


def check_message(payload: bytes) -> bool:
    """The verdict is the schema's; True for another valid message, which has this one encoding."""
    expected = message_reason(payload)
    message, reason = decoded(payload)
    assert reason == expected
    assert message is None or encode(message) == payload
    return message is not None


def decoded(payload: bytes) -> tuple[Message | None, str | None]:
    try:
        return decode_untrusted(payload), None
    except Reject as reject:
        return None, reject.reason.name


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_message__any_other_value_of_any_byte__is_rejected_or_another_message(message: Message) -> None:
    """Beyond the first 64 bytes, which hold every length and small field, there are only keys, digests and bitmaps."""
    payload = encode(message)
    valid = sum(map(check_message, replaced(payload, ALL, 0, min(64, len(payload)))))
    valid += sum(map(check_message, replaced(payload, SOME, min(64, len(payload)))))
    assert valid > 0 or not payload[2:], "even a nonce cannot be changed?"


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_message__one_byte_more_or_less__is_rejected_unless_a_length_of_its_own_says_so(message: Message) -> None:
    payload = encode(message)
    for changed in resized(payload):
        assert not check_message(changed) or changed[:2] == payload[:2]


def outcome(stream: bytes) -> tuple[list[bytes], RejectReason | None, bytes]:
    """Payloads, the Reject that ended them, what was left waiting."""
    parser = FrameParser(FRAME_BYTES_MAX)
    parser.feed_untrusted(stream)
    payloads: list[bytes] = []
    try:
        while (payload := parser.next_payload()) is not None:
            payloads.append(payload)
    except Reject as reject:
        return payloads, reject.reason, bytes(parser._buffer)
    return payloads, None, bytes(parser._buffer)


@pytest.mark.parametrize("message", MESSAGES, ids=NAMES)
def test_frame__any_other_length__waits_or_is_cut_into_other_frames_or_is_rejected(message: Message) -> None:
    """The length is all that a frame adds: whatever it says, no byte is lost or used twice."""
    stream = frame(encode(message))
    for changed in (*replaced(stream, ALL, 0, 4), *(stream[:length] for length in range(len(stream)))):
        payloads, reason, waiting = outcome(changed)
        assert b"".join(map(frame, payloads)) + waiting == changed
        assert reason in (None, R.FRAME)
        assert [check_message(payload) for payload in payloads] == [False] * len(payloads)


# --- manifests

RUN_FILE = sign_manifest(small_manifest(), OWNER).encode()


def manifest_verdict(data: bytes) -> RejectReason | None:
    try:
        decode_run_untrusted(data)
    except Reject as reject:
        return reject.reason
    return None


MANIFEST_REASONS = {R.MANIFEST_FORMAT, R.MANIFEST_FIELD, R.MANIFEST_SIGNATURE}


@pytest.mark.parametrize("part", range(8))
def test_manifest__any_bit_of_any_byte__is_rejected(part: int) -> None:
    size = -(-len(RUN_FILE) // 8)
    part_of = replaced(RUN_FILE, SOME, part * size, min(len(RUN_FILE), (part + 1) * size))
    assert {manifest_verdict(changed) for changed in part_of} <= MANIFEST_REASONS


@pytest.mark.parametrize("octet", [None, *INSERTED[:4]], ids=str)
def test_manifest__one_byte_more_or_less__is_rejected(octet: int | None) -> None:
    if octet is None:
        changes = [RUN_FILE[:at] + RUN_FILE[at + 1 :] for at in range(len(RUN_FILE))]
        changes += [RUN_FILE[:at] for at in range(0, len(RUN_FILE), 3)]
    else:
        changes = [RUN_FILE[:at] + bytes([octet]) + RUN_FILE[at:] for at in range(len(RUN_FILE) + 1)]
    assert {manifest_verdict(changed) for changed in changes} <= MANIFEST_REASONS


def test_manifest__any_other_character_of_any_digit_or_bracket__is_rejected() -> None:
    """All 255 other values where one byte could still be read as something: digits, quotes, brackets, separators."""
    places = [at for at, octet in enumerate(RUN_FILE[:-129]) if octet in b'0123456789"{}[],:-'][::4]
    assert len(places) > 100
    for at in places:
        reasons = {manifest_verdict(changed) for changed in replaced(RUN_FILE, ALL, at, at + 1)}
        assert reasons <= MANIFEST_REASONS
