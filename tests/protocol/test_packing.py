"""Numbers of 2, 4 or 8 bits in bytes (SPEC 6.1): one encoding of each message, and what is refused in its place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from protocol.errors import Reject, RejectReason
from protocol.ledger.envelope import EnvelopeCodec, pack_numbers, packed_bytes, unpack_numbers
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.subspace.quantisation import quantise_dense
from tests.support.ledgers import seal, signer
from tests.support.manifests import small_manifest

CLIPS = {2: 1, 4: 7, 8: 127}
LONG = {2: 37, 4: 19, 8: 9}  # numbers whose last byte has room, if it can
every_bits = pytest.mark.parametrize("bits", CLIPS)


def of_bits(bits: int, tensors: int = 5, **fields: Any) -> Manifest:
    """A dense run with one number for each tensor, in so many bits, and no bound of their energy but their own."""
    rows = [{"name": str(number), "kind": "matrix", "rows": 4, "cols": 3} for number in range(tensors)]
    energy_max = tensors * CLIPS[bits] ** 2
    method = {"rank": 1, "core_rows": 1, "clip": CLIPS[bits], "energy_max": energy_max, **fields}
    return small_manifest(core="dense", tensors=rows, **method)


@st.composite
def numbers_and_bits(draw: st.DrawFn) -> tuple[list[int], int]:
    bits = draw(st.sampled_from([*CLIPS]))
    lowest = -(1 << bits - 1)
    return draw(st.lists(st.integers(lowest, -lowest - 1), min_size=1, max_size=60)), bits


# --- bytes


@given(numbers_and_bits())
def test_pack__any_numbers__are_bits_in_order_and_come_back_with_zeros_behind_them(
    given: tuple[list[int], int],
) -> None:
    numbers, bits = given
    data = pack_numbers(numbers, bits)
    text = "".join(format(number & (1 << bits) - 1, f"0{bits}b") for number in numbers)
    assert len(data) == packed_bytes(len(numbers), bits) == -(-len(text) // 8)
    assert "".join(format(octet, "08b") for octet in data) == text.ljust(8 * len(data), "0")
    back = unpack_numbers(data, bits)
    assert back.dtype == np.int8
    assert back.tolist() == numbers + [0] * (len(back) - len(numbers))


@every_bits
def test_unpack__every_byte__packs_to_itself(bits: int) -> None:
    data = bytes(range(256))
    assert pack_numbers(unpack_numbers(data, bits).tolist(), bits) == data


def test_pack__examples_of_the_specification__have_these_bytes() -> None:
    assert pack_numbers((1, -2, 7), 4).hex() == "1e70"
    assert pack_numbers((1, -1, 0, 1, -1), 2).hex() == "71c0"


@every_bits
def test_pack__number_that_the_bits_do_not_hold__is_a_bug_of_ours(bits: int) -> None:
    for number in (1 << bits - 1, -(1 << bits - 1) - 1):
        with pytest.raises(AssertionError, match="too many bits"):
            pack_numbers((0, number), bits)


# --- records


@pytest.mark.parametrize(("bits", "size"), [(2, 110 + 10), (4, 110 + 10), (8, 110 + 9)])
def test_record__of_few_bits__has_as_many_bytes_as_they_fill(bits: int, size: int) -> None:
    manifest = of_bits(bits, LONG[bits])
    clip, count = CLIPS[bits], LONG[bits]
    numbers = tuple((clip, 0, -clip, 1)[place % 4] for place in range(count))
    codec = EnvelopeCodec(manifest)
    envelope = codec.seal(signer(1), 5, (3, *numbers))
    assert codec.record_bytes == len(envelope.record) == size
    decoded = codec.decode_untrusted(envelope.record)
    assert decoded == envelope
    codec.check_signed(decoded)
    assert (decoded.scalars, decoded.measured) == (envelope.scalars, envelope.measured) == ((3,), numbers)


def reason(manifest: Manifest, payload: bytes) -> RejectReason | None:
    """What the rules say of this payload, signed by its author."""
    record = payload + signer(1).sign(b"sfnode/envelope1" + manifest.run_id + payload)
    codec = EnvelopeCodec(manifest)
    try:
        codec.check_signed(codec.decode_untrusted(record))
    except Reject as refusal:
        return refusal.reason
    return None


@pytest.mark.parametrize(("bits", "spare"), [(2, 6), (4, 4)])
def test_record__every_last_byte__is_accepted_if_and_only_if_nothing_is_behind_the_last_number(
    bits: int, spare: int
) -> None:
    manifest = of_bits(bits)
    payload = seal(manifest, 1, 5, 3, *(0,) * 5)[:-64]
    lowest = 1 << bits - 1
    for octet in range(256):
        last, behind = octet >> spare, octet & (1 << spare) - 1
        expected = None if last != lowest and not behind else RejectReason.SCALAR_RANGE
        assert reason(manifest, payload[:-1] + bytes([octet])) is expected, octet


@every_bits
def test_record__the_least_value_of_its_bits__is_refused_in_every_place(bits: int) -> None:
    manifest = of_bits(bits)
    for place in range(5):
        numbers = [0] * 5
        for numbers[place], expected in ((-CLIPS[bits], None), (-CLIPS[bits] - 1, RejectReason.SCALAR_RANGE)):
            assert reason(manifest, seal(manifest, 1, 5, 3, *numbers)[:-64]) is expected


# --- what a node sends, and what is summed


@every_bits
@given(mean=st.lists(st.floats(-1e4, 1e4, allow_subnormal=False), min_size=5, max_size=5))
def test_quantise_dense__any_gradient__is_a_message_of_few_bits(bits: int, mean: list[float]) -> None:
    manifest = of_bits(bits)
    scalars = quantise_dense(manifest.method, 4, np.array(mean))
    record = EnvelopeCodec(manifest).seal(signer(1), 5, scalars).record
    found = EnvelopeCodec(manifest).decode_untrusted(record)
    assert found.scalars + found.measured == scalars
    assert max(map(abs, scalars[1:])) <= CLIPS[bits]


def test_quantise_dense__of_two_bits__is_a_sign_where_half_a_unit_is_reached() -> None:
    method = of_bits(2, energy_max=10_000).method
    mean = np.array([0.5, -0.5, 0.4999, -30.0, 0.0]) * 2.0**method.quantum_exp
    assert quantise_dense(method, 4, mean) == (4, 1, -1, 0, -1, 0)


@every_bits
def test_sums__messages_of_few_bits__are_those_of_their_numbers(bits: int) -> None:
    manifest, clip = of_bits(bits), CLIPS[bits]
    rows = {(1, 5): (3, clip, -clip, 1, 0, -1), (2, 5): (4, clip, 0, -1, 1, clip), (1, 6): (1, -1, 0, 0, 0, -clip)}
    replica = Replica(manifest)
    for (author, step), scalars in rows.items():
        replica.add(seal(manifest, author, step, *scalars))
    for step in (5, 6):
        found = [scalars for (_, at), scalars in rows.items() if at == step]
        sums = [sum(each[0] for each in found)]
        sums += [sum(each[0] * each[place] for each in found) for place in range(1, 6)]
        assert replica.coefficients().flat(step).tolist() == sums
