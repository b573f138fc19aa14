"""The envelope: one author's signed projected gradients of one round, as fixed-width bytes (SPEC 6).

Fixed width means that there is exactly one encoding: the bytes received are the bytes signed, and none are re-encoded.
A dense message packs its numbers in 2, 4 or 8 bits each: two's complement, in order, the high bits of a byte first.
What is left of the last byte is zero; the reader checks it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from protocol import crypto
from protocol.crypto import hashing, is_signed
from protocol.errors import Reject, RejectReason
from protocol.limits import NORMALISED_CLIP
from protocol.run import Manifest, ScalarKind, has_work

_HEAD = struct.Struct(">32sIQ")  # author, step, seed
_ROWS = struct.Struct(">H")  # of a dense message
_SIGNED_TAG = b"sfnode/envelope1"
_NONE = np.empty(0, dtype=np.int8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A decoded record.

    Attributes:
        author: Ed25519 public key.
        step: first step of the round; a multiple of local_steps.
        seed: 64-bit seed of the round's directions.
        scalars: quantised projected gradients, local step by local step, D each. In a dense message the number of its
            rows alone.
        numbers: of a dense message, those of all coordinates of the core, int8; else none.
        record: the wire bytes, signature included.
    """

    author: crypto.Author
    step: int
    seed: int
    scalars: tuple[int, ...]
    numbers: NDArray[np.int8] = field(default_factory=lambda: _NONE, compare=False)  # the record holds them, too
    record: bytes

    @property
    def measured(self) -> tuple[int, ...]:
        """Return what the author measured: the scalars, or the numbers of a dense message."""
        return tuple(self.numbers.tolist()) if self.numbers.size else self.scalars

    @property
    def payload(self) -> bytes:
        """Return the bytes that identify the update: the record without its signature."""
        return self.record[: -crypto.SIGNATURE_BYTES]


