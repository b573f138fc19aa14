"""Shared randomness: known answers and bit layouts that a second implementation must reproduce."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from protocol.crypto.hashing import RunId, hash_fields, key_of, round_half_away, seed_of, u32
from protocol.crypto.keys import Signer
from protocol.errors import NumericError
from protocol.run.manifest import TensorKind, TensorSpec
from protocol.subspace.directions import basis, canonical_coordinates, direction_factors, rademacher_signs, scale_exp
from protocol.subspace.drawn_examples import example_indices, examples_in_turn
from protocol.subspace.philox import Words, philox4x32, signs, signs_of_words, split_key, words
from protocol.subspace.quantisation import quantise
from tests.support.ledgers import signer
from tests.support.manifests import small_manifest

RUN = RunId(bytes(range(32)))
SEED = 0x669780D2E34F4B19
DIRECTION_0 = np.array([0], dtype=np.uint32)


def block(counter: str, key: str) -> str:
    def as_words(text: str) -> list[Words]:
        return [np.array([int(word, 16)], dtype=np.uint32) for word in text.split()]

    x0, x1, x2, x3 = as_words(counter)
    k0, k1 = as_words(key)
    return " ".join(f"{word:08x}" for word in philox4x32((x0, x1, x2, x3), (k0, k1))[0])


def letters(values: np.ndarray[tuple[int, ...], np.dtype[np.int8]]) -> list[str]:
    return ["".join("+" if value > 0 else "-" for value in row) for row in values]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff " * 4, "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_philox__random123_known_answers__equal(counter: str, key: str, expected: str) -> None:
    assert block(counter, key) == expected


def reference_block(counter: tuple[int, int, int, int], key: int) -> tuple[int, int, int, int]:
    """Philox4x32-10 in plain Python integers, written from the paper."""
    x0, x1, x2, x3 = counter
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = x0 * 0xD2511F53, x2 * 0xCD9E8D57
        x0, x1, x2, x3 = (p1 >> 32) ^ x1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ x3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return x0, x1, x2, x3


@given(
    counter=st.tuples(*[st.integers(0, 2**32 - 1)] * 4),
    key=st.integers(0, 2**64 - 1),
)
def test_philox__any_counter_and_key__equals_plain_integers(counter: tuple[int, int, int, int], key: int) -> None:
    x0, x1, x2, x3 = (np.array([word], dtype=np.uint32) for word in counter)
    got = philox4x32((x0, x1, x2, x3), split_key(np.array([key], dtype=np.uint64)))
    assert tuple(int(word) for word in got[0]) == reference_block(counter, key)


def test_words__stream_2__equal_the_specification() -> None:
    got = words(0x0123456789ABCDEF, 6, 2)
    assert [f"{word:08x}" for word in got] == "46c5fd35 5f6468e3 a253a1cd 767e3b04 26db1478 ac58cde7".split()
    assert (words(0x0123456789ABCDEF, 2, 2) == got[:2]).all()


def test_signs__lowest_bit_first__bit_1_is_minus() -> None:
    assert signs(0x0123456789ABCDEF, 8, 2).tolist() == [-1, 1, -1, 1, -1, -1, 1, 1]
    assert signs_of_words(np.array([2, 1 << 31], dtype=np.uint32), 64).tolist().count(-1) == 2
    assert np.flatnonzero(signs_of_words(np.array([2, 1 << 31], dtype=np.uint32), 64) < 0).tolist() == [1, 63]


def test_hash_fields__example_of_the_specification__equal() -> None:
    expected = "b815b1ad7a7f43eac254eb73b66057b6d8ab3e7e8648b71df4a06c1794dcf3fe"
    assert hash_fields("sfnode/example/1", b"", b"abc").hex() == expected
    assert key_of("sfnode/example/1", b"", b"abc") == int(expected[:16], 16)


def test_hash_fields__same_bytes_cut_otherwise__differ() -> None:
    cuts = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc")]
    digests = {hash_fields("x", *cut) for cut in cuts} | {hash_fields("xa", b"bc"), hash_fields("", b"x", b"abc")}
    assert len(digests) == 7


def test_seed__of_run_author_and_step__equals_the_specification() -> None:
    author = Signer(bytes(32)).author
    assert author.hex() == "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
    assert seed_of(RUN, author, 7) == SEED
    others = {seed_of(RUN, author, 8), seed_of(RUN, signer(0).author, 7), seed_of(RunId(bytes(32)), author, 7)}
    assert len(others | {SEED}) == 4


def test_basis__example_of_the_specification__has_these_bits() -> None:
    matrix = TensorSpec(name="a", kind=TensorKind.MATRIX, rows=3, cols=2)
    got = basis(RUN, 1, 2, matrix, 4)
    assert key_of("sfnode/basis/1", RUN, u32(1), u32(2)) == 0x7DC7990D9379E8F0
    assert got.v is not None
    assert (letters(got.u), letters(got.v)) == (["--+-", "---+", "++--"], ["++-+", "+++-"])
    vector = basis(RUN, 1, 2, TensorSpec(name="a", kind=TensorKind.VECTOR, rows=3, cols=0), 4)
    assert letters(vector.u) == letters(got.u) and vector.v is None
    assert letters(basis(RUN, 2, 2, matrix, 4).u) != letters(got.u) != letters(basis(RUN, 1, 3, matrix, 4).u)


def test_canonical_core__example_of_the_specification__has_these_lanes() -> None:
    row, column, sign = canonical_coordinates([SEED], np.array([0, 1], dtype=np.uint32), 3, 32)
    assert row.tolist() == [[[29, 7, 15], [9, 7, 27]]]
    assert column.tolist() == [[[19, 2, 8], [26, 8, 18]]]
    assert sign.tolist() == [[[-1, -1, 1], [-1, -1, 1]]]
    lanes = [0x967D, 0xFC47, 0x450F]  # of the words fc47967d 31aa450f, low half first
    assert [(lane & 31, lane >> 5 & 31, 1 - 2 * (lane >> 15)) for lane in lanes] == [
        (29, 19, -1),
        (7, 2, -1),
        (15, 8, 1),
    ]


def test_canonical_core__more_tensors_than_lanes_in_a_block__uses_the_next_block() -> None:
    row, column, sign = canonical_coordinates([SEED], DIRECTION_0, 11, 128)
    halves = [half for word in words(SEED, 8, 1).tolist() for half in (word & 0xFFFF, word >> 16)][:11]
    assert row[0, 0].tolist() == [half & 127 for half in halves]
    assert column[0, 0].tolist() == [half >> 7 & 127 for half in halves]
    assert sign[0, 0].tolist() == [1 - 2 * (half >> 15) for half in halves]


def test_rademacher_core__example_of_the_specification__has_these_bits() -> None:
    a, b = rademacher_signs([SEED], DIRECTION_0, 2, 4)
    assert (letters(a[0, 0]), letters(b[0, 0])) == (["-+++", "-++-"], ["---+", "+++-"])


@pytest.mark.parametrize("core", ["canonical", "rademacher"])
def test_direction_factors__second_local_step__continue_the_numbers_of_the_first(core: str) -> None:
    two_steps = small_manifest(core=core, directions=4, local_steps=2)
    one_step = small_manifest(core=core, directions=8)
    second, all_eight = direction_factors(two_steps, SEED, 1), direction_factors(one_step, SEED)
    assert (second.a == all_eight.a[4:]).all() and (second.b == all_eight.b[4:]).all()


@pytest.mark.parametrize(
    ("core", "rank", "matrix", "vector"),
    [("canonical", 32, 0, 0), ("rademacher", 32, -5, -3), ("rademacher", 16, -4, -2)],
)
def test_scale_exp__of_core_and_rank__gives_about_unit_variance(core: str, rank: int, matrix: int, vector: int) -> None:
    manifest = small_manifest(core=core, rank=rank)
    weight, bias = manifest.tensors[:2]
    assert (scale_exp(manifest.method, weight), scale_exp(manifest.method, bias)) == (matrix, vector)
    factors = direction_factors(small_manifest(core=core, rank=rank, directions=16), SEED)
    found = basis(RUN, 0, 0, weight, rank)
    assert found.v is not None
    z = np.einsum("mi,di,dj,nj->dmn", *(x.astype(float) for x in (found.u, factors.a[:, 0], factors.b[:, 0], found.v)))
    assert 0.7 < float((z * 2.0**matrix).var()) < 1.4


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, 1),
        (-0.5, -1),
        (1.5, 2),
        (2.5, 3),
        (-2.5, -3),
        (0.49999999999999994, 0),
        (0.0, 0),
        (-0.2, 0),
        (1e15 + 0.5, 10**15 + 1),
    ],
)
def test_round_half_away__halves_and_neighbours__away_from_zero(value: float, expected: int) -> None:
    assert round_half_away(value) == expected


def test_weight__linear_schedule__equals_the_specification() -> None:
    manifest = small_manifest()
    assert [manifest.weight(step) for step in (0, 1, 2, 20, 38, 39)] == [500, 490, 479, 295, 110, 100]
    assert small_manifest(steps=1).weight(0) == 500


def test_examples__of_a_seed__equal_the_specification_and_go_on_with_the_next_local_step() -> None:
    manifest = small_manifest(local_steps=2)
    first, second = (example_indices(manifest, SEED, local_step, 1_000) for local_step in (0, 1))
    assert first[:4].tolist() == [600, 351, 774, 0]
    drawn = words(SEED, 32, 3).tolist()
    assert [*first.tolist(), *second.tolist()] == [word * 1_000 >> 32 for word in drawn]


@pytest.mark.parametrize(("rows", "batch_rows"), [(64, 16), (50, 16), (7, 16), (1, 3)])
def test_examples_in_turn__any_number_of_rows__all_have_theirs_before_any_has_another(
    rows: int, batch_rows: int
) -> None:
    manifest, author = small_manifest(core="dense"), signer(1).author
    steps = -(-4 * rows // batch_rows)
    taken = np.concatenate([examples_in_turn(manifest, author, step, rows, batch_rows) for step in range(steps)])
    turns = [taken[first : first + rows].tolist() for first in range(0, 4 * rows, rows)]
    assert all(sorted(turn) == [*range(rows)] for turn in turns)
    assert rows < 7 or len({*map(tuple, turns)}) == 4


def test_examples_in_turn__another_author_or_run__has_another_order() -> None:
    one, other = (small_manifest(core="dense", name=name) for name in ("one", "other"))
    alice, bob = (signer(number).author for number in (1, 2))
    of_all = [examples_in_turn(run, author, 3, 1_000, 16).tolist() for run in (one, other) for author in (alice, bob)]
    assert len({*map(tuple, of_all)}) == 4


def test_examples_in_turn__last_step_of_the_longest_run_and_a_single_row__is_that_row() -> None:
    manifest = small_manifest(core="dense")
    assert examples_in_turn(manifest, signer(1).author, (1 << 20) - 1, 1, 8192).tolist() == [0] * 8192


@pytest.mark.parametrize(
    ("gradient", "expected"), [(0.5, 128), (-(2.0**-9), -1), (0.0019, 0), (99.0, 1_000), (-1e300, -1_000)]
)
def test_quantise__raw__rounds_and_clips(gradient: float, expected: int) -> None:
    assert quantise(small_manifest().method, [gradient]) == (expected,)


def test_quantise__normalised__equals_the_specification_at_any_scale() -> None:
    method = small_manifest(scalar="normalised", directions=4, clip=127).method
    for scale in (1.0, 1e-300, 1e300, 5e-324):
        gradients = [0.5 * scale, -1.0 * scale, 2.0 * scale, 0.25 * scale]
        if scale > 5e-324:
            assert quantise(method, gradients) == (14, -28, 56, 7)
        else:
            quantise(method, gradients)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_quantise__not_finite__skips_the_step(bad: float) -> None:
    with pytest.raises(NumericError, match="not finite"):
        quantise(small_manifest(directions=2).method, [1.0, bad])


def test_quantise__all_zero_and_normalised__skips_the_step() -> None:
    with pytest.raises(NumericError, match="zero"):
        quantise(small_manifest(scalar="normalised", directions=2, clip=127).method, [0.0, -0.0])
