"""Target ``envelope``: a record's verdict and reason are those of SPEC 6 followed by hand, rule by rule."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

import nacl.bindings
import nacl.exceptions

from protocol.errors import Reject
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import Manifest
from protocol.run.method import Method, ScalarKind
from tests.fuzz.catalogue import Target
from tests.fuzz.verdicts import reason_of
from tests.support.ledgers import seal, signer
from tests.support.manifests import small_manifest
from tests.vectors.runs import DENSE, OF_2_BITS, OF_4_BITS

MANIFESTS = (
    small_manifest(),
    small_manifest(local_steps=4, directions=2),
    small_manifest(scalar="normalised", directions=4, clip=127),
    small_manifest(scalar="normalised", directions=2, local_steps=2, clip=127),
    DENSE,
    OF_4_BITS,
    OF_2_BITS,
)
_BITS = {127: 8, 7: 4, 1: 2}  # of a number in a dense message, by the clip
CODECS = tuple(EnvelopeCodec(manifest) for manifest in MANIFESTS)
# Bits of the first byte: which manifest; put the right seed in; sign anew with a known key.
_WHICH, _SEEDED, _SIGNED = 7, 8, 16
_AUTHOR = signer(1)


def check_record(data: bytes) -> None:
    """Split, decode and check one record of one of the runs."""
    flags, record = data[:1] or b"\0", data[1:]
    which = (flags[0] & _WHICH) % len(MANIFESTS)
    manifest, codec = MANIFESTS[which], CODECS[which]
    if len(record) == codec.record_bytes:
        record = _repaired(manifest, record, flags[0])
    verdicts = [_verdict(codec, record) for _ in range(2)]
    assert verdicts[0] == verdicts[1]
    expected = reason_to_reject(manifest, record)
    assert verdicts[0] == expected, f"verdict {verdicts[0]}, by the specification {expected}"
    _check_split(codec, record)


def _repaired(manifest: Manifest, record: bytes, flags: int) -> bytes:
    """Random bytes would never pass the rules on seed and signature."""
    payload = record[:-64]
    if flags & _SIGNED:
        payload = _AUTHOR.author + payload[32:]
    if flags & _SEEDED:
        payload = payload[:36] + seed_bytes(manifest, payload[:36]) + payload[44:]
    signature = _AUTHOR.sign(b"sfnode/envelope1" + manifest.run_id + payload) if flags & _SIGNED else record[-64:]
    return payload + signature


def seed_bytes(manifest: Manifest, author_and_step: bytes) -> bytes:
    """SPEC 2.2."""
    fields = (b"sfnode/seed/1", manifest.run_id, author_and_step[:32], author_and_step[32:36])
    hashed = b"".join(len(field).to_bytes(4, "big") + field for field in fields)
    return hashlib.sha256(hashed).digest()[:8]


def _verdict(codec: EnvelopeCodec, record: bytes) -> str | None:
    try:
        envelope = codec.decode_untrusted(record)
        codec.check_signed(envelope)
    except Reject as reject:
        return reason_of(reject)
    scalars = _layout(MANIFESTS[CODECS.index(codec)].method, (*envelope.scalars, *envelope.numbers.tolist()))
    payload = envelope.author + struct.pack(">IQ", envelope.step, envelope.seed) + scalars
    assert (envelope.record, envelope.payload) == (record, payload)
    return None


def _layout(method: Method, scalars: tuple[int, ...]) -> bytes:
    """SPEC 6.1, by a text of bits."""
    if not method.is_dense:
        return struct.pack(f">{len(scalars)}h", *scalars)
    bits = _BITS[method.clip]
    text = "".join(format(number % 2**bits, f"0{bits}b") for number in scalars[1:])
    text += "0" * (-len(text) % 8)
    return struct.pack(">H", scalars[0]) + int(text, 2).to_bytes(len(text) // 8, "big")


def reason_to_reject(manifest: Manifest, record: bytes) -> str | None:
    """The rules of SPEC 6.2 in their order, by offsets."""
    method, count = manifest.method, manifest.method.directions * manifest.method.local_steps
    numbers = method.core_rows * method.rank * len(manifest.tensors)
    dense_bytes = 110 + (numbers * _BITS.get(method.clip, 8) + 7) // 8
    if len(record) != (dense_bytes if method.is_dense else 108 + 2 * count):
        return "SIZE"
    step = int.from_bytes(record[32:36], "big")
    if step >= manifest.steps:
        return "STEP_RANGE"
    if step % method.local_steps:
        return "STEP_ALIGNMENT"
    if reason := _dense_reason(manifest, record) if method.is_dense else _reason_of_scalars(method, record, count):
        return reason
    if record[36:44] != seed_bytes(manifest, record[:36]):
        return "SEED"
    if not nacl.bindings.crypto_core_ed25519_is_valid_point(record[:32]):
        return "AUTHOR_KEY"
    try:
        message = b"sfnode/envelope1" + manifest.run_id + record[:-64]
        nacl.bindings.crypto_sign_open(record[-64:] + message, record[:32])
    except nacl.exceptions.BadSignatureError:
        return "SIGNATURE"
    return None


def _dense_reason(manifest: Manifest, record: bytes) -> str | None:
    """SPEC 6.2.3 for a dense message."""
    bits, count = _BITS[manifest.method.clip], manifest.method.core_rows * manifest.method.rank * len(manifest.tensors)
    text = "".join(format(byte, "08b") for byte in record[46:-64])
    values = [int(text[at : at + bits], 2) for at in range(0, bits * count, bits)]
    numbers = [value - 2**bits if value >= 2 ** (bits - 1) else value for value in values]
    if not 1 <= int.from_bytes(record[44:46], "big") <= manifest.method.directions or "1" in text[bits * count :]:
        return "SCALAR_RANGE"
    if min(numbers) < -manifest.method.clip:
        return "SCALAR_RANGE"
    return "SCALAR_ENERGY" if sum(number**2 for number in numbers) > manifest.method.energy_max else None


def _reason_of_scalars(method: Method, record: bytes, count: int) -> str | None:
    """SPEC 6.2.3 for scalars along drawn directions."""
    scalars = [int.from_bytes(record[at : at + 2], "big", signed=True) for at in range(44, 44 + 2 * count, 2)]
    if any(not -method.clip <= scalar <= method.clip for scalar in scalars):
        return "SCALAR_RANGE"
    rounds = [scalars[at : at + method.directions] for at in range(0, count, method.directions)]
    if method.scalar is ScalarKind.NORMALISED and not all(map(_has_energy, rounds)):
        return "SCALAR_ENERGY"
    return None


def _has_energy(scalars: list[int]) -> bool:
    """SPEC 5.2 in fractions: 31.5^2 n <= E <= 32.5^2 D, n >= 1 not zero; the lower bound only if none is clipped."""
    energy = sum(scalar**2 for scalar in scalars)
    is_clipped = any(abs(scalar) == 127 for scalar in scalars)
    count = sum(scalar != 0 for scalar in scalars)
    return count > 0 and energy <= 32.5**2 * len(scalars) and (is_clipped or energy >= 31.5**2 * count)


def _check_split(codec: EnvelopeCodec, data: bytes) -> None:
    for run in (data, data * 3):
        records, reason = _split(codec, run)
        assert (reason == "SIZE") == (len(run) % codec.record_bytes != 0)
        assert reason or b"".join(records) == run
        assert all(len(record) == codec.record_bytes for record in records)


def _split(codec: EnvelopeCodec, data: bytes) -> tuple[list[bytes], str | None]:
    try:
        return codec.split_untrusted(data), None
    except Reject as reject:
        return [], reason_of(reject)


def record_seeds() -> Iterator[bytes]:
    """A valid record of each run, as it is and signed anew; one with each kind of fault."""
    for which, manifest in enumerate(MANIFESTS):
        scalars = (32, -32) * (manifest.method.scalars // 2) or (-300,)
        if manifest.method.is_dense:
            clip, count = manifest.method.clip, manifest.numbers - 1
            scalars = (3, *(max(-clip, min(clip, number)) for number in range(-4, count - 4)))
        record = seal(manifest, 1, 4, *scalars)
        yield bytes([which]) + record
        yield bytes([which | _SEEDED | _SIGNED]) + record
        yield bytes([which | _SEEDED]) + bytes(32) + record[32:]
        yield bytes([which]) + record[:-1]
        yield bytes([which]) + record[:-1] + bytes([record[-1] ^ 1])
        yield bytes([which]) + seal(manifest, 1, 4, *(1 for _ in scalars))
        yield bytes([which]) + seal(manifest, 1, 2**20, *scalars)
        yield bytes([which]) + seal(manifest, 1, 2, *scalars)
    for rows, number in ((0, 1), (5, 1), (4, -128), (4, 127)):
        yield bytes([MANIFESTS.index(DENSE)]) + seal(DENSE, 1, 2, rows, *[number] * 8)
    for manifest, least in ((OF_4_BITS, -8), (OF_2_BITS, -2)):
        which, good = MANIFESTS.index(manifest), seal(manifest, 1, 2, 3, 1, 0, -1, 0, 0)
        yield bytes([which]) + seal(manifest, 1, 2, 3, least, 0, 0, 0, 0)
        yield bytes([which | _SIGNED]) + good[:-65] + bytes([good[-65] | 1]) + good[-64:]  # behind the last number


TARGETS = {"envelope": Target(check=check_record, seeds=record_seeds)}
