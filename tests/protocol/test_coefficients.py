"""The model's state against a slow reference in plain integers, and the proofs that nothing overflows or rounds."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from protocol.crypto.hashing import Author
from protocol.errors import Reject, RejectReason
from protocol.ledger.envelope import Envelope, EnvelopeCodec
from protocol.run.manifest import Manifest, TensorKind, checked, coefficient_max
from protocol.run.method import CoreKind
from protocol.state import coefficients
from protocol.state.coefficients import CoefficientLayout, Coefficients, view_exp
from protocol.state.replica import Replica
from protocol.subspace.directions import basis
from protocol.subspace.philox import words
from tests.support.ledgers import ledger_of, seal
from tests.support.manifests import manifest_data, small_manifest

SHAPES: list[dict[str, Any]] = [
    {},
    {"rank": 1},
    {"rank": 32, "directions": 4},
    {"local_steps": 4, "directions": 2},
    {"core": "rademacher"},
    {"core": "rademacher", "rank": 4, "directions": 8, "local_steps": 2, "scalar": "normalised", "clip": 127},
]


def envelopes(manifest: Manifest, count: int, *, seed: int = 0) -> list[Envelope]:
    """Updates with random scalars, over all epochs; their signatures do not matter here."""
    chance, codec = random.Random(seed), EnvelopeCodec(manifest)
    method = manifest.method
    found = []
    for number in range(count):
        step = chance.randrange(manifest.steps // method.local_steps) * method.local_steps
        scalars = tuple(chance.randint(-method.clip, method.clip) for _ in range(method.scalars))
        found.append(
            Envelope(
                author=Author(number.to_bytes(32, "big")),
                step=step,
                seed=chance.getrandbits(64),
                scalars=scalars,
                record=bytes(codec.record_bytes),
            )
        )
    return found


def reference_cores(manifest: Manifest, seed: int, number: int) -> list[tuple[list[int], list[int]]]:
    """(a, b) of each tensor for the direction ``number`` of a round, as SPEC 4.3 says it."""
    rank, count = manifest.method.rank, len(manifest.tensors)
    log2_rank = rank.bit_length() - 1
    stream = 1 if manifest.method.core is CoreKind.CANONICAL else 2
    bits = words_of_direction(seed, number, stream, 2 * rank * count)
    cores = []
    for p in range(count):
        if stream == 1:
            lane = bits >> (16 * p) & 0xFFFF
            a, b = [0] * rank, [0] * rank
            a[lane & (rank - 1)] = -1 if lane >> 15 else 1
            b[lane >> log2_rank & (rank - 1)] = 1
        else:
            a, b = ([1 - 2 * (bits >> (2 * rank * p + half * rank + i) & 1) for i in range(rank)] for half in (0, 1))
        cores.append((a, b))
    return cores


def words_of_direction(seed: int, number: int, stream: int, bits: int) -> int:
    """The direction's words as one integer, first word lowest; by plain integers."""
    result = 0
    for block in range(-(-max(bits, 128) // 128)):
        x0, x1, x2, x3 = block, number, 0, stream
        k0, k1 = seed & 0xFFFFFFFF, seed >> 32
        for _ in range(10):
            p0, p1 = x0 * 0xD2511F53, x2 * 0xCD9E8D57
            x0, x1, x2, x3 = (p1 >> 32) ^ x1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ x3 ^ k1, p0 & 0xFFFFFFFF
            k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
        result |= (x0 | x1 << 32 | x2 << 64 | x3 << 96) << (128 * block)
    return result


def reference(manifest: Manifest, updates: list[Envelope]) -> dict[int, list[list[int]]]:
    """C by epoch, each tensor flat, as SPEC 4.5 says it."""
    method = manifest.method
    state: dict[int, list[list[int]]] = {}
    for update in updates:
        epoch = state.setdefault(
            update.step // method.epoch_steps,
            [[0] * (method.rank if t.kind is TensorKind.VECTOR else method.rank**2) for t in manifest.tensors],
        )
        for number, scalar in enumerate(update.scalars):
            amount = scalar * manifest.weight(update.step + number // method.directions)
            for p, (a, b) in enumerate(reference_cores(manifest, update.seed, number)):
                is_vector = manifest.tensors[p].kind is TensorKind.VECTOR
                add_outer(epoch[p], amount, a, [1] if is_vector else b)
    return state


def add_outer(flat: list[int], amount: int, a: list[int], b: list[int]) -> None:
    for i, a_i in enumerate(a):
        for j, b_j in enumerate(b):
            flat[i * len(b) + j] += amount * a_i * b_j


@pytest.mark.parametrize("method", SHAPES, ids=[str(shape) for shape in SHAPES])
def test_coefficients__any_method__equal_the_slow_reference(method: dict[str, Any]) -> None:
    manifest = small_manifest(**method)
    updates = envelopes(manifest, 12)
    got = Coefficients(manifest)
    got.add(updates)
    expected = reference(manifest, updates)
    assert got.epochs() == tuple(sorted(expected)) and len(got.epochs()) > 1
    for epoch, tensors in expected.items():
        for p, values in enumerate(tensors):
            assert got.layout.tensor(got.flat(epoch), p).reshape(-1).tolist() == values


@pytest.mark.parametrize("method", SHAPES, ids=[str(shape) for shape in SHAPES])
def test_coefficients__added_in_other_order_pieces_and_chunks__have_equal_bits(
    method: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = small_manifest(**method)
    updates = envelopes(manifest, 40)
    whole, pieces = Coefficients(manifest), Coefficients(manifest)
    whole.add(updates)
    monkeypatch.setattr(coefficients, "_CORES_PER_CHUNK", 50)
    random.Random(3).shuffle(updates)
    for start in range(0, len(updates), 7):
        pieces.add(updates[start : start + 7])
    assert whole.digest() == pieces.digest()


def test_coefficients__all_taken_out_again__are_as_if_nothing_had_been() -> None:
    manifest = small_manifest(core="rademacher", directions=4)
    updates = envelopes(manifest, 30)
    state, kept = Coefficients(manifest), Coefficients(manifest)
    state.add(updates)
    kept.add(updates[10:])
    state.remove(updates[:10])
    assert state.digest() == kept.digest()
    state.remove(updates[10:])
    assert state.digest() == Coefficients(manifest).digest() and state.epochs() == ()


def test_state_digest__examples_of_the_specification__are_equal() -> None:
    manifest, replica = small_manifest(), Replica(small_manifest())
    assert replica.state_digest().hex() == "c31bbf32df14a0a09e7fbaf6214d2d1577506ae85465d467e7fa54de781ed6f1"
    record = bytes.fromhex(
        "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29000000078668520245f6280afed4"
        "347e7f73c1c190bdd142a476ad61afc1141ee172f2469400b3a85b3400fb148b"
        "b307428d81c27d99f2c38d6aee989c1abc157b1e980d2ebde8c653669ea26f0b"
    )
    replica.add(record)
    flat = replica.coefficients().flat(0)
    assert {int(i): int(flat[i]) for i in np.flatnonzero(flat)} == {51: 128_400, 66: 128_400, 83: -128_400}
    assert manifest.weight(7) == 428
    assert replica.state_digest().hex() == "3e28ee10b0b3b0fd5249edda95db29b27b5cab295de00094cf7207910c7261a0"


def test_state_digest__of_equal_sets_in_other_epochs__differs() -> None:
    manifest = small_manifest()
    digests = set()
    for epoch in (0, 1, 2):
        state = Coefficients(manifest)
        state.set_flat(epoch, np.arange(state.layout.size))
        digests.add(state.digest())
    assert len(digests) == 3


def test_state_digest__after_each_change__is_that_of_a_state_made_anew() -> None:
    manifest = small_manifest()
    updates = envelopes(manifest, 30)
    state = Coefficients(manifest)
    for count, update in enumerate(updates, start=1):
        state.add([update])
        fresh = Coefficients(manifest)
        fresh.add(updates[:count])
        assert state.digest() == fresh.digest()  # the digests of unchanged epochs are remembered
    for epoch in state.epochs():
        state.set_flat(epoch, np.zeros(state.layout.size, dtype=np.int64))
    assert state.digest() == Coefficients(manifest).digest()


class Unlisted(dict[int, Any]):
    """Its keys can be looked up, but not gone through."""

    def keys(self) -> Any:
        raise AssertionError("goes through all epochs")

    __iter__ = keys


def test_coefficients__one_epoch_of_many_changes__no_other_is_looked_at() -> None:
    manifest = small_manifest(steps=64, epoch_steps=4)
    state, codec = Coefficients(manifest), EnvelopeCodec(manifest)
    for step in range(0, 64, 4):
        state.add([codec.decode_untrusted(seal(manifest, 0, step))])
    state.hash_resting()
    before, revision = state.digest(), state.revision
    state._epochs = Unlisted(state._epochs)
    assert state.digest() == before and state.changed_since(revision) == []
    late = codec.decode_untrusted(seal(manifest, 1, 9))
    state.add([late])
    state.hash_resting()
    assert state.changed_since(revision) == [2]
    with pytest.raises(AssertionError, match="goes through"):
        state.digest()
    state._epochs = dict(state._epochs.items())
    assert state.digest() != before
    state.remove([late])
    assert state.digest() == before


def test_coefficients__epochs_changed_in_any_order__are_exact_and_rest_in_the_fewest_bytes() -> None:
    manifest = small_manifest(steps=64, epoch_steps=4)
    codec, chance = EnvelopeCodec(manifest), random.Random(3)
    held: dict[int, np.ndarray[Any, Any]] = {}
    summed = Coefficients(manifest)
    for _ in range(200):
        step = chance.randrange(64)
        q = (chance.choice([1, -manifest.method.clip]),)
        update = codec.decode_untrusted(seal(manifest, 0, step, *q))
        alone = Coefficients(manifest)
        alone.add([update])
        epoch = step // 4
        held[epoch] = held.get(epoch, 0) + alone.flat(epoch)
        summed.add([update])
    assert {epoch: summed.flat(epoch).tolist() for epoch in held} == {e: flat.tolist() for e, flat in held.items()}
    assert all(summed.flat(epoch).dtype == np.int64 for epoch in held)
    widths = sorted(flat.itemsize for flat in summed._epochs.values())
    assert widths[-coefficients._OPEN_EPOCHS :] == [8] * coefficients._OPEN_EPOCHS
    assert widths[: -coefficients._OPEN_EPOCHS] == [4] * (len(held) - coefficients._OPEN_EPOCHS)


def test_layout__matrices_and_vectors__lie_end_to_end() -> None:
    layout = CoefficientLayout(small_manifest())
    flat = np.arange(layout.size)
    assert [layout.tensor(flat, p).shape for p in range(3)] == [(8, 8), (8,), (8, 8)]
    assert np.concatenate([layout.tensor(flat, p).reshape(-1) for p in range(3)]).tolist() == list(range(136))


# --- the bounds of SPEC 4.5


def extreme(**changes: Any) -> dict[str, Any]:
    """A manifest whose bound is the largest power of two that is allowed: 2^52."""
    data = manifest_data(rank=16, epoch_steps=4, core="rademacher", clip=1 << 14, **changes)
    data.update(steps=4, authors_max=1 << 16)
    data["schedule"] = {"kind": "constant", "weight_start": 1 << 12, "weight_end": 1}
    return data


def test_bound__one_bit_more_than_53__is_refused_and_would_round() -> None:
    manifest = checked(extreme())
    assert coefficient_max(manifest) * 16**2 == 1 << 52
    data = extreme()
    data["schedule"]["weight_start"] = 1 << 13
    with pytest.raises(Reject) as caught:
        checked(data)
    assert caught.value.reason is RejectReason.MANIFEST_FIELD and "takes 54 bits" in caught.value.detail
    assert float(2**53 + 1) == float(2**53)  # what the rule keeps out
    assert float(2**53 - 1) != float(2**53)


@pytest.mark.parametrize(("clip", "scalar"), [(32_767, "raw"), (127, "normalised")])
def test_bound__largest_manifests__leave_int64_far_behind(clip: int, scalar: str) -> None:
    """Whatever passes has r^2 |C| < 2^53, so |C| and each term stay below 2^63 by ten bits."""
    data = manifest_data(rank=1, epoch_steps=1, directions=16, clip=clip, scalar=scalar)
    data["schedule"] = {"kind": "constant", "weight_start": 1 << 16, "weight_end": 0}
    data.update(steps=1, authors_max=1)
    manifest = checked(data)
    term = manifest.method.clip * manifest.weight(0)
    assert term <= coefficient_max(manifest) < 1 << 53
    assert int(np.int64(term) * np.int64(-1)) == -term


def test_bound__normalised_scalars__no_valid_sum_of_magnitudes_exceeds_33_per_direction() -> None:
    """By Cauchy-Schwarz sum |q| <= sqrt(D sum q^2) <= 32.5 D; tried at the flat vectors, where equality holds."""
    for directions in (2, 3, 64, 256):
        energy_max = 4_225 * directions / 4
        assert max(q * directions for q in range(128) if q * q * directions <= energy_max) <= 33 * directions
        assert Fraction(directions) * Fraction(4_225 * directions, 4) <= (33 * directions) ** 2


@pytest.mark.parametrize("core", ["canonical", "rademacher"])
def test_bound__every_author_at_the_clip_in_one_chunk__sums_exactly(core: str) -> None:
    data = extreme()
    data["method"]["core"] = core
    manifest = checked(data)
    clip = manifest.method.clip
    updates = [
        Envelope(author=Author(bytes(32)), step=0, seed=7, scalars=(clip - n % 2,), record=b"") for n in range(4_096)
    ]
    state = Coefficients(manifest)
    state.add(updates)
    once = Coefficients(manifest)
    once.add(updates[:1])
    unit = [value // (clip * 4_096) for value in once.flat(0).tolist()]
    assert {abs(value) for value in unit} <= {0, 1}
    total = 4_096 * 4_096 * clip - 4_096 * 2_048
    assert state.flat(0).tolist() == [sign * total for sign in unit]


def products(u: np.ndarray[Any, Any], c: np.ndarray[Any, Any], v: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """U C V^T in fp64, summed in several orders."""
    u, c, v = (x.astype(np.float64) for x in (u, c, v))
    rank = len(c)
    other = np.random.default_rng(0).permutation(rank)
    one_by_one = np.zeros((len(u), len(v)))
    for i in range(rank):
        for j in reversed(range(rank)):
            one_by_one += c[i, j] * np.outer(u[:, i], v[:, j])
    return [
        (u @ c) @ v.T,
        u @ (c @ v.T),
        (u[:, other] @ c[other]) @ v.T,
        one_by_one,
        np.einsum("mi,ij,nj->mn", u, c, v),
    ]


def test_view__coefficients_at_the_limit__is_exact_in_any_order_of_summation() -> None:
    rank, largest = 16, ((1 << 53) - 1) // 16**2
    tensor = small_manifest().tensors[0]
    found = basis(small_manifest().run_id, 0, 0, tensor, rank)
    assert found.v is not None
    u, v = found.u.astype(object), found.v.astype(object)
    aligned = np.outer(found.u[0], found.v[0]).astype(np.int64) * largest  # every term of entry (0, 0) has one sign
    noise = (words(5, rank * rank).astype(np.int64) * 2**21 % (2 * largest + 1) - largest).reshape(rank, rank)
    for c in (aligned, -aligned, noise, np.full((rank, rank), largest)):
        exact = u @ c.astype(object) @ v.T
        assert np.abs(exact).max() < 1 << 53
        for product in products(found.u, c, found.v):
            assert (product.astype(np.int64).astype(object) == exact).all()
    assert (u @ aligned.astype(object) @ v.T)[0, 0] == largest * rank**2


def test_view_exp__of_core_and_kind__adds_alpha_and_scale() -> None:
    assert [view_exp(small_manifest(), p) for p in range(3)] == [-20, -20, -20]
    assert [view_exp(small_manifest(core="rademacher"), p) for p in range(3)] == [-23, -22, -23]


def test_replica__live_sums_with_late_voids__equal_a_replay() -> None:
    manifest = small_manifest(core="rademacher", directions=4)
    replica = Replica(manifest)
    for step in range(30):
        for author in range(3):
            replica.add(seal(manifest, author, step))
        if step % 5 == 4:
            replica.add(seal(manifest, 1, step - 3, 9, 9, 9, 9))
        if step % 3 == 0:
            replica.sum_some(2)
        if step % 7 == 0:
            replica.coefficients()
    assert replica.unsummed > 0
    assert replica.state_digest() == replica.replayed_digest()
    assert (replica.ledger.updates, replica.ledger.void_slots, replica.unsummed) == (84, 6, 0)
    copy = ledger_of(manifest, [record for e in replica.ledger.slots.envelopes() for record in (e.record,)])
    assert copy.updates == 84 and copy.root() != replica.ledger.root()
