"""Envelopes: layout, a vector for every reason, every mutation refused, and Ed25519's edge cases."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st
from nacl import bindings

from protocol.crypto import keys
from protocol.crypto.hashing import Author, seed_of
from protocol.crypto.keys import Signer, check_verifier, is_author_key, is_signed
from protocol.errors import Ignore, IgnoreReason, OperatorError, Reject, RejectReason
from protocol.ledger.envelope import EnvelopeCodec
from protocol.ledger.ledger import Ledger
from protocol.subspace.quantisation import quantise
from tests.support.ledgers import seal, signer
from tests.support.manifests import small_manifest

RAW = small_manifest()
ROUNDS = small_manifest(local_steps=4, directions=2)
NORMALISED = small_manifest(scalar="normalised", directions=4, clip=127)
ORDER = 2**252 + 27742317777372353535851937790883648493  # of the prime-order subgroup
IDENTITY = (1).to_bytes(32, "little")


def verdict(record: bytes, manifest: object = RAW) -> RejectReason | IgnoreReason | None:
    """What an empty ledger says of the record; None: it is accepted."""
    try:
        Ledger(manifest).add(record)  # type: ignore[arg-type]
    except (Reject, Ignore) as refusal:
        return refusal.reason
    return None


def resigned(record: bytes, offset: int, part: bytes, author: int = 1) -> bytes:
    """The record with bytes replaced, signed anew."""
    payload = bytearray(record[:-64])
    payload[offset : offset + len(part)] = part
    run_id = RAW.run_id if len(record) == 110 else ROUNDS.run_id
    return bytes(payload) + signer(author).sign(b"sfnode/envelope1" + run_id + bytes(payload))


def test_envelope__example_of_the_specification__has_these_bytes() -> None:
    envelope = EnvelopeCodec(RAW).seal(Signer(bytes(32)), 7, (-300,))
    assert envelope.record.hex() == (
        "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
        "00000007"
        "8668520245f6280a"
        "fed4"
        "347e7f73c1c190bdd142a476ad61afc1141ee172f2469400b3a85b3400fb148b"
        "b307428d81c27d99f2c38d6aee989c1abc157b1e980d2ebde8c653669ea26f0b"
    )
    assert EnvelopeCodec(RAW).decode_untrusted(envelope.record) == envelope


@pytest.mark.parametrize("manifest", [RAW, ROUNDS, NORMALISED], ids=["raw", "rounds", "normalised"])
def test_envelope__sealed_and_decoded__is_equal(manifest: object) -> None:
    codec = EnvelopeCodec(manifest)  # type: ignore[arg-type]
    scalars = (32, -32, 32, -32) * 2
    envelope = codec.seal(signer(1), 8, scalars[: (codec.record_bytes - 108) // 2])
    assert codec.decode_untrusted(envelope.record) == envelope
    codec.check_signed(envelope)


VECTORS: list[tuple[RejectReason, object, Callable[[], bytes]]] = [
    (RejectReason.SIZE, RAW, lambda: seal(RAW, 1, 0)[:-1]),
    (RejectReason.SIZE, RAW, lambda: b""),
    (RejectReason.SIZE, RAW, lambda: seal(ROUNDS, 1, 0)),
    (RejectReason.STEP_RANGE, RAW, lambda: seal(RAW, 1, 40)),
    (RejectReason.STEP_RANGE, RAW, lambda: seal(RAW, 1, 2**32 - 1)),
    (RejectReason.STEP_ALIGNMENT, ROUNDS, lambda: seal(ROUNDS, 1, 6)),
    (RejectReason.SCALAR_RANGE, RAW, lambda: seal(RAW, 1, 0, 1_001)),
    (RejectReason.SCALAR_RANGE, RAW, lambda: seal(RAW, 1, 0, -1_001)),
    (RejectReason.SCALAR_RANGE, RAW, lambda: seal(RAW, 1, 0, -(1 << 15))),
    (RejectReason.SCALAR_ENERGY, NORMALISED, lambda: seal(NORMALISED, 1, 0, 0, 0, 0, 0)),
    (RejectReason.SCALAR_ENERGY, NORMALISED, lambda: seal(NORMALISED, 1, 0, 65, 1, 0, 0)),
    (RejectReason.SEED, RAW, lambda: resigned(seal(RAW, 1, 0), 36, bytes(8))),
    (RejectReason.SIGNATURE, RAW, lambda: seal(RAW, 1, 0)[:-64] + bytes(64)),
    (RejectReason.SIGNATURE, RAW, lambda: seal(RAW, 1, 0)[:-64] + seal(RAW, 1, 1)[-64:]),
    (RejectReason.SIGNATURE, RAW, lambda: resigned(seal(RAW, 1, 0), 44, b"\0\x09", author=2)),
]


@pytest.mark.parametrize(
    ("reason", "manifest", "make"), VECTORS, ids=[f"{i}-{v[0].name}" for i, v in enumerate(VECTORS)]
)
def test_envelope__one_rule_broken__is_rejected_with_its_reason(
    reason: RejectReason, manifest: object, make: Callable[[], bytes]
) -> None:
    assert verdict(make(), manifest) is reason


def test_envelope__valid_but_of_another_run__is_rejected() -> None:
    other = small_manifest(clip=999)
    assert verdict(seal(other, 1, 0), RAW) is RejectReason.SEED
    record = seal(RAW, 1, 0)
    stolen = record[:-64] + signer(1).sign(b"sfnode/envelope1" + other.run_id + record[:-64])
    assert verdict(stolen) is RejectReason.SIGNATURE
    untagged = record[:-64] + signer(1).sign(RAW.run_id + record[:-64])
    assert verdict(untagged) is RejectReason.SIGNATURE


def test_envelope__any_byte_changed__is_rejected_by_an_empty_ledger() -> None:
    record = seal(RAW, 1, 5)
    ledger, reasons = Ledger(RAW), set()
    for index in range(len(record)):
        changes = range(1, 256) if index < 46 else (1, 2, 4, 8, 16, 32, 64, 128, 255)
        for change in changes:
            with pytest.raises(Reject) as caught:
                ledger.add(record[:index] + bytes([record[index] ^ change]) + record[index + 1 :])
            reasons.add(caught.value.reason)
    R = RejectReason
    assert reasons == {R.STEP_RANGE, R.SEED, R.SCALAR_RANGE, R.SIGNATURE}
    assert (ledger.updates, ledger.root()) == (0, Ledger(RAW).root())


def test_envelope__any_byte_changed_while_it_is_held__is_ignored_where_only_the_signature_differs() -> None:
    """SPEC 7.1: equal payloads are one update; a ledger that holds it need not look at another signature."""
    record = seal(RAW, 1, 5)
    ledger = Ledger(RAW)
    ledger.add(record)
    root = ledger.root()
    for index in range(len(record)):
        with pytest.raises((Reject, Ignore)) as caught:
            ledger.add(record[:index] + bytes([record[index] ^ 0x10]) + record[index + 1 :])
        is_held = isinstance(caught.value, Ignore) and caught.value.reason is IgnoreReason.ALREADY_HELD
        assert is_held == (index >= 46)
    assert (ledger.root(), ledger.updates, ledger.void_slots) == (root, 1, 0)


# --- energy rule


@given(st.lists(st.floats(-1e30, 1e30, allow_subnormal=False), min_size=4, max_size=4).filter(any))
def test_energy_rule__whatever_an_honest_node_normalises__is_accepted(gradients: list[float]) -> None:
    scalars = quantise(NORMALISED.method, gradients)
    EnvelopeCodec(NORMALISED).decode_untrusted(seal(NORMALISED, 1, 0, *scalars))


@pytest.mark.parametrize(
    ("scalars", "is_valid"),
    [
        ((32, 32, 32, 32), True),
        ((31, 31, 31, 31), False),  # 4 E = 15,376 < 15,876
        ((33, 33, 33, 33), False),  # 4 E = 17,424 > 16,900
        ((62, 11, 1, 1), False),  # E = 3,967; 3,969 is the lower bound for four that are not zero
        ((62, 11, 2, 0), True),  # the same E, for three
        ((44, 7, 0, 0), True),  # E = 1,985: half of the directions were measured
        ((44, 6, 0, 0), False),  # E = 1,972
        ((32, 0, 0, 0), True),  # one of four was measured
        ((31, 0, 0, 0), False),
        ((0, 0, 0, 0), False),
        ((65, 0, 0, 0), True),  # E = 4,225: the upper bound itself
        ((65, 1, 0, 0), False),
        ((127, 0, 0, 0), False),  # clipped, but with far too much energy
    ],
)
def test_energy_rule__at_its_bounds__is_exact(scalars: tuple[int, ...], is_valid: bool) -> None:
    expected = None if is_valid else RejectReason.SCALAR_ENERGY
    assert verdict(seal(NORMALISED, 1, 0, *scalars), NORMALISED) is expected


def test_energy_rule__one_direction_dominates_many__clipping_excuses_the_lower_bound() -> None:
    wide = small_manifest(scalar="normalised", directions=32, shares=2, clip=127)
    scalars = quantise(wide.method, [1.0] + [1 / 127] * 31)
    assert scalars == (127, *[1] * 31)
    assert verdict(seal(wide, 1, 0, *scalars), wide) is None
    assert verdict(seal(wide, 1, 0, 126, *[1] * 31), wide) is RejectReason.SCALAR_ENERGY


@given(st.lists(st.floats(-1e30, 1e30, allow_subnormal=False), min_size=1, max_size=3).filter(any))
def test_energy_rule__only_the_first_directions_measured__is_accepted(gradients: list[float]) -> None:
    scalars = quantise(NORMALISED.method, gradients)
    assert scalars[len(gradients) :] == (0,) * (4 - len(gradients))
    EnvelopeCodec(NORMALISED).decode_untrusted(seal(NORMALISED, 1, 0, *scalars))


def test_energy_rule__second_local_step_too_loud__is_rejected() -> None:
    rounds = small_manifest(scalar="normalised", directions=2, local_steps=2, clip=127)
    assert verdict(seal(rounds, 1, 0, 32, 32, 32, -32), rounds) is None
    assert verdict(seal(rounds, 1, 0, 32, 32, 100, -32), rounds) is RejectReason.SCALAR_ENERGY


# --- Ed25519's edge cases

SMALL_ORDER = [
    "0100000000000000000000000000000000000000000000000000000000000000",  # order 1
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # order 2
    "0000000000000000000000000000000000000000000000000000000000000000",  # order 4
    "0000000000000000000000000000000000000000000000000000000000000080",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",  # order 8
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
]
NOT_CANONICAL = [
    "0100000000000000000000000000000000000000000000000000000000000080",  # x = 0 with a sign
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # y = p
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",  # y = p + 1
    "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
]
NOT_ON_THE_CURVE = ["02" + "00" * 31]
TORSION = bytes.fromhex(SMALL_ORDER[4])


def unsigned(author: bytes, step: int = 0) -> bytes:
    return author + struct.pack(">IQh", step, seed_of(RAW.run_id, Author(author), step), 5)


@pytest.mark.parametrize("key", SMALL_ORDER + NOT_CANONICAL + NOT_ON_THE_CURVE)
def test_author_key__small_order_or_not_canonical__is_rejected(key: str) -> None:
    author = bytes.fromhex(key)
    assert not is_author_key(author)
    # S = 0, R = identity: fits every message under the identity key for a verifier that does not look.
    assert verdict(unsigned(author) + IDENTITY + bytes(32)) is RejectReason.AUTHOR_KEY


@pytest.mark.parametrize("length", [0, 31, 33])
def test_author_key__other_length__is_rejected(length: int) -> None:
    assert not is_author_key(bytes(length))


def signature_under_mixed_key(secret: bytes, public: bytes, message: bytes) -> bytes:
    """A signature that libsodium verifies under a key with a component of order 8, found by trying nonces."""
    for attempt in range(1_000):
        nonce = bindings.crypto_core_ed25519_scalar_reduce(hashlib.sha512(attempt.to_bytes(4, "big")).digest())
        point = bindings.crypto_scalarmult_ed25519_base_noclamp(nonce)
        challenge = bindings.crypto_core_ed25519_scalar_reduce(hashlib.sha512(point + public + message).digest())
        if int.from_bytes(challenge, "little") % 8 == 0:
            product = bindings.crypto_core_ed25519_scalar_mul(challenge, secret)
            return point + bindings.crypto_core_ed25519_scalar_add(nonce, product)
    raise AssertionError("no nonce fits")


def test_author_key__mixed_order_with_a_signature_that_verifies__is_rejected() -> None:
    secret = bindings.crypto_core_ed25519_scalar_reduce(hashlib.sha512(b"mixed").digest())
    clean = bindings.crypto_scalarmult_ed25519_base_noclamp(secret)
    mixed = bindings.crypto_core_ed25519_add(clean, TORSION)
    message = b"sfnode/envelope1" + RAW.run_id + unsigned(mixed)
    signature = signature_under_mixed_key(secret, mixed, message)
    assert is_signed(mixed, message, signature)  # libsodium alone would let it pass, others may not
    assert is_author_key(clean) and not is_author_key(mixed)
    assert verdict(unsigned(mixed) + signature) is RejectReason.AUTHOR_KEY


def test_signature__s_plus_group_order__is_rejected() -> None:
    record = seal(RAW, 1, 0)
    scalar = int.from_bytes(record[-32:], "little")
    assert scalar < ORDER
    assert verdict(record[:-32] + (scalar + ORDER).to_bytes(32, "little")) is RejectReason.SIGNATURE
    assert verdict(record) is None


@pytest.mark.parametrize("point", SMALL_ORDER + NOT_CANONICAL)
def test_signature__r_of_small_order__is_rejected(point: str) -> None:
    """R of small order, S fitting: [S]B = h A holds up to that component."""
    author = signer(3)
    payload = unsigned(author.author)
    message = b"sfnode/envelope1" + RAW.run_id + payload
    nonce_point = bytes.fromhex(point)
    challenge = bindings.crypto_core_ed25519_scalar_reduce(
        hashlib.sha512(nonce_point + author.author + message).digest()
    )
    seed = b"author" + (3).to_bytes(26, "big")
    clamped = bytearray(hashlib.sha512(seed).digest()[:32])
    clamped[0] &= 248
    clamped[31] = clamped[31] & 127 | 64
    secret = bindings.crypto_core_ed25519_scalar_reduce(bytes(clamped) + bytes(32))
    response = bindings.crypto_core_ed25519_scalar_mul(challenge, secret)
    assert verdict(payload + nonce_point + response) is RejectReason.SIGNATURE


def test_split__records_end_to_end__only_whole_ones() -> None:
    codec = EnvelopeCodec(RAW)
    records = [seal(RAW, 1, step) for step in range(3)]
    assert codec.split_untrusted(b"".join(records)) == records
    assert codec.split_untrusted(b"") == []
    with pytest.raises(Reject) as caught:
        codec.split_untrusted(b"".join(records)[:-1])
    assert caught.value.reason is RejectReason.SIZE


def test_envelope__accepted__is_the_sealed_one() -> None:
    record = seal(RAW, 1, 0)
    envelope, voided = Ledger(RAW).add(record)
    assert voided is None and envelope.record == record


def test_verifier__that_multiplies_by_the_cofactor__is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later libsodium does so. A node on it would take records that others reject, and split the network for good."""
    check_verifier.cache_clear()
    monkeypatch.setattr(keys, "is_signed", lambda *_: True)
    with pytest.raises(OperatorError, match=r"pip install pynacl=="):
        EnvelopeCodec(small_manifest())
    check_verifier.cache_clear()
