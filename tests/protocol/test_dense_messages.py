"""Messages of dense cores: their bytes and rules, what an honest node sends, and the largest ones on their way."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from protocol import limits, timings
from protocol.errors import NumericError, Reject, RejectReason
from protocol.ledger.envelope import EnvelopeCodec
from protocol.ledger.ledger import Ledger
from protocol.node.measured_directions import AffordableDirections
from protocol.run.manifest import Manifest
from protocol.subspace.quantisation import quantise_dense
from protocol.sync.anti_entropy import answer
from protocol.sync.flood_queues import Flood
from protocol.wire import PeerId, PullDone, PullRequest, Records, WantedSlots, decode_untrusted, encode
from tests.support.ledgers import compare, ledger_of, seal, signer
from tests.support.manifests import small_manifest
from tests.support.reward_runs import rewarded

DENSE = small_manifest(core="dense")
D, NUMBERS, ENERGY_MAX = 16, 16, 20_000
SQUARES = (100, 100)  # of numbers whose squares add up to the bound


def verdict(manifest: Manifest, *scalars: int) -> RejectReason | None:
    """What an empty ledger says of a signed message with these rows and numbers; None: it is accepted."""
    try:
        Ledger(manifest).add(seal(manifest, 1, 5, *scalars))
    except Reject as refusal:
        return refusal.reason
    return None


def filled(*numbers: int) -> tuple[int, ...]:
    return numbers + (0,) * (NUMBERS - len(numbers))


def largest() -> Manifest:
    """Messages of as many numbers as there may be."""
    tensor = {"kind": "matrix", "rows": 128, "cols": 128}
    tensors = [{**tensor, "name": str(number)} for number in range(129)]
    fields: dict[str, Any] = {"rank": 1, "core_rows": 127, "energy_max": limits.ENERGY_MAX}
    return small_manifest(core="dense", tensors=tensors, steps=60, **fields)


# --- bytes and rules


def test_dense_envelope__of_rows_and_numbers__has_two_bytes_and_then_one_each() -> None:
    codec, numbers = EnvelopeCodec(DENSE), (1, -1, 99, -99, 5, *range(-5, 6))
    envelope = codec.seal(signer(1), 7, (9, *numbers))
    assert codec.record_bytes == len(envelope.record) == 32 + 4 + 8 + 2 + NUMBERS + 64
    assert envelope.record[44:-64] == b"\0\x09" + struct.pack(f"{NUMBERS}b", *numbers)
    decoded = codec.decode_untrusted(envelope.record)
    assert decoded == envelope
    assert (decoded.scalars, decoded.measured) == (envelope.scalars, envelope.measured) == ((9,), numbers)
    codec.check_signed(decoded)


@pytest.mark.parametrize(
    ("scalars", "reason"),
    [
        ((1, *filled()), None),  # of one row, and all zero: its example had no slope
        ((D, *filled(5)), None),
        ((0, *filled(5)), RejectReason.SCALAR_RANGE),  # of no rows
        ((D + 1, *filled(5)), RejectReason.SCALAR_RANGE),
        ((0xFFFF, *filled(5)), RejectReason.SCALAR_RANGE),
        ((3, *filled(127, -1)), None),
        ((3, *filled(-127)), None),
        ((3, *filled(-128)), RejectReason.SCALAR_RANGE),  # an int8, and beyond the clip
        ((3, *filled(*SQUARES)), None),  # the bound itself
        ((3, *filled(*SQUARES, 1)), RejectReason.SCALAR_ENERGY),
        ((3, *(-36,) * NUMBERS), RejectReason.SCALAR_ENERGY),
    ],
)
def test_dense_envelope__rows_numbers_and_energy__are_judged_at_their_bounds(
    scalars: tuple[int, ...], reason: RejectReason | None
) -> None:
    assert verdict(DENSE, *scalars) is reason


@pytest.mark.parametrize(("offset", "is_more"), [(0, False), (45, True), (46, True), (70, True), (-1, False)])
def test_dense_envelope__a_bit_changed_on_the_way__is_rejected(offset: int, is_more: bool) -> None:
    record = bytearray(seal(DENSE, 1, 5, 3, *filled(8, 8)))
    record[offset] ^= 1
    with pytest.raises(Reject) as caught:
        Ledger(DENSE).add(bytes(record))
    assert caught.value.reason is (RejectReason.SIGNATURE if is_more or offset < 0 else RejectReason.SEED)


# --- what an honest node sends


@given(
    mean=arrays.arrays(np.float64, NUMBERS, elements=st.floats(-1e6, 1e6, allow_subnormal=False)),
    energy_max=st.sampled_from([1, 16, 400, ENERGY_MAX, limits.ENERGY_MAX]),
    rows=st.integers(1, D),
)
def test_quantise_dense__any_gradient__is_a_message_that_everybody_accepts(
    mean: np.ndarray[Any, Any], energy_max: int, rows: int
) -> None:
    manifest = small_manifest(core="dense", energy_max=energy_max)
    scalars = quantise_dense(manifest.method, rows, mean)
    assert verdict(manifest, *scalars) is None and scalars[0] == rows
    assert all(number * each >= 0 for number, each in zip(scalars[1:], mean.tolist(), strict=True))


def test_quantise_dense__short_gradient__is_in_units_and_rounded_half_away_from_zero() -> None:
    unit = 2.0**DENSE.method.quantum_exp
    mean = np.array(filled(0, 1, -1, 2)) * unit + np.array([0.5, 0.5, -0.5, 0.25] + [0.0] * 12) * unit
    assert quantise_dense(DENSE.method, 4, mean) == (4, *filled(1, 2, -2, 2))


def test_quantise_dense__long_gradient__keeps_its_direction() -> None:
    mean = np.array([3.0, -4.0, *[0.0] * 14])
    scalars = quantise_dense(DENSE.method, 4, mean)
    assert math.hypot(*scalars[1:]) == pytest.approx(math.sqrt(ENERGY_MAX), rel=0.05)
    assert scalars[1] / scalars[2] == pytest.approx(-3 / 4, rel=0.02)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_quantise_dense__not_finite__skips_the_step(bad: float) -> None:
    with pytest.raises(NumericError, match="not finite"):
        quantise_dense(DENSE.method, 4, np.array([bad, *filled()[1:]]))


@pytest.mark.parametrize(("rows", "sent"), [(4, 4), (7, 4), (2, 4), (8, 8)])
def test_nothing_learnt__in_the_last_step_of_answers__is_a_message_of_zeros_for_whole_prompts(
    rows: int, sent: int
) -> None:
    manifest = replace(DENSE, task=rewarded(DENSE.task))
    zeros = manifest.scalars_of_nothing(DENSE.steps - 1, rows)
    assert zeros == (sent, *filled()) and verdict(manifest, *zeros) is None
    assert manifest.scalars_of_nothing(DENSE.steps - 2, rows) is None
    assert DENSE.scalars_of_nothing(DENSE.steps - 1, rows) is None  # with labels, audits would say it cheats


# --- how many rows a node affords


def test_affordable__dense_messages__say_how_many_rows_others_took() -> None:
    """A message of half of its rows, with numbers everywhere: its author's whole round would take twice as long."""
    made, other = AffordableDirections(DENSE.method), signer(2).author
    assert made.chosen == D
    made.hear(other, (D // 2, *range(NUMBERS)))
    made.measured(1_000)
    made.choose({other: 500}, [other])
    assert made.chosen == D
    made.hear(other, (D, *filled()))  # all rows, whatever their numbers
    for _ in range(2):
        made.measured(1_000)
        made.choose({other: 500}, [other])
    assert made.chosen == D // 2


# --- the largest on their way


def test_largest_messages__flooded__come_in_frames_of_whole_records() -> None:
    manifest = largest()
    records = [seal(manifest, 1, step) for step in range(10)]
    assert manifest.numbers == limits.DENSE_NUMBERS_MAX
    flood, peer = Flood(EnvelopeCodec(manifest).record_bytes), PeerId("other")
    flood.open(peer)
    for record in records:
        flood.push(record, source=None)
    sent = [message for _, message in flood.flush(timings.FLUSH_INTERVAL_MS_MAX)]
    assert max(len(encode(message)) for message in sent) <= limits.FRAME_BYTES_MAX
    split = EnvelopeCodec(manifest).split_untrusted
    arrived = [decode_untrusted(encode(message)) for message in sent]
    assert [record for each in arrived if isinstance(each, Records) for record in split(each.data)] == records
    assert len(sent) == 4  # of three records


def test_largest_messages__pulled__never_exceed_frame_or_answer() -> None:
    manifest = largest()
    ledger = ledger_of(manifest, [seal(manifest, 1, step) for step in range(20)])
    slots = WantedSlots(span=0, author=signer(1).author, steps=b"\xff" * 128)
    *frames, done = answer(ledger, PullRequest(request=9, wanted=(slots,)))
    assert isinstance(done, PullDone) and done.records == limits.PULL_BYTES_MAX // ledger.codec.record_bytes == 7
    assert max(len(encode(frame)) for frame in frames) <= limits.FRAME_BYTES_MAX


@pytest.mark.parametrize("is_void", [False, True])
def test_largest_messages__whole_ledger_by_anti_entropy__comes_without_a_stall(is_void: bool) -> None:
    manifest = largest()
    steps, versions = range(40), ((3,), (4,)) if is_void else ((3,),)
    numbers = (1,) * (manifest.numbers - 1)
    held = [seal(manifest, 1, step, *rows, *numbers) for step in steps for rows in versions]
    full, fresh = ledger_of(manifest, held), Ledger(manifest)
    session, _ = compare(fresh, full)
    assert session.is_complete and not session.is_short
    assert fresh.root() == full.root() and fresh.updates + fresh.void_slots == len(steps)
