"""Reputation: scores decay, limits bite, the breaker spares a majority, and nothing of it grows without bound."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from protocol.wire import PeerId
from sfnode.network import bounds
from sfnode.network.policy.reputation import DiscouragedRow, Fault, PeerVerdict, Reputation

FAULTS = st.sampled_from(list(Fault))
UNIX_MS = 1_700_000_000_000


def peer(number: int) -> PeerId:
    return PeerId(f"peer{number}")


def discouraging(reputation: Reputation, number: int, now_s: float) -> PeerVerdict:
    return reputation.penalise(peer(number), Fault.GARBAGE, now_s)


@given(st.lists(st.tuples(st.floats(0.0, 2_000.0), FAULTS), max_size=40))
def test_reputation__any_faults_of_one_peer__score_is_their_decayed_sum_until_it_is_discouraged(
    history: list[tuple[float, Fault]],
) -> None:
    reputation, now_s, expected = Reputation(), 0.0, 0.0
    for gap_s, fault in history:
        now_s += gap_s
        expected = expected * 0.5 ** (gap_s / bounds.SCORE_HALF_LIFE_S) + fault.value
        verdict = reputation.penalise(peer(1), fault, now_s)
        if expected <= bounds.SCORE_DISCOURAGED:
            assert verdict is PeerVerdict.DISCOURAGED and reputation.is_discouraged(peer(1), now_s)
            return
        assert verdict is PeerVerdict.TOLERATED and not reputation.is_discouraged(peer(1), now_s)
        assert reputation.score(peer(1), now_s) == pytest.approx(expected)
        assert reputation.is_pushed_to(peer(1), now_s) == (expected > bounds.SCORE_NOT_PUSHED)


def test_reputation__garbage__fatal_at_once_for_24_hours() -> None:
    reputation = Reputation()
    assert discouraging(reputation, 1, 0.0) is PeerVerdict.DISCOURAGED
    assert reputation.is_discouraged(peer(1), 24 * 3_600 - 1)
    assert not reputation.is_discouraged(peer(1), 24 * 3_600)
    assert reputation.discouraged(24 * 3_600) == frozenset()


def test_reputation__stalled_twice__is_not_pushed_to_and_forgiven_after_a_half_life() -> None:
    reputation = Reputation()
    for _ in range(2):
        reputation.penalise(peer(1), Fault.STALLED, 0.0)
    assert not reputation.is_pushed_to(peer(1), 0.0) and not reputation.is_discouraged(peer(1), 0.0)
    assert reputation.is_pushed_to(peer(1), bounds.SCORE_HALF_LIFE_S)
    assert reputation.score(peer(1), bounds.SCORE_HALF_LIFE_S) == pytest.approx(-15.0)


@given(met=st.integers(0, 60), bad=st.integers(1, 60))
def test_breaker__many_peers_seem_bad__never_more_than_a_quarter_or_two_are_discouraged(met: int, bad: int) -> None:
    reputation = Reputation()
    for number in range(met):
        reputation.met(peer(number), 0.0)
    verdicts = [discouraging(reputation, number, 1.0) for number in range(min(bad, met))]
    allowed = max(2, met // 4)
    assert verdicts == [PeerVerdict.DISCOURAGED if i < allowed else PeerVerdict.SPARED for i in range(len(verdicts))]
    assert len(reputation.discouraged(2.0 + bounds.SPARED_S)) == min(len(verdicts), allowed)


def test_breaker__open__closes_when_the_faults_were_long_ago() -> None:
    reputation = Reputation()
    for number in range(5):
        reputation.met(peer(number), 0.0)
        discouraging(reputation, number, 0.0)
    later_s = bounds.BREAKER_S + 1.0
    reputation.met(peer(9), later_s)
    assert discouraging(reputation, 9, later_s) is PeerVerdict.DISCOURAGED


def test_breaker__open__a_peer_that_is_discouraged_already_serves_its_whole_sentence() -> None:
    """It once was free again after a minute: all that it had to do was to send garbage once more."""
    reputation = Reputation()
    for number in range(3):
        reputation.met(peer(number), 0.0)
    verdicts = [discouraging(reputation, number, 1.0) for number in (0, 1, 2, 0)]
    assert verdicts == [PeerVerdict.DISCOURAGED] * 2 + [PeerVerdict.SPARED] * 2
    assert reputation.discouraged(bounds.DISCOURAGED_S) == {peer(0), peer(1)}


def test_breaker__strangers_without_a_session__neither_open_it_nor_are_spared() -> None:
    reputation = Reputation()
    reputation.met(peer(0), 0.0)
    assert {discouraging(reputation, number, 0.0) for number in range(1, 100)} == {PeerVerdict.DISCOURAGED}
    assert discouraging(reputation, 0, 0.0) is PeerVerdict.DISCOURAGED


@given(numbers=st.lists(st.integers(0, 9), max_size=10), away_s=st.floats(0.0, 100_000.0))
def test_discouraged__kept_on_disk__the_rest_of_the_sentence_is_served_in_the_next_life(
    numbers: list[int], away_s: float
) -> None:
    reputation, again = Reputation(), Reputation()
    for number in numbers:
        discouraging(reputation, number, 50.0)
    rows = reputation.rows(50.0, UNIX_MS)
    back_unix_ms = UNIX_MS + round(away_s * 1_000)
    again.restore(rows, 7.0, back_unix_ms)  # the steady clock begins anew
    left_s = bounds.DISCOURAGED_S - away_s
    assert again.discouraged(7.0) == (reputation.discouraged(50.0) if left_s > 1.0 else again.discouraged(7.0))
    if left_s > 2.0:
        assert again.discouraged(7.0 + left_s - 1.0) == reputation.discouraged(50.0)
    assert again.discouraged(7.0 + max(left_s, 0.0) + 1.0) == frozenset()


def test_discouraged__wall_clock_was_set_back__no_more_than_a_whole_sentence() -> None:
    reputation = Reputation()
    reputation.restore((DiscouragedRow(peer="peer1", until_unix_s=UNIX_MS // 1_000 + 10**9),), 0.0, UNIX_MS)
    assert reputation.is_discouraged(peer(1), bounds.DISCOURAGED_S - 1)
    assert not reputation.is_discouraged(peer(1), bounds.DISCOURAGED_S)


def test_tables__3000_identities_misbehave__stay_bounded() -> None:
    reputation = Reputation()
    for number in range(3_000):
        reputation.met(peer(number), number / 1_000)
        reputation.penalise(peer(number), Fault.SILENT, number / 1_000)
        discouraging(reputation, -number, number / 1_000)
    assert len(reputation._scores) <= bounds.SCORES_MAX
    assert len(reputation._met_s) <= bounds.SCORES_MAX
    assert len(reputation.rows(10.0, UNIX_MS)) == bounds.DISCOURAGED_MAX
