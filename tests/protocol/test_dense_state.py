"""The state of a dense run: exact sums of rows and numbers, quotients only in the view, and all that counts on them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from protocol import limits
from protocol.ledger.envelope import Envelope, EnvelopeCodec
from protocol.run.manifest import Manifest, checked, coefficient_max, view_max
from protocol.state import coefficients
from protocol.state.coefficients import Coefficients, dense_core, updates_per_tick
from protocol.state.replica import Replica
from protocol.state.snapshot import decode_snapshot_untrusted, encode_snapshot
from protocol.state.snapshot_proof import ProofVerdict, judge, take_snapshot
from tests.support.ledgers import exclude, seal
from tests.support.manifests import manifest_data, small_manifest
from tests.support.snapshot_runs import STEP

DENSE = small_manifest(core="dense")
NOISE_ROWS = 8
LONG = small_manifest(core="dense", steps=2_048, authors_max=8)

Sums = dict[int, list[int]]


def envelopes(manifest: Manifest, count: int) -> list[Envelope]:
    """Messages of made-up rows and numbers, over all steps; only their size and place are right."""
    chance, codec = random.Random(count), EnvelopeCodec(manifest)
    found = []
    for number in range(count):
        numbers = [chance.randint(-35, 35) for _ in range(manifest.numbers - 1)]
        scalars = (chance.randint(1, manifest.method.directions), *numbers)
        found.append(codec.decode_untrusted(seal(manifest, number % 5, chance.randrange(manifest.steps), *scalars)))
    return found


def reference(updates: Iterable[Envelope]) -> Sums:
    """By step, the rows and the sums over them, in plain integers."""
    sums: Sums = {}
    for update in updates:
        (rows,) = update.scalars
        terms = [rows, *(rows * number for number in update.measured)]
        held = sums.setdefault(update.step, [0] * len(terms))
        sums[update.step] = [old + term for old, term in zip(held, terms, strict=True)]
    return sums


def rounded_half_away(value: Fraction) -> int:
    whole = int(abs(value) + Fraction(1, 2))
    return whole if value >= 0 else -whole


# --- sums


def test_dense_sums__any_messages__are_rows_and_rows_times_numbers() -> None:
    updates = envelopes(DENSE, 120)
    state = Coefficients(DENSE)
    state.add(updates)
    expected = reference(updates)
    assert state.epochs() == tuple(sorted(expected)) and max(map(len, expected.values())) == 17
    assert {step: state.flat(step).tolist() for step in expected} == expected
    assert max(len([e for e in updates if e.step == step]) for step in expected) > 3


@given(
    order=st.permutations(range(40)),
    removed=st.sets(st.integers(0, 39)),
    cut=st.integers(1, 40),
    looks=st.sets(st.integers(0, 39)),
)
def test_dense_sums__added_and_removed_in_any_order__have_the_digest_of_what_is_left(
    order: list[int], removed: set[int], cut: int, looks: set[int]
) -> None:
    """Steps come and go, so that some rest packed while messages of theirs come or leave."""
    updates = envelopes(DENSE, 40)
    state, kept = Coefficients(DENSE), Coefficients(DENSE)
    for place in range(0, 40, cut):
        state.add(updates[each] for each in order[place : place + cut])
        if place in looks:
            state.digest()
    state.remove(updates[each] for each in order if each in removed)
    kept.add(update for each, update in enumerate(updates) if each not in removed)
    assert state.digest() == kept.digest()
    assert {step: state.flat(step).tolist() for step in kept.epochs()} == {
        step: kept.flat(step).tolist() for step in kept.epochs()
    }
    state.remove(update for each, update in enumerate(updates) if each not in removed)
    assert state.epochs() == () and state.digest() == Coefficients(DENSE).digest()


def test_dense_sums__steps_at_rest__take_the_fewest_bytes_and_stay_exact() -> None:
    updates = sorted(envelopes(DENSE, 200), key=lambda update: update.step)
    state = Coefficients(DENSE)
    state.add(updates)
    widths = {step: held.itemsize for step, held in state._epochs.items()}
    assert set(widths.values()) == {2, 8} and [step for step, width in widths.items() if width == 8] == [36, 37, 38, 39]
    assert {step: state.flat(step).tolist() for step in widths} == reference(updates)


def test_dense_sums__message_of_rows_but_no_slope__counts_its_rows() -> None:
    """Its numbers are all zero, and yet its examples are part of the mean."""
    state = Coefficients(DENSE)
    codec = EnvelopeCodec(DENSE)
    state.add([codec.decode_untrusted(seal(DENSE, 1, 3, 5, *(0,) * 16))])
    assert state.epochs() == (3,) and state.flat(3).tolist() == [5] + [0] * 16
    assert not state.core(3).any()


# --- quotients


@given(
    rows=st.integers(0, limits.DIRECTIONS_MAX * limits.AUTHORS_MAX),
    numbers=st.lists(st.integers(-127, 127), min_size=16, max_size=16),
    near=st.lists(st.integers(-3, 3), min_size=16, max_size=16),
    step=st.integers(0, 39),
)
def test_dense_core__any_sums__is_the_exact_quotient_rounded_half_away_from_zero(
    rows: int, numbers: list[int], near: list[int], step: int
) -> None:
    sums = [rows, *(rows * number + few for number, few in zip(numbers, near, strict=True))]
    exact = [Fraction(DENSE.weight(step) * each, rows + NOISE_ROWS) for each in sums[1:]]
    got = dense_core(DENSE, step, np.array(sums, dtype=np.int64))
    assert got.tolist() == [0, *map(rounded_half_away, exact)] and got.dtype == np.int64


def test_dense_core__halves__go_away_from_zero() -> None:
    """8 rows and 8 of noise: 4 w / 16 = w / 4 for a sum of 4; at w = 202 and 210 these are halves."""
    halves = {step: DENSE.weight(step) for step in range(40) if DENSE.weight(step) % 4 == 2}
    assert halves
    for step, weight in halves.items():
        core = dense_core(DENSE, step, np.array([8, 4, -4, *[0] * 14]))
        assert core[:3].tolist() == [0, (weight + 2) // 4, -((weight + 2) // 4)]


def test_dense_core__nobody_has_told_anything__is_zero() -> None:
    assert not Coefficients(DENSE).core(3).any()


def test_dense_core__many_rows__is_the_weighted_mean_and_few_rows_move_less() -> None:
    weight = DENSE.weight(0)
    moved = [int(dense_core(DENSE, 0, np.array([rows, *[rows * 10] * 16]))[1]) for rows in (1, 8, 56, 10**6)]
    assert moved == [rounded_half_away(Fraction(10 * weight * rows, rows + 8)) for rows in (1, 8, 56, 10**6)]
    assert moved[1] == 5 * weight and moved[-1] == 10 * weight


@pytest.mark.parametrize("sign", [1, -1])
def test_dense_core__every_author_at_every_bound__neither_overflows_nor_leaves_the_bound_of_the_view(sign: int) -> None:
    fields = {"rank": 1, "core_rows": 1, "authors_max": 1 << 16, "steps": 1_024, "noise_rows": 1}
    data = manifest_data(core="dense", directions=256, energy_max=limits.ENERGY_MAX, **fields)
    data["schedule"] = {"kind": "constant", "weight_start": 1 << 16, "weight_end": 0}
    manifest = checked(data)
    rows = manifest.authors_max * 256
    assert rows * 127 == coefficient_max(manifest)
    core = dense_core(manifest, 0, np.array([rows, sign * rows * 127, sign * rows * 127]))
    assert core[1] == sign * rounded_half_away(Fraction((1 << 16) * rows * 127, rows + 1))
    assert manifest.steps * abs(int(core[1])) * 127**2 <= view_max(manifest) < 1 << 53


# --- replicas


@pytest.mark.parametrize("clip", [1, 7, 127])
def test_dense_replica__late_void_and_excluded_messages__live_sums_equal_a_replay(clip: int) -> None:
    manifest = small_manifest(core="dense", clip=clip)
    replica = Replica(manifest)
    late = [seal(manifest, 4, step) for step in range(0, 30, 4)]
    for step in range(30):
        for author in range(4):
            replica.add(seal(manifest, author, step))
        if step % 5 == 4:  # voids what this author said three steps ago
            replica.add(seal(manifest, 1, step - 3, 2, *(min(9, clip),) * 16))
        if step % 3 == 0:
            replica.sum_some(2)
        if step % 9 == 8:
            replica.add(late.pop(0))
            replica.coefficients()
    for record in late:
        replica.add(record)
    assert replica.unsummed > 0
    assert replica.state_digest() == replica.replayed_digest()
    before = replica.state_digest()
    replica.add_statement(exclude(manifest, 2, 7))
    assert replica.state_digest() == replica.replayed_digest() != before
    assert (replica.ledger.updates, replica.ledger.void_slots) == (4 * 30 + 8 - 6 - 23, 6)


def test_dense_replica__message_voided_or_author_excluded__their_rows_leave_with_their_numbers() -> None:
    replica, alone = Replica(DENSE), Replica(DENSE)
    for author in (1, 2, 3):
        replica.add(seal(DENSE, author, 5))
    alone.add(seal(DENSE, 1, 5))
    replica.add(seal(DENSE, 2, 5, 1, *(1,) * 16))
    replica.add_statement(exclude(DENSE, 3, 0))
    assert replica.state_digest() == alone.state_digest()
    assert replica.coefficients().core(5).tolist() == alone.coefficients().core(5).tolist()


def test_dense_replica__waiting_updates__are_summed_a_few_steps_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many numbers as a tick sums, of any size of message."""
    assert updates_per_tick(DENSE) == 1_024
    monkeypatch.setattr(coefficients, "_DENSE_PER_TICK", 5 * DENSE.numbers)
    assert updates_per_tick(DENSE) == 5
    monkeypatch.setattr(coefficients, "_DENSE_PER_TICK", DENSE.numbers - 1)
    assert updates_per_tick(DENSE) == 1
    replica = Replica(DENSE)
    for step in range(6):
        replica.add(seal(DENSE, 1, step))
        replica.add(seal(DENSE, 2, step))
    for left in range(11, -1, -1):
        replica.tick()
        assert replica.unsummed == max(left, 0)
        if replica.is_summed:
            break
    assert replica.is_summed and replica.state_digest() == replica.replayed_digest()


