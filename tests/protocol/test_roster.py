"""What a roster answers of many statements, without a look at all of them."""

from __future__ import annotations

from protocol import limits
from protocol.ledger.roster import Roster
from tests.support.ledgers import admit, claim, exclude, signer
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


def test_roster__removals__say_who_has_left_the_steps_before_a_step() -> None:
    """Equal digests mean equal removals, in whatever order the statements came."""
    manifest = small_manifest(admission="invite")
    roster, other = Roster(manifest), Roster(manifest)
    assert list(roster.removals()) == []
    roster.add(admit(manifest, 1))
    roster.add(claim(manifest, 1, 2))
    assert list(roster.removals()) == [], "nobody has left"
    roster.add(exclude(manifest, 1, 20))
    ((first, digest),) = roster.removals()
    assert first == 20
    roster.add(exclude(manifest, 4, 5))  # who was never admitted, and so never counted
    roster.add(claim(manifest, 1, 3))  # the second of a token for one: both of its authors leave
    assert [first for first, _ in roster.removals()] == [0, 0, 20]
    assert roster.removals()[-1][1] != digest, "the same step, and other removals before it"
    said = [exclude(manifest, 4, 5), exclude(manifest, 1, 20), claim(manifest, 1, 3), claim(manifest, 1, 2)]
    for each in [*said, admit(manifest, 1)]:
        other.add(each)
    assert roster.removals() == other.removals()
    for number in (2, 3):
        roster.add(admit(manifest, number))
    assert [first for first, _ in roster.removals() if first < manifest.steps] == [20], "who is named is back"


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
