"""Vectors of envelopes (SPEC 6): bytes under a manifest, and the verdict of every rule of 6.2."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from protocol.crypto.hashing import Author, RunId, hash_fields, seed_of
from protocol.ledger.digest_buckets import PAYLOAD_HASH_BYTES
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import Manifest
from tests.support.ledgers import signer
from tests.vectors import edwards
from tests.vectors.notation import Case, Document, as_bytes, case, compact, document, judged, key_text
from tests.vectors.runs import (
    AUTHOR,
    DENSE,
    EXAMPLE,
    MANIFESTS,
    NORMALISED,
    OF_2_BITS,
    OF_4_BITS,
    ROUNDS,
    WIDEST,
    record,
    texts,
)

_NAMES = {manifest.run_id: name for name, manifest in MANIFESTS.items()}
_ENERGETIC = (32, -32, 32, -32)  # normalised, D = 4: 4 E = 4096 D


class Row(NamedTuple):
    """A record and the reason for which it is meant to be refused, None: it is valid."""

    name: str
    manifest: Manifest
    data: bytes
    reason: str | None


def envelopes() -> Document:
    """envelopes.json"""
    rows = [*_valid(), *_sizes(), *_steps(), *_scalars(), *_energies(), *_seeds(), *_authors(), *_signatures()]
    cases = [_decoded(row) for row in [*rows, *_two_faults(), *_dense(), *_packed()]]
    about = "Records under a manifest and their verdicts: SPEC 6"
    return document(about, [*cases, *_splits(), *_seals()], manifests=texts(MANIFESTS))


def _decoded(row: Row) -> Case:
    codec = EnvelopeCodec(row.manifest)

    def members() -> dict[str, Any]:
        envelope = codec.decode_untrusted(row.data)
        codec.check_signed(envelope)
        return {
            "author": envelope.author.hex(),
            "step": envelope.step,
            "seed": key_text(envelope.seed),
            "scalars": [*envelope.scalars, *envelope.numbers.tolist()],
            "payload_hash": hash_fields("sfnode/payload/1", envelope.payload)[:PAYLOAD_HASH_BYTES].hex(),
        }

    found = judged(members)
    assert found["reason"] == row.reason, (row.name, found)
    data = _written(row.data)
    assert as_bytes(data) == row.data
    return case(row.name, "decode", {"manifest": _NAMES[row.manifest.run_id], "record": data}, found)


def _written(data: bytes) -> object:
    parts = compact(data, b"\x7f\xff", b"\x80\x01", b"\0", readable=False) if len(data) > 1_000 else [data.hex()]
    return parts[0] if len(parts) == 1 else parts


def _valid() -> Iterator[Row]:
    yield Row("valid: example of SPEC 6.1", EXAMPLE, record(EXAMPLE, 7, -300), None)
    yield Row("valid: another author, first step", EXAMPLE, record(EXAMPLE, 0, 0, author=signer(1)), None)
    yield Row("valid: last step", EXAMPLE, record(EXAMPLE, 39, 1), None)
    yield Row("valid: K = 3, D = 2", ROUNDS, record(ROUNDS, 9, 1, -2, 3, -4, 100, -100), None)
    yield Row("valid: all scalars zero", ROUNDS, record(ROUNDS, 0, *[0] * 6), None)
    yield Row("valid: normalised", NORMALISED, record(NORMALISED, 2, 14, -28, 56, 7, *_ENERGETIC), None)
    yield Row("valid: the longest, largest scalars", WIDEST, record(WIDEST, 4, *[32_767] * 1_024), None)
    yield Row("valid: the longest, least scalars", WIDEST, record(WIDEST, 36, *[-32_767] * 1_024), None)


def _sizes() -> Iterator[Row]:
    good = record(EXAMPLE, 7, -300)
    for name, data in {
        "no bytes": b"",
        "a byte short": good[:-1],
        "a byte long": good + b"\0",
        "two records": good * 2,
        "the payload alone": good[:-64],
        "a record of K = 3": record(ROUNDS, 0, *[0] * 6),
    }.items():
        yield Row(f"size: {name}", EXAMPLE, data, "SIZE")


def _steps() -> Iterator[Row]:
    for step in (40, 41, 1 << 20, (1 << 32) - 1):
        yield Row(f"step: {step} of 40", EXAMPLE, record(EXAMPLE, step, 1), "STEP_RANGE")
    for step in (12, 15):
        yield Row(f"step: {step} of 12, K = 3", ROUNDS, record(ROUNDS, step, *[1] * 6), "STEP_RANGE")
    for step in (1, 2, 4, 11):
        yield Row(f"step: {step}, K = 3", ROUNDS, record(ROUNDS, step, *[1] * 6), "STEP_ALIGNMENT")


def _scalars() -> Iterator[Row]:
    for value in (1_000, -1_000, 1_001, -1_001, 32_767, -32_768):
        reason = "SCALAR_RANGE" if abs(value) > 1_000 else None
        yield Row(f"clip 1000: {value}", EXAMPLE, record(EXAMPLE, 5, value), reason)
    for place in range(6):
        row = [101 if index == place else 0 for index in range(6)]
        yield Row(f"clip 100: 101 in place {place}", ROUNDS, record(ROUNDS, 3, *row), "SCALAR_RANGE")
    least = [*[0] * 1_023, -32_768]
    yield Row("clip 32767: -32768 in the last place", WIDEST, record(WIDEST, 0, *least), "SCALAR_RANGE")
    row = [128, 0, 0, 0, *_ENERGETIC]
    yield Row("normalised: 128", NORMALISED, record(NORMALISED, 0, *row), "SCALAR_RANGE")


def _energies() -> Iterator[Row]:
    """E of each local step on its own; clipping excuses only the step in which it happens."""
    for name, first, second, is_valid in (
        ("least E", (60, 18, 6, 3), _ENERGETIC, True),
        ("just below in the first step", (48, 32, 24, 8), _ENERGETIC, False),
        ("just below in the second step", _ENERGETIC, (48, 32, 24, 8), False),
        ("most E", _ENERGETIC, (0, 0, 0, -65), True),
        ("just above in the first step", (65, 1, 0, 0), _ENERGETIC, False),
        ("just above in the second step", _ENERGETIC, (65, 0, 0, -1), False),
        ("too much, too little: no average", (66, 0, 0, 0), (62, 0, 0, 0), False),
        ("127: too much with D = 4", (127, 0, 0, 0), _ENERGETIC, False),
        ("zeros", (0, 0, 0, 0), _ENERGETIC, False),
        ("zeros in the second step", _ENERGETIC, (0, 0, 0, 0), False),
        ("two of four in both steps", (32, 32, 0, 0), (-32, 32, 0, 0), True),
        ("two of four, the least E", (44, 7, 0, 0), _ENERGETIC, True),
        ("two of four, below", (44, -6, 0, 0), _ENERGETIC, False),
        ("two of four, below in the second step", _ENERGETIC, (44, -6, 0, 0), False),
        ("one of four", (0, 32, 0, 0), _ENERGETIC, True),
        ("one of four, below", (0, 31, 0, 0), _ENERGETIC, False),
        ("two of four with all of E", (45, -45, 0, 0), _ENERGETIC, True),
        ("two of four with more", (46, -46, 0, 0), _ENERGETIC, False),
    ):
        row = record(NORMALISED, 4, *first, *second)
        yield Row(f"energy: {name}", NORMALISED, row, None if is_valid else "SCALAR_ENERGY")


def _built(manifest: Manifest, author: bytes, step: int, seed: int, scalars: tuple[int, ...]) -> bytes:
    """A payload of any content, signed by AUTHOR."""
    payload = struct.pack(f">32sIQ{len(scalars)}h", author, step, seed, *scalars)
    return payload + AUTHOR.sign(b"sfnode/envelope1" + manifest.run_id + payload)


def _seeds() -> Iterator[Row]:
    right = seed_of(EXAMPLE.run_id, AUTHOR.author, 7)
    for name, seed in {
        "one more": right + 1,
        "zero": 0,
        "bytes reversed": int.from_bytes(right.to_bytes(8, "little"), "big"),
        "of the next step": seed_of(EXAMPLE.run_id, AUTHOR.author, 8),
        "of another author": seed_of(EXAMPLE.run_id, signer(1).author, 7),
        "of another run": seed_of(RunId(bytes(32)), AUTHOR.author, 7),
    }.items():
        yield Row(f"seed: {name}", EXAMPLE, _built(EXAMPLE, AUTHOR.author, 7, seed, (1,)), "SEED")


def _authors() -> Iterator[Row]:
    mixed = edwards.add(edwards.multiply(99, edwards.BASE), edwards.torsion()[0])
    keys = {f"of small order, {i + 1} t": edwards.encode(t) for i, t in enumerate(edwards.torsion())}
    keys["of zeros"] = bytes(32)
    keys["no point"] = edwards.encode_raw(2, 0)
    keys["identity, not canonical"] = edwards.encode_raw(edwards.P + 1, 0)
    keys["large order, not canonical"] = edwards.encode_raw(edwards.P + 3, 0)
    for name, key in keys.items():
        seed = seed_of(EXAMPLE.run_id, Author(key), 3)
        yield Row(f"author: {name}", EXAMPLE, _built(EXAMPLE, key, 3, seed, (1,)), "AUTHOR_KEY")
    key = edwards.encode(mixed)
    data = _signed_by(key, 99)
    yield Row("author: mixed order, the signature alone would pass", EXAMPLE, data, "AUTHOR_KEY")


def _signed_by(key: bytes, secret: int) -> bytes:
    """A record of an author of mixed order with a signature that verifies without the cofactor."""
    seed = seed_of(EXAMPLE.run_id, Author(key), 3)
    nonce = 1
    while True:
        for value in range(-1_000, 1_001):
            payload = struct.pack(">32sIQh", key, 3, seed, value)
            r = edwards.encode(edwards.multiply(nonce, edwards.BASE))
            h = edwards.challenge(r, key, b"sfnode/envelope1" + EXAMPLE.run_id + payload)
            if h % 8 == 0:
                return payload + r + edwards.scalar_bytes((nonce + h * secret) % edwards.L)
        nonce += 1


def _signatures() -> Iterator[Row]:
    good = record(EXAMPLE, 7, -300)
    payload, signature = good[:-64], good[-64:]
    more = int.from_bytes(signature[32:], "little") + edwards.L
    signed = b"sfnode/envelope1" + EXAMPLE.run_id + payload
    for name, other in {
        "of zeros": bytes(64),
        "of another author": signer(1).sign(signed),
        "of another payload": record(EXAMPLE, 7, -301)[-64:],
        "a flipped bit in R": bytes([signature[0] ^ 1]) + signature[1:],
        "a flipped bit in S": signature[:40] + bytes([signature[40] ^ 1]) + signature[41:],
        "S + L": signature[:32] + edwards.scalar_bytes(more),
        "for another run": AUTHOR.sign(b"sfnode/envelope1" + NORMALISED.run_id + payload),
        "without the run id": AUTHOR.sign(b"sfnode/envelope1" + payload),
        "without the tag": AUTHOR.sign(signed[16:]),
        "with another tag": AUTHOR.sign(b"sfnode/envelope2" + signed[16:]),
        "over the payload's hash": AUTHOR.sign(hash_fields("sfnode/payload/1", payload)),
        "R of mixed order: only with the cofactor": _cofactored(signed),
    }.items():
        yield Row(f"signature: {name}", EXAMPLE, payload + other, "SIGNATURE" if other != signature else None)
    flipped = payload[:-1] + bytes([payload[-1] ^ 1]) + signature
    yield Row("signature: a flipped bit in the scalar", EXAMPLE, flipped, "SIGNATURE")


def _cofactored(signed: bytes) -> bytes:
    """A signature by AUTHOR that only verifiers with the cofactor take: R = r B + t."""
    secret = edwards.secret_scalar(bytes(32))
    r = edwards.encode(edwards.add(edwards.multiply(5, edwards.BASE), edwards.torsion()[0]))
    s = (5 + edwards.challenge(r, AUTHOR.author, signed) * secret) % edwards.L
    return r + edwards.scalar_bytes(s)


def _two_faults() -> Iterator[Row]:
    """The first rule that is broken names the reason."""
    small = edwards.encode(edwards.torsion()[0])
    unsigned = bytes(64)
    yield Row("order: size before step", EXAMPLE, record(EXAMPLE, 99, 1)[:-1], "SIZE")
    yield Row("order: range before alignment", ROUNDS, record(ROUNDS, 13, *[1] * 6), "STEP_RANGE")
    yield Row("order: range before scalars", EXAMPLE, record(EXAMPLE, 40, 2_000), "STEP_RANGE")
    yield Row("order: alignment before scalars", ROUNDS, record(ROUNDS, 1, *[101] * 6), "STEP_ALIGNMENT")
    row = [128, 0, 0, 0, 0, 0, 0, 0]
    yield Row("order: clip before energy", NORMALISED, record(NORMALISED, 0, *row), "SCALAR_RANGE")
    late = [0, 0, 0, 0, 128, 0, 0, 0]
    yield Row("order: clip of all before energy of any", NORMALISED, record(NORMALISED, 0, *late), "SCALAR_RANGE")
    yield Row("order: scalars before seed", EXAMPLE, _built(EXAMPLE, AUTHOR.author, 7, 0, (2_000,)), "SCALAR_RANGE")
    yield Row("order: seed before author", EXAMPLE, _built(EXAMPLE, small, 7, 0, (1,)), "SEED")
    data = _built(EXAMPLE, AUTHOR.author, 7, 0, (1,))[:-64] + unsigned
    yield Row("order: seed before signature", EXAMPLE, data, "SEED")
    seed = seed_of(EXAMPLE.run_id, Author(small), 7)
    data = _built(EXAMPLE, small, 7, seed, (1,))[:-64] + unsigned
    yield Row("order: author before signature", EXAMPLE, data, "AUTHOR_KEY")


def _dense() -> Iterator[Row]:
    """4 rows at most, eight numbers, and 20,000 as their largest energy."""
    most, good = (127, -62, 5, 1, 1, 0, 0, 0), record(DENSE, 2, 3, 1, -2, 3, -4, 5, -6, 7, -8)
    for name, numbers, reason in (
        ("valid: one row", (1, 1, -2, 3, -4, 5, -6, 7, -8), None),
        ("valid: as many rows as a message may have", (4, *[-127 if place == 7 else 1 for place in range(8)]), None),
        ("valid: zeros", (2, *[0] * 8), None),
        ("valid: the most energy", (4, *most), None),
        ("energy: one more", (4, *most[:-1], -1), "SCALAR_ENERGY"),
        ("energy: of the largest numbers", (1, *[127] * 8), "SCALAR_ENERGY"),
        ("rows: none", (0, *[1] * 8), "SCALAR_RANGE"),
        ("rows: one too many", (5, *[1] * 8), "SCALAR_RANGE"),
        ("rows: 65535", (65_535, *[1] * 8), "SCALAR_RANGE"),
        ("a number of -128, the first", (3, -128, *[0] * 7), "SCALAR_RANGE"),
        ("a number of -128, the last", (3, *[0] * 7, -128), "SCALAR_RANGE"),
        ("order: rows before energy", (0, *[127] * 8), "SCALAR_RANGE"),
        ("order: -128 before energy", (4, *[127] * 7, -128), "SCALAR_RANGE"),
    ):
        yield Row(f"dense: {name}", DENSE, record(DENSE, 2, *numbers), reason)
    widened = good[:44] + good[44:46] + b"".join(bytes([0, number]) for number in good[46:54]) + good[54:]
    for name, data in {"a byte short": good[:-1], "a byte long": good + b"\0", "numbers of 16 bits": widened}.items():
        yield Row(f"dense: size: {name}", DENSE, data, "SIZE")
    yield Row("dense: step: 6 of 6", DENSE, record(DENSE, 6, 0, *[127] * 8), "STEP_RANGE")
    signed = good[:-65] + bytes([good[-65] ^ 1]) + good[-64:]
    yield Row("dense: signature: a flipped bit in the last number", DENSE, signed, "SIGNATURE")
    seeded = good[:36] + bytes(8) + good[44:]
    yield Row("dense: seed: zero", DENSE, seeded, "SEED")


def _packed() -> Iterator[Row]:
    """Five numbers of 4 or 2 bits, with 4 or 6 bits behind the last one; 150 and 4 as their largest energy."""
    for name, numbers, reason in (
        ("valid: numbers of both signs", (7, -7, 1, -1, 0), None),
        ("valid: the last number", (0, 0, 0, 0, -7), None),
        ("valid: the most energy", (7, -7, 6, -4, 0), None),
        ("energy: one more", (7, -7, 7, -2, 0), "SCALAR_ENERGY"),
        ("a number of -8, the first", (-8, 0, 0, 0, 0), "SCALAR_RANGE"),
        ("a number of -8, the last", (0, 0, 0, 0, -8), "SCALAR_RANGE"),
        ("order: -8 before energy", (7, 7, 7, 7, -8), "SCALAR_RANGE"),
    ):
        yield Row(f"dense, 4 bits: {name}", OF_4_BITS, record(OF_4_BITS, 2, 4, *numbers), reason)
    for name, numbers, reason in (
        ("valid: numbers of both signs", (1, -1, 0, 1, -1), None),
        ("valid: the last number", (0, 0, 0, 0, 1), None),
        ("energy: one more", (1, -1, 1, 1, 1), "SCALAR_ENERGY"),
        ("a number of -2, the first", (-2, 0, 0, 0, 0), "SCALAR_RANGE"),
        ("a number of -2, the last", (0, 0, 0, 0, -2), "SCALAR_RANGE"),
        ("order: -2 before energy", (1, 1, 1, 1, -2), "SCALAR_RANGE"),
    ):
        yield Row(f"dense, 2 bits: {name}", OF_2_BITS, record(OF_2_BITS, 2, 4, *numbers), reason)
    for name, manifest, spare in (("4 bits", OF_4_BITS, 4), ("2 bits", OF_2_BITS, 6)):
        good = record(manifest, 2, 4, 1, 0, -1, 0, 1)
        for bit in range(spare):
            row = _with_last_byte(manifest, good, good[-65] ^ 1 << bit)
            yield Row(f"dense, {name}: bit {bit} behind the last number", manifest, row, "SCALAR_RANGE")
        yield Row(f"dense, {name}: size: a byte short", manifest, good[:-1], "SIZE")
        long = good[:46] + bytes([1, 0, 255, 0, 1]) + good[-64:]
        yield Row(f"dense, {name}: size: a byte for each number", manifest, long, "SIZE")


def _with_last_byte(manifest: Manifest, good: bytes, octet: int) -> bytes:
    """The record with another last byte of its payload, signed by AUTHOR."""
    payload = good[:-65] + bytes([octet])
    return payload + AUTHOR.sign(b"sfnode/envelope1" + manifest.run_id + payload)


def _splits() -> Iterator[Case]:
    good = record(EXAMPLE, 7, -300)
    rows = {"nothing": b"", "one": good, "three": good * 3, "any content": bytes(220), "a byte less": (good * 2)[:-1]}
    rows |= {"a byte more": good + b"\0", "one byte": b"\0"}
    for name, data in rows.items():
        found = judged(lambda data=data: {"records": len(EnvelopeCodec(EXAMPLE).split_untrusted(data))})  # type: ignore[misc]
        yield case(f"split: {name}", "split", {"manifest": "example", "data": data.hex()}, found)


def _seals() -> Iterator[Case]:
    rows: dict[str, tuple[int, tuple[int, ...]]] = {
        "example": (7, (-300,)),
        "normalised": (38, (*_ENERGETIC, 14, -28, 56, 7)),
        "rounds": (9, (1, -2, 3, -4, 100, -100)),
        "dense": (5, (4, 1, -2, 3, -4, 5, -6, 7, -127)),
        "dense, 4 bits": (5, (4, 1, -2, 7, -7, 5)),
        "dense, 2 bits": (5, (4, 1, -1, 0, 0, 1)),
    }
    for name, (step, scalars) in rows.items():
        given = {"manifest": name, "secret_seed": bytes(32).hex(), "step": step, "scalars": list(scalars)}
        yield case(f"seal: {name}", "seal", given, {"record": record(MANIFESTS[name], step, *scalars).hex()})