def test_dense_replica__recount_in_slices_while_messages_come__finds_it_sound_and_a_wrong_row_not() -> None:
    replica = Replica(DENSE)
    for step in range(40):
        for author in range(4):
            replica.add(seal(DENSE, author, step))
    recount, more = replica.begin_recount(is_whole=True), 0
    while (verdict := recount.advance()) is None:
        replica.add(seal(DENSE, 4, more))  # in steps that are counted already or not yet
        replica.add(seal(DENSE, more % 4, 39 - more, 3, *(1,) * 16))
        more += 1
    replica.recount = None
    assert verdict and more > 1
    replica.coefficients()._opened(7)[0] += 1  # a row that nobody sent
    replica.coefficients()._digests.pop(7, None)
    recount = replica.begin_recount(is_whole=True)
    while (verdict := recount.advance()) is None:
        pass
    assert verdict is False


# --- snapshots


def long_replica(steps: Iterable[int]) -> Replica:
    replica = Replica(LONG)
    for step in steps:
        for author in (1, 2):
            replica.add(seal(LONG, author, step))
    return replica


def test_dense_snapshot__taken_written_and_read__is_the_state_of_the_steps_before() -> None:
    replica = long_replica([*range(0, 900, 30), 1_000, 1_023, 1_024, 1_100])
    snapshot = take_snapshot(replica, STEP)
    before = long_replica([*range(0, 900, 30), 1_000, 1_023])
    assert {step: flat.tolist() for step, flat in snapshot.epochs.items()} == {
        step: before.coefficients().flat(step).tolist() for step in before.coefficients().epochs()
    }
    data = encode_snapshot(LONG, snapshot)
    read = decode_snapshot_untrusted(LONG, data)
    assert encode_snapshot(LONG, read) == data and read.slots == snapshot.slots == 64


def test_dense_snapshot__in_use__shows_the_worker_the_quotients_of_all_steps_with_later_messages() -> None:
    steps = [*range(0, 900, 30), 1_023, 1_030]
    full = long_replica(steps)
    joiner = Replica(LONG)
    joiner.use_snapshot(take_snapshot(full, STEP))
    for author in (1, 2):
        joiner.add(seal(LONG, author, 1_030))
    shown, whole = joiner.shown(), full.coefficients()
    assert shown.epochs() == whole.epochs()
    assert all(shown.core(step).tolist() == whole.core(step).tolist() for step in whole.epochs())
    assert joiner.state_digest() != full.state_digest()  # nothing is proved yet


def test_dense_snapshot__replay_of_the_same_set__proves_it_and_a_false_row_refutes_it() -> None:
    replica = long_replica(range(0, 1_100, 11))
    snapshot = take_snapshot(replica, STEP)
    assert judge(snapshot, replica) is ProofVerdict.EQUAL
    false = snapshot.epochs[22].copy()
    false[0] += 1
    assert judge(replace(snapshot, epochs={**snapshot.epochs, 22: false}), replica) is ProofVerdict.UNEQUAL
