"""What a roster answers of many statements, without a look at all of them."""

from __future__ import annotations

from protocol import limits
from protocol.ledger.roster import Roster
from tests.support.ledgers import claim, exclude, signer
from tests.support.manifests import small_manifest


def test_roster__asked_again_and_nothing_has_changed__makes_no_new_answer() -> None:
    manifest = small_manifest(admission="invite")
    roster = Roster(manifest)
    roster.add(exclude(manifest, 1, 5))
    excluded = roster.excluded()
    assert roster.excluded() is excluded
    roster.add(claim(manifest, 1, 2))
    assert roster.excluded() is excluded
    roster.add(exclude(manifest, 1, 4))
    assert roster.excluded() == {signer(1).author: 4}
    assert roster.removals() is roster.removals()


def test_roster__removals__are_the_owners_exclusions_in_whatever_order_they_came() -> None:
    """With void tokens among them, anybody with an unused invitation made each result of every node stale."""
    manifest = small_manifest(admission="invite")
    roster, other = Roster(manifest), Roster(manifest)
    assert list(roster.removals()) == []
    roster.add(claim(manifest, 1, 2))
    roster.add(claim(manifest, 1, 3))  # the second of a token for one: both of its authors leave
    assert list(roster.removals()) == []
    said = [exclude(manifest, 4, 5), exclude(manifest, 1, 20), exclude(manifest, 6, 20)]
    for each in said:
        roster.add(each)
    for each in reversed(said):
        other.add(each)
    assert [first for first, _ in roster.removals()] == [5, 20, 20]
    assert roster.removals() == other.removals()
    before = roster.removals()
    roster.add(exclude(manifest, 6, 7))
    assert [first for first, _ in roster.removals()] == [5, 7, 20]
    assert roster.removals()[0] == before[0] and roster.removals()[2] != before[2]


def test_roster__longest_run_is_finished__its_author_is_admitted_still() -> None:
    """A run of 2^20 steps had no evaluation at its end: the step after the last one did not count."""
    assert (
        Roster(small_manifest(steps=limits.STEPS_MAX, authors_max=2)).counts_until(signer(1).author) > limits.STEPS_MAX
    )


def test_roster__a_token_claimed_twice__both_are_named_without_a_look_at_all_statements() -> None:
    manifest = small_manifest(admission="invite")
    roster = Roster(manifest)
    roster.add(claim(manifest, 1, 1))
    assert not roster.statistics(signer(1).author, None).is_invitation_used
    roster.add(claim(manifest, 1, 2))
    assert all(roster.statistics(signer(number).author, None).is_invitation_used for number in (1, 2))
