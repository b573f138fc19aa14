"""From uses of rows to epsilon: against the closed form, and against a count by hand."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from protocol.crypto.keys import Signer
from protocol.subspace.drawn_examples import examples_in_turn
from sfnode.privacy import RowUses, delta_of, epsilon
from tests.support.manifests import small_manifest

DENSE = small_manifest(core="dense", steps=12)
AUTHOR = Signer(b"alice".ljust(32, b".")).author
ROWS = 10  # fewer than a message has: some rows are twice in one message


@pytest.mark.parametrize("uses", [1, 3, 40])
@pytest.mark.parametrize("multiplier", [0.5, 1.0, 2.0, 8.0])
def test_epsilon__noise_and_uses__is_a_little_below_the_simple_bound(multiplier: float, uses: int) -> None:
    """Rho-zCDP gives epsilon = rho + 2 sqrt(rho log(1 / delta)) (Bun and Steinke 2016); the library's is tighter."""
    rho, delta = uses * 2 / multiplier**2, 1e-5
    simple = rho + 2 * math.sqrt(rho * math.log(1 / delta))
    assert 0.8 * simple < epsilon(multiplier, uses, delta) < simple


@pytest.mark.parametrize(("multiplier", "uses"), [(1.0, 1), (4.0, 5), (2.0, 12)])
def test_epsilon__as_the_library_states__is_the_least_over_all_orders(multiplier: float, uses: int) -> None:
    """Canonne, Kamath and Steinke 2020, corollary 13, minimised by trying orders."""
    rho, delta = uses * 2 / multiplier**2, 1e-5
    orders = 1 + np.geomspace(1e-3, 1e3, 200_000)
    tried = rho * orders + np.log(1 / (orders * delta)) / (orders - 1) + np.log1p(-1 / orders)
    assert epsilon(multiplier, uses, delta) == pytest.approx(float(tried.min()), rel=1e-5)


def test_epsilon__no_use__is_nothing() -> None:
    assert epsilon(1.0, 0, 1e-5) == 0.0


def test_epsilon__little_noise_and_many_uses__is_a_number() -> None:
    assert 1e9 < epsilon(0.01, 1_000_000, 1e-5) < 1e12


def test_delta_of__many_rows__is_a_tenth_of_a_row_at_most() -> None:
    assert (delta_of(64), delta_of(10_000), delta_of(1_000_000)) == (1e-5, 1e-5, 1e-7)


def test_row_uses__messages_of_many_sizes__count_squares_within_a_message_and_add_up() -> None:
    messages = [(step, 1 + step) for step in range(12)]
    by_hand: Counter[int] = Counter()
    for step, rows in messages:
        taken = examples_in_turn(DENSE, AUTHOR, step, ROWS, DENSE.task.batch_rows)[:rows].tolist()
        by_hand.update({row: count**2 for row, count in Counter(taken).items()})
    uses = RowUses(DENSE, AUTHOR, ROWS)
    assert uses.most == 0 and uses.most_with(messages) == max(by_hand.values())
    assert uses.most == 0  # a question changes nothing
    uses.add(messages)
    assert uses.most == max(by_hand.values()) > 12


def test_row_uses__64_rows_and_12_messages_of_16__is_three_of_each() -> None:
    """When each seed drew its rows, one of the 64 was in eight or nine of the 192: nearly three times the epsilon."""
    manifest = replace(DENSE, task=replace(DENSE.task, batch_rows=16))
    uses = RowUses(manifest, AUTHOR, 64)
    uses.add((step, 16) for step in range(12))
    assert uses.most == 3
