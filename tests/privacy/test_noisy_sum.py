"""The sum of clipped rows: how far one row can move it, exactly; and the noise that OpenDP adds."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from protocol.errors import OperatorError
from protocol.subspace.quantisation import quantise_dense
from sfnode import privacy
from sfnode.privacy import ROW_LENGTH, NoisySum, gaussian_measurement, length_max, whole_numbers
from tests.support.manifests import small_manifest

Row = np.ndarray[Any, np.dtype[np.float64]]
METHOD = small_manifest(core="dense", quantum_exp=-4).method
DRAWS = 5_000

numbers = st.integers(1, 40)
lengths = st.floats(1e-9, 1e9)
wild = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-2, 2)


def rows_of(count: int, values: st.SearchStrategy[float] = wild) -> st.SearchStrategy[Row]:
    return arrays.arrays(np.float64, (count, 5), elements=values)


def exact_length_squared(found: np.ndarray[Any, np.dtype[np.int64]]) -> int:
    return sum(number * number for number in found.tolist())


@given(row=arrays.arrays(np.float64, numbers, elements=wild), length=lengths)
def test_whole_numbers__any_row__are_no_longer_than_the_clip(row: Row, length: float) -> None:
    assert exact_length_squared(whole_numbers(row, length)) <= ROW_LENGTH**2


@given(
    data=st.data(),
    kept=st.integers(0, 6).flatmap(rows_of),
    length=lengths,
)
def test_noisy_sum__one_row_replaced__moves_by_at_most_two_lengths_and_by_nothing_else(
    data: st.DataObject, kept: Row, length: float
) -> None:
    old, new = data.draw(rows_of(2))
    totals = []
    for row in (old, new):
        added = NoisySum(5, length)
        for each in (*kept, row):
            added.add(each)
        totals.append(added.total)
    moved = totals[0] - totals[1]
    assert exact_length_squared(moved) <= (2 * ROW_LENGTH) ** 2
    assert moved.tolist() == (whole_numbers(old, length) - whole_numbers(new, length)).tolist()


@given(row=arrays.arrays(np.float64, numbers, elements=st.floats(-1, 1)), length=st.floats(0.1, 100))
def test_whole_numbers__finite_row__are_the_clipped_row_cut_toward_zero(row: Row, length: float) -> None:
    unit = length / ROW_LENGTH
    clipped = row * min(1.0, length / max(float(np.linalg.norm(row)), 1e-300))
    found = whole_numbers(row, length) * unit
    assert np.all(np.abs(found) <= np.abs(clipped) * (1 + 1e-12))
    assert np.all(np.abs(clipped - found) <= unit + 1e-8 * np.abs(clipped))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_whole_numbers__row_that_overflowed__is_zero(bad: float) -> None:
    assert not whole_numbers(np.array([1.0, bad]), 1.0).any()


def test_length_max__manifest__is_the_longest_mean_that_a_message_holds() -> None:
    found = length_max(METHOD, 16)
    assert found == (math.sqrt(METHOD.energy_max) - 2) / 16
    direction = np.full(16, 0.25)
    held = quantise_dense(replace(METHOD, clip=127), 1, direction * found)
    assert held == quantise_dense(replace(METHOD, clip=127), 1, direction * found * 3)
    assert length_max(replace(METHOD, energy_max=1), 16) == 2.0**-4  # where nothing fits, a row still has a length


# --- noise


def test_noisy_mean__no_row_but_noise__has_the_moments_and_the_shape_of_a_gaussian() -> None:
    """Each bound fails a right sampler once in 10^8 runs or less: its randomness is the system's."""
    added = NoisySum(DRAWS, 4.0)
    for _ in range(8):
        added.add(np.zeros(DRAWS))
    relative = added.noisy_mean(1.5) / (1.5 * 4.0 / 8)
    assert abs(relative.mean()) < 6 / math.sqrt(DRAWS)
    assert abs(relative.var() - 1) < 6 * math.sqrt(2 / DRAWS)
    assert abs((relative**4).mean() - 3) < 6 * math.sqrt(96 / DRAWS)
    inner = [NormalDist().inv_cdf(tenth / 10) for tenth in range(1, 10)]
    counts = np.bincount(np.searchsorted(inner, relative), minlength=10)
    assert float(((counts - DRAWS / 10) ** 2 / (DRAWS / 10)).sum()) < 60  # chi-square, nine degrees of freedom


def test_gaussian_measurement__width_of_one__has_the_shares_of_the_discrete_gaussian() -> None:
    """Of exp(-x^2 / 2) on whole numbers, not of a Gaussian that was rounded: 0 has 0.3989, and not 0.3829."""
    drawn = np.array(gaussian_measurement(1.0)([0] * DRAWS))
    weights = np.exp(-(np.arange(-40, 41) ** 2) / 2)
    shares = weights / weights.sum()
    expected = DRAWS * np.array([shares[:38].sum(), *shares[38:43], shares[43:].sum()])
    counts = np.bincount(np.clip(drawn, -3, 3) + 3, minlength=7)
    assert float(((counts - expected) ** 2 / expected).sum()) < 50  # chi-square, six degrees of freedom


def test_noisy_mean__same_rows_twice__has_other_noise() -> None:
    added = NoisySum(8, 1.0)
    added.add(np.ones(8))
    assert added.noisy_mean(1.0).tolist() != added.noisy_mean(1.0).tolist()


def test_noisy_mean__little_noise__is_the_mean_of_the_clipped_rows() -> None:
    added = NoisySum(2, 1.0)
    for row in ([3.0, 4.0], [0.3, 0.0], [math.nan, 1.0]):
        added.add(np.array(row))
    assert added.noisy_mean(1e-6) == pytest.approx([0.3, 0.8 / 3], abs=1e-4)


def test_gaussian_measurement__without_opendp__operator_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privacy, "_LIBRARY", "opendp_that_nobody_installed")
    with pytest.raises(OperatorError, match="--noise needs OpenDP"):
        gaussian_measurement(1.0)
