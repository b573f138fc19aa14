"""The rule by which a message agrees, does not, or cannot be judged."""

from __future__ import annotations

import math
import random

import pytest

from protocol.ledger.envelope import EnvelopeCodec
from sfnode.worker.audit_case import AuditCase, AuditVerdict, allowed_difference, directions_claimed
from tests.support.ledgers import signer
from tests.support.manifests import small_manifest

MEASURED = (100, -50, 30, 80)
LENGTH = math.hypot(*MEASURED)


def case_of(claimed: tuple[int, ...], allowed: float = 0.0) -> AuditCase:
    case = AuditCase(EnvelopeCodec(small_manifest(directions=len(claimed))).seal(signer(1), 4, claimed), claimed)
    case.see(MEASURED)
    case.allowed = allowed
    return case


def off_by(share: float) -> tuple[int, ...]:
    return (MEASURED[0] + round(share * LENGTH), *MEASURED[1:])


@pytest.mark.parametrize(
    ("share", "allowed", "verdict"),
    [
        (0.0, 0.0, AuditVerdict.AGREES),
        (0.09, 0.0, AuditVerdict.AGREES),
        (0.11, 0.0, AuditVerdict.MISMATCH),
        (0.45, 0.5, AuditVerdict.AGREES),
        (0.55, 0.5, AuditVerdict.MISMATCH),
        (0.55, 1.1, AuditVerdict.UNJUDGED),  # a claim of nothing at all would agree, too
        (0.09, 1.1, AuditVerdict.AGREES),
        (1.2, 1.1, AuditVerdict.MISMATCH),
    ],
)
def test_verdict__claim_off_by_a_share_of_the_measurement__within_what_is_allowed_only(
    share: float, allowed: float, verdict: AuditVerdict
) -> None:
    found = case_of(off_by(share), allowed * LENGTH)
    assert found.verdict is verdict
    assert bool(found.reason) is (verdict is AuditVerdict.UNJUDGED)
    assert found.tolerance == pytest.approx(max(0.1, allowed))


def test_verdict__several_plausible_states__the_nearest_counts() -> None:
    case = case_of((100, 50, 30, 80))
    assert case.verdict is AuditVerdict.MISMATCH
    case.see((99, 52, 31, 80))
    case.see(None)
    case.see((-100, 50, 30, 80))
    assert (case.verdict, case.nearest) == (AuditVerdict.AGREES, (99, 52, 31, 80))


def test_verdict__doubt__is_no_accusation() -> None:
    case = case_of(tuple(-each for each in MEASURED))
    case.doubt = "the state is unknown"
    assert (case.verdict, case.reason) == (AuditVerdict.UNJUDGED, "the state is unknown")


@pytest.mark.parametrize(
    ("scalars", "directions"),
    [
        ((32, 32, -32, 32, 32, 32, -32, 32), 8),
        ((32, 32, -32, 32, 0, 0, 0, 0), 4),
        ((39, 39, -39, 0, 0, 0, 0, 0), 4),  # the fourth one was rounded to 0
        ((32, 32, -32, 0, 0, 0, 0, 0), 4),  # the fourth of a block of two was rounded to 0, whatever the energy
        ((78, 0, 0, 0, 0, 0, 0, 0), 6),  # six were measured, five of them rounded to 0
        ((127, 3, 0, 0, 0, 0, 0, 0), 2),  # clipped: its energy tells nothing
        ((90, 0, 0, 0, 0, 0, 0, -1), 8),
    ],
)
def test_directions_claimed__normalised__are_told_by_the_last_scalar_and_the_energy(
    scalars: tuple[int, ...], directions: int
) -> None:
    method = small_manifest(scalar="normalised", directions=8, shares=2, clip=127).method
    assert directions_claimed(method, scalars) == directions


def test_directions_claimed__several_local_steps__are_those_of_the_longest() -> None:
    rounds = small_manifest(scalar="normalised", directions=4, local_steps=2, clip=127).method
    assert directions_claimed(rounds, (32, 0, 0, 0, 45, 0, 0, 0)) == 2
    assert directions_claimed(rounds, (32, 32, 32, 0, 45, 0, 0, 0)) == 3


def test_directions_claimed__raw__are_told_by_the_last_scalar_alone() -> None:
    method = small_manifest(directions=8).method
    assert directions_claimed(method, (900, 0, 0, 0, 0, 0, 0, 0)) == 1
    assert directions_claimed(method, (0,) * 8) == 8


def test_allowed_difference__some_directions_only__has_as_much_to_spare_for_each() -> None:
    usual, other = [(10, 20, 0, 0, 0, 0, 0, 0)], [(13, 24, 0, 0, 0, 0, 0, 0)]
    assert allowed_difference(2, usual, other) == allowed_difference(2, [(10, 20)], [(13, 24)])


def test_allowed_difference__message_noisier_than_unrelated_seeds__its_own_noise_counts() -> None:
    usual, other = [(0, 0, 0, 0)] * 3, [(30, 30, 30, 30), (1, 1, 1, 1), (1, 1, 1, 1)]
    assert allowed_difference(4, usual, other) == pytest.approx(30 * (2 + 6), rel=1e-3)
    assert allowed_difference(4, usual, other[::-1]) == pytest.approx(30 / math.sqrt(3) * (2 + 6), rel=1e-2)


def test_allowed_difference__two_kinds_of_noise__squares_add_up() -> None:
    usual = [(0, 0, 0, 0)] * 3
    rounded, lagging = [(30, -30, 30, -30)] * 3, [(40, 40, 40, 40)] * 3
    assert allowed_difference(4, usual, rounded, lagging) == pytest.approx(50 * (2 + 6), rel=1e-3)


def test_allowed_difference__last_round_of_a_dense_message__is_allowed_whole_and_no_more() -> None:
    usual, rounded, lagging = [(0,) * 64] * 3, [(1,) * 64] * 3, [(10,) * 64] * 3
    allowed = allowed_difference(16, usual, rounded, lagging, spare_last=0.0)
    noise = math.sqrt(64 / 16 + 0.25) * (4 + 6)  # of a row's numbers together, and half a quantum
    assert allowed == pytest.approx(math.hypot(noise, 8 * 10))


def test_allowed_difference__equal_measurements__rounding_to_a_quantum_is_honest() -> None:
    allowed = allowed_difference(1, [(0,)], [(0,)])
    assert allowed is not None and allowed > 1


def test_allowed_difference__losses_that_are_not_finite__are_left_out() -> None:
    assert allowed_difference(2, [(0, 0), None], [(3, 3), (9, 9)]) == allowed_difference(2, [(0, 0)], [(3, 3)])
    assert allowed_difference(2, [None, (0, 0)], [(3, 3), None]) is None


@pytest.mark.parametrize("scalars", [1, 8, 64])
def test_allowed_difference__normal_noise__no_honest_message_of_thousands_is_beyond_it(scalars: int) -> None:
    chance = random.Random(scalars)

    def noise() -> tuple[int, ...]:
        return tuple(round(chance.gauss(0, 100)) for _ in range(scalars))

    controls = -(-32 // scalars) + 1
    alarms = 0
    for _ in range(3_000):
        allowed = allowed_difference(scalars, [(0,) * scalars] * controls, [noise() for _ in range(controls)])
        assert allowed is not None
        alarms += math.hypot(*noise()) > allowed
    assert alarms == 0