class EnvelopeCodec:
    """Encodes, decodes and checks the envelopes of one run."""

    def __init__(self, manifest: Manifest) -> None:
        crypto.check_verifier()
        self._manifest = manifest
        method, numbers = manifest.method, manifest.numbers
        self._scalars = struct.Struct(f">{numbers}h")  # of all but dense messages
        self._prefix = _SIGNED_TAG + manifest.run_id
        dense_bytes = _ROWS.size + packed_bytes(numbers - 1, method.number_bits)
        self.record_bytes = (
            _HEAD.size + (dense_bytes if method.is_dense else self._scalars.size) + crypto.SIGNATURE_BYTES
        )

    def seal(self, signer: crypto.Signer, step: int, scalars: tuple[int, ...]) -> Envelope:
        """Sign ``scalars`` for the round at ``step``. The caller must have made the step durable before (SPEC 9.2)."""
        method, numbers = self._manifest.method, _NONE
        if method.is_dense:
            packed = _ROWS.pack(scalars[0]) + pack_numbers(scalars[1:], method.number_bits)
            scalars, numbers = scalars[:1], np.array(scalars[1:], dtype=np.int8)
        else:
            packed = self._scalars.pack(*scalars)
        seed = hashing.seed_of(self._manifest.run_id, signer.author, step)
        payload = _HEAD.pack(signer.author, step, seed) + packed
        record = payload + signer.sign(self._prefix + payload)
        return Envelope(author=signer.author, step=step, seed=seed, scalars=scalars, numbers=numbers, record=record)

    def split_untrusted(self, data: bytes) -> list[bytes]:
        """Split concatenated records. Raises Reject(SIZE) when the length is not a multiple of a record's."""
        # [REJECT] SPEC 6.1: a run of records is a whole number of records.
        if len(data) % self.record_bytes != 0:
            text = f"{len(data)} bytes are not a whole number of {self.record_bytes}-byte records"
            raise Reject(RejectReason.SIZE, text)
        return [data[start : start + self.record_bytes] for start in range(0, len(data), self.record_bytes)]

    def decode_untrusted(self, record: bytes) -> Envelope:
        """Decode a record and check everything but seed, key and signature. Raises Reject."""
        # [REJECT] SPEC 6.2.1: the record has the manifest's length.
        if len(record) != self.record_bytes:
            raise Reject(RejectReason.SIZE, f"record of {len(record)} bytes, this run's have {self.record_bytes}")
        author, step, seed = _HEAD.unpack_from(record)
        method = self._manifest.method
        # [REJECT] SPEC 6.2.2: 0 <= step < steps, and a multiple of local_steps.
        if step >= self._manifest.steps:
            raise Reject(RejectReason.STEP_RANGE, f"step {step} of a run of {self._manifest.steps} steps")
        if step % method.local_steps != 0:
            raise Reject(RejectReason.STEP_ALIGNMENT, f"step {step} does not start a round of {method.local_steps}")
        if method.is_dense:
            rows, numbers = _dense_numbers(self._manifest, record)
            return Envelope(author=author, step=step, seed=seed, scalars=(rows,), numbers=numbers, record=record)
        scalars = self._scalars.unpack_from(record, _HEAD.size)
        # [REJECT] SPEC 6.2.3: |q| <= clip; normalised scalars have the energy that normalising gives.
        if max(scalars) > method.clip or min(scalars) < -method.clip:
            raise Reject(RejectReason.SCALAR_RANGE, f"a scalar exceeds the clip bound {method.clip}")
        if method.scalar is ScalarKind.NORMALISED:
            for start in range(0, method.scalars, method.directions):
                _check_energy(scalars[start : start + method.directions])
        return Envelope(author=author, step=step, seed=seed, scalars=scalars, record=record)

    def check_signed(self, envelope: Envelope) -> None:
        """Check the costly rules: seed (1 us), key (20 us, cached), signature (45 us). Raises Reject."""
        # [REJECT] SPEC 6.2.4: nobody chooses a direction: the seed follows from run, author and step.
        if envelope.seed != hashing.seed_of(self._manifest.run_id, envelope.author, envelope.step):
            text = f"seed {envelope.seed:016x} is not the one derived for step {envelope.step}"
            raise Reject(RejectReason.SEED, text)
        # [REJECT] SPEC 6.2.5: the author's key is canonical and of prime order.
        if not crypto.is_author_key(envelope.author):
            raise Reject(RejectReason.AUTHOR_KEY, f"author {envelope.author.hex()[:16]} is not a valid Ed25519 key")
        # [REJECT] SPEC 6.2.5: and it has cost the work that the run asks for.
        if not has_work(self._manifest.admission, self._manifest.run_id, envelope.author):
            wanted = self._manifest.admission.pow_bits
            raise Reject(RejectReason.AUTHOR_WORK, f"author {envelope.author.hex()[:16]} lacks {wanted} bits of work")
        # [REJECT] SPEC 6.2.6: the signature covers tag, run id and payload.
        signature = envelope.record[-crypto.SIGNATURE_BYTES :]
        if not is_signed(envelope.author, self._prefix + envelope.payload, signature):
            raise Reject(RejectReason.SIGNATURE, f"step {envelope.step} of {envelope.author.hex()[:16]}: bad signature")


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes that ``count`` numbers of ``bits`` bits take."""
    return -(-count * bits // 8)


def pack_numbers(numbers: Sequence[int], bits: int) -> bytes:
    """Pack numbers that ``bits`` bits hold, and fill the last byte with zeros."""
    values, each = np.array(numbers, dtype=np.int16), 8 // bits
    assert np.all((values >= -(1 << bits - 1)) & (values < 1 << bits - 1)), "a number has too many bits"
    room = np.zeros(packed_bytes(len(values), bits) * each, dtype=np.int16)
    room[: len(values)] = values & (1 << bits) - 1
    octets = room.reshape(-1, each) << np.arange(8 - bits, -1, -bits)
    return bytes(octets.sum(axis=1).astype(np.uint8))


def unpack_numbers(data: bytes, bits: int) -> NDArray[np.int8]:
    """Return all numbers that the bytes have room for, int8: those behind the last one of a message are its filling."""
    return _UNPACKED[bits][np.frombuffer(data, dtype=np.uint8)].view(np.int8)


# By bits, what each of the 256 octets unpacks to: its numbers, int8 each, as one unsigned integer
_OCTETS = np.arange(256, dtype=np.uint8)[:, None]
_UNPACKED = {
    bits: ((_OCTETS << np.arange(0, 8, bits, dtype=np.uint8)).view(np.int8) >> 8 - bits).view(f"u{8 // bits}").ravel()
    for bits in (2, 4, 8)
}


def _dense_numbers(manifest: Manifest, record: bytes) -> tuple[int, NDArray[np.int8]]:
    """Return the rows and the numbers of a dense message, and check the rules of SPEC 5.6 and 6.1. Raises Reject."""
    method, count = manifest.method, manifest.numbers - 1
    (rows,) = _ROWS.unpack_from(record, _HEAD.size)
    numbers = unpack_numbers(record[_HEAD.size + _ROWS.size : -crypto.SIGNATURE_BYTES], method.number_bits)
    # [REJECT] SPEC 6.2.3: it stands for 1 ... D rows, |q| <= clip, zeros fill the last byte, and its energy is bounded.
    if not 1 <= rows <= method.directions:
        raise Reject(RejectReason.SCALAR_RANGE, f"a message of {rows} rows, not of 1 to {method.directions}")
    if numbers.min() < -method.clip:
        raise Reject(RejectReason.SCALAR_RANGE, f"a scalar exceeds the clip bound {method.clip}")
    if numbers[count:].any():
        raise Reject(RejectReason.SCALAR_RANGE, f"bits are set behind the last of {count} numbers")
    if (energy := int(np.square(numbers, dtype=np.int32).sum())) > method.energy_max:
        raise Reject(RejectReason.SCALAR_ENERGY, f"a dense message with energy {energy}, at most {method.energy_max}")
    return rows, numbers[:count]


def _check_energy(scalars: tuple[int, ...]) -> None:
    """Check the energy rule of SPEC 5.2 for one local step's D scalars, of which n are not zero.

    n >= 1 and 31.5^2 n <= sum q^2 <= 32.5^2 D; a clipped scalar permits a lower energy. Raises Reject.
    """
    energy, count = 4 * sum(q * q for q in scalars), len(scalars) - scalars.count(0)
    is_clipped = max(map(abs, scalars)) == NORMALISED_CLIP
    if not count or energy > 4_225 * len(scalars) or (energy < 3_969 * count and not is_clipped):
        text = f"normalised scalars with energy {energy / 4:g} for {count} of {len(scalars)} directions"
        raise Reject(RejectReason.SCALAR_ENERGY, text)


# The signature's and key's lengths are part of the layout.
assert _HEAD.size == crypto.KEY_BYTES + 4 + 8
