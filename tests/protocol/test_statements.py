"""Who may contribute follows from the owner's statements, a set: bytes, verdicts, and what the ledger holds by them."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from protocol import limits
from protocol.crypto.hashing import Author
from protocol.crypto.keys import Signer
from protocol.errors import Ignore, IgnoreReason, OperatorError, Reject, RejectReason
from protocol.ledger.envelope import EnvelopeCodec
from protocol.ledger.ledger import Ledger
from protocol.ledger.roster import NO_STATEMENTS, Roster
from protocol.ledger.statements import StatementCodec, StatementKind
from protocol.run.admission import work_of
from protocol.run.invitation import Invitation, read_invitation
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from sfnode.storage.stored_records import replay, replay_statements
from tests.properties.plain_model import PlainModel
from tests.support.ledgers import admit, claim, compare, exclude, ledger_of, seal, signer
from tests.support.manifests import OWNER, small_manifest

OPEN, LISTED, INVITED = (small_manifest(admission=kind, steps=2_048) for kind in ("open", "allow-list", "invite"))
THIEF = Signer(b"thief".ljust(32, b"."))
SMALL_ORDER = bytes([1]) + bytes(31)


def reason_of(manifest: Manifest, data: bytes) -> RejectReason | IgnoreReason | None:
    """Why an empty roster refuses the statement; None: it does not."""
    try:
        Roster(manifest).add(data)
    except (Reject, Ignore) as refusal:
        return refusal.reason
    return None


# --- bytes


@pytest.mark.parametrize(
    ("manifest", "kinds"), [(OPEN, "exclude"), (LISTED, "admit exclude"), (INVITED, "admit exclude claim")]
)
def test_statement__kinds_of_a_run__are_those_of_its_admission(manifest: Manifest, kinds: str) -> None:
    made = {"admit": admit(manifest, 1), "exclude": exclude(manifest, 1, 5), "claim": claim(manifest, 1, 1)}
    found = {name: reason_of(manifest, data) for name, data in made.items()}
    assert found == {name: None if name in kinds.split() else RejectReason.STATEMENT_FORMAT for name in made}


def test_statement__of_each_kind__has_the_fields_that_were_signed() -> None:
    codec, author = StatementCodec(INVITED), signer(1).author
    admitted, excluded, claimed = map(
        codec.decode_untrusted, (admit(INVITED, 1), exclude(INVITED, 1, 2_047), claim(INVITED, 7, 1))
    )
    assert (admitted.kind, admitted.author, admitted.from_step) == (StatementKind.ADMIT, author, 0)
    assert (excluded.kind, excluded.author, excluded.from_step) == (StatementKind.EXCLUDE, author, 2_047)
    assert (claimed.kind, claimed.author) == (StatementKind.CLAIM, author)
    assert claimed.token == Signer(b"token".ljust(31, b".") + b"\7").author
    assert [len(each.data) for each in (admitted, excluded, claimed)] == [97, 101, limits.STATEMENT_BYTES_MAX]


@pytest.mark.parametrize("data", [admit(INVITED, 1), exclude(INVITED, 1, 3), claim(INVITED, 1, 1)], ids="aec")
def test_statement__any_byte_changed_added_or_missing__is_rejected(data: bytes) -> None:
    for index in range(len(data)):
        changed = data[:index] + bytes([data[index] ^ 1]) + data[index + 1 :]
        assert isinstance(reason_of(INVITED, changed), RejectReason)
        assert reason_of(INVITED, data[:index]) is RejectReason.STATEMENT_FORMAT
    assert reason_of(INVITED, data + b"\0") is RejectReason.STATEMENT_FORMAT


FORGED = {
    "another-key": exclude(INVITED, 1, 3, by=THIEF),
    "another-run": exclude(LISTED, 1, 3),
    "token-of-another-key": claim(INVITED, 1, 1, by=THIEF),
    "admission-as-exclusion": b"\2" + admit(INVITED, 1)[1:33] + bytes(4) + admit(INVITED, 1)[33:],
    "claim-for-another-author": claim(INVITED, 1, 1)[:33] + signer(2).author + claim(INVITED, 1, 1)[65:],
    "claim-by-another-token": claim(INVITED, 1, 1)[:-64] + claim(INVITED, 2, 1)[-64:],
}


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED)
def test_statement__not_signed_so__is_rejected(data: bytes) -> None:
    assert reason_of(INVITED, data) is RejectReason.STATEMENT_SIGNATURE


def test_statement__exclusion_beyond_the_run__is_rejected() -> None:
    codec = StatementCodec(OPEN)
    assert reason_of(OPEN, codec.exclude(OWNER, signer(1).author, 2_048)) is RejectReason.STATEMENT_FORMAT


def test_statement__about_no_valid_key__is_rejected() -> None:
    codec = StatementCodec(INVITED)
    assert reason_of(INVITED, codec.admit(OWNER, Author(SMALL_ORDER))) is RejectReason.AUTHOR_KEY
    token = b"\3" + SMALL_ORDER + signer(1).author + bytes(128)
    assert reason_of(INVITED, token) is RejectReason.AUTHOR_KEY


def test_invitation__as_text__comes_back() -> None:
    invitation = StatementCodec(INVITED).invite(OWNER, bytes(range(32)))
    assert read_invitation(f" {invitation.text}\n") == invitation
    assert len(invitation.text) == 135 and invitation.text.startswith("invite:")


@pytest.mark.parametrize(
    "text", ["", "invite:", "invite:%", "x" * 135, "invite:" + "A" * 127, "A" * 128, "invite:\u00e9"]
)
def test_invitation__not_whole__says_what_to_do(text: str) -> None:
    with pytest.raises(OperatorError, match="sfnode run invite"):
        read_invitation(text)


def test_invitation__of_a_random_seed__is_one_word() -> None:
    text = Invitation(secret=b"\xff" * 32, signature=b"\xfb" * 64).text
    assert not set(text) & set("+/= ")


# --- the roster


def test_roster__same_again_or_less__is_ignored() -> None:
    roster = Roster(INVITED)
    for data in (admit(INVITED, 1), exclude(INVITED, 1, 5), claim(INVITED, 1, 2)):
        roster.add(data)
    digest = roster.digest()
    for data in (admit(INVITED, 1), exclude(INVITED, 1, 5), exclude(INVITED, 1, 9), claim(INVITED, 1, 2)):
        with pytest.raises(Ignore) as caught:
            roster.add(data)
        assert caught.value.reason is IgnoreReason.ALREADY_HELD
    assert (roster.digest(), len(roster)) == (digest, 3)


def test_roster__several_exclusions__the_earliest_step_holds() -> None:
    roster = Roster(OPEN)
    for step in (9, 5, 7):
        with suppress(Ignore):
            roster.add(exclude(OPEN, 1, step))
    assert roster.excluded() == {signer(1).author: 5}
    assert (roster.counts_until(signer(1).author), roster.counts_until(signer(2).author)) == (5, limits.STEPS_MAX + 1)


def test_roster__token_claimed_twice__admits_nobody_and_keeps_both() -> None:
    roster = Roster(INVITED)

    def is_used(number: int) -> bool:
        return roster.statistics(signer(number).author, None).is_invitation_used

    first = roster.add(claim(INVITED, 1, 1))
    assert roster.is_admitted(signer(1).author) and not is_used(1)
    second = roster.add(claim(INVITED, 1, 2))
    assert not roster.is_admitted(signer(1).author) and not roster.is_admitted(signer(2).author)
    assert roster.held(first.key) == (first, second)
    assert [is_used(number) for number in (1, 2, 3)] == [True, True, False]
    assert reason_of(INVITED, claim(INVITED, 1, 3)) is None
    with pytest.raises(Ignore):
        roster.add(claim(INVITED, 1, 3))


def test_roster__token_void_and_another_good_one__is_admitted() -> None:
    roster = Roster(INVITED)
    for token, author in ((1, 1), (1, 2), (2, 1)):
        roster.add(claim(INVITED, token, author))
    assert roster.is_admitted(signer(1).author) and not roster.is_admitted(signer(2).author)


def test_roster__full__takes_no_new_key_and_still_an_earlier_exclusion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATEMENTS_MAX", 2)
    roster = Roster(OPEN)
    roster.add(exclude(OPEN, 1, 9))
    roster.add(exclude(OPEN, 2, 9))
    with pytest.raises(Ignore) as caught:
        roster.add(exclude(OPEN, 3, 9))
    assert caught.value.reason is IgnoreReason.STATEMENTS_FULL
    assert roster.add(exclude(OPEN, 1, 3)).from_step == 3


def test_roster__in_pages__gives_every_statement_once_and_no_pair_torn_apart() -> None:
    roster = Roster(INVITED)
    made = {admit(INVITED, n) for n in range(5)} | {claim(INVITED, t, a) for t in range(3) for a in (t, t + 1)}
    for data in sorted(made):
        roster.add(data)
    pages, after, is_last = [], bytes(33), False
    while not is_last:
        page, is_last = roster.page(after, 1)
        pages.append(page)
        after = page[-1][:33]
    assert [len(page) for page in pages] == [1] * 5 + [2] * 3
    assert {data for page in pages for data in page} == made
    assert roster.page(after, 1) == ([], True)


def test_roster__empty__has_a_digest_of_zeros() -> None:
    assert Roster(OPEN).digest() == NO_STATEMENTS == bytes(16)


# --- work


def test_work__key_with_too_little__is_rejected_and_one_with_enough_counts() -> None:
    manifest = small_manifest(pow_bits=4)
    enough = next(n for n in range(1_000) if work_of(manifest.run_id, signer(n).author) >= 4)
    short = next(n for n in range(1_000) if work_of(manifest.run_id, signer(n).author) == 3)
    ledger = ledger_of(manifest, [seal(manifest, enough, 1)])
    assert ledger.updates == 1
    with pytest.raises(Reject) as caught:
        ledger.add(seal(manifest, short, 1))
    assert caught.value.reason is RejectReason.AUTHOR_WORK
    assert [ledger.roster.counts_until(signer(n).author) for n in (enough, short)] == [limits.STEPS_MAX + 1, 0]


def test_work__example_of_the_specification__is_equal() -> None:
    assert work_of(bytes(range(32)), Signer(bytes(32)).author) == 1


# --- the ledger


def test_ledger__author_excluded__later_slots_leave_digests_table_and_sum() -> None:
    replica = Replica(OPEN)
    for step in (0, 3, 1_023, 1_024, 2_047):
        replica.add(seal(OPEN, 1, step))
    replica.add(seal(OPEN, 1, 1_023, 99))  # void
    replica.state_digest()
    replica.add_statement(exclude(OPEN, 1, 3))
    assert (replica.ledger.updates, replica.ledger.void_slots) == (1, 0)
    assert replica.ledger.authors() == {signer(1).author: 0}
    assert [span for span, _ in replica.ledger.slots.span_digests()] == [0]
    only_first = Replica(OPEN)
    only_first.add(seal(OPEN, 1, 0))
    assert replica.state_digest() == replica.replayed_digest() == only_first.state_digest()
    replica.add_statement(exclude(OPEN, 1, 0))
    assert replica.ledger.authors() == {} and replica.ledger.slots.span_digests() == []
    assert replica.state_digest() == Replica(OPEN).state_digest()


@pytest.mark.parametrize(("step", "is_excluded"), [(4, False), (5, True), (6, True)])
def test_ledger__record_of_an_excluded_author__is_ignored_from_that_step_on(step: int, is_excluded: bool) -> None:
    ledger = ledger_of(OPEN, [])
    ledger.add_statement(exclude(OPEN, 1, 5))
    if not is_excluded:
        ledger.add(seal(OPEN, 1, step))
        return
    with pytest.raises(Ignore) as caught:
        ledger.add(seal(OPEN, 1, step))
    assert caught.value.reason is IgnoreReason.EXCLUDED


def test_ledger__author_not_admitted__is_ignored_until_the_statement_comes() -> None:
    ledger = ledger_of(LISTED, [])
    with pytest.raises(Ignore) as caught:
        ledger.add(seal(LISTED, 1, 0))
    assert caught.value.reason is IgnoreReason.NOT_ADMITTED
    ledger.add_statement(admit(LISTED, 1))
    ledger.add(seal(LISTED, 1, 0))
    assert ledger.updates == 1


def test_ledger__excluded_from_the_start__gives_its_place_to_another() -> None:
    manifest = small_manifest(authors_max=1)
    ledger = ledger_of(manifest, [seal(manifest, 1, 0)])
    assert not ledger.has_room_for(signer(2).author)
    ledger.add_statement(exclude(manifest, 1, 0))
    ledger.add(seal(manifest, 2, 0))
    assert ledger.updates == 1


def test_root__with_and_without_a_statement_about_nothing_held__differs() -> None:
    empty, stated = ledger_of(OPEN, []), ledger_of(OPEN, [])
    stated.add_statement(exclude(OPEN, 1, 5))
    assert empty.root() != stated.root()


def test_replica__token_void_then_admitted__has_what_it_held_before() -> None:
    """Live, and from a disk that was read while the author was not admitted."""
    records = [seal(INVITED, 1, step) for step in (0, 1, 1_500)] + [seal(INVITED, 1, 1, 77)]
    before = Replica(INVITED)
    before.add_statement(claim(INVITED, 1, 1))
    for record in records:
        before.add(record)
    digest = before.state_digest()
    before.add_statement(claim(INVITED, 1, 2))
    assert before.state_digest() == Replica(INVITED).state_digest()
    restarted = Replica(INVITED)
    replay_statements(restarted, [claim(INVITED, 1, 1), claim(INVITED, 1, 2)], Path("x"))
    replay(restarted, enumerate(records), Path("x"))
    assert restarted.ledger.root() == before.ledger.root()
    for replica in (before, restarted):
        replica.add_statement(admit(INVITED, 1))
        assert (replica.state_digest(), replica.ledger.updates, replica.ledger.void_slots) == (digest, 2, 1)
    assert restarted.ledger.root() == before.ledger.root()


def test_replica__many_updates_taken_out__are_subtracted_in_pieces() -> None:
    replica = Replica(OPEN)
    for step in range(20):
        replica.add(seal(OPEN, 1, step))
    replica.sum_some(5)
    replica.add_statement(exclude(OPEN, 1, 4))
    assert replica.unsummed == 15 + 16
    while replica.unsummed:
        replica.sum_some(4)
    assert replica.state_digest() == replica.replayed_digest()


# --- any order

AUTHORS = st.integers(0, 3)
STEPS = st.sampled_from((0, 1, 511, 512, 1_023, 1_024, 2_047))
RECORDS = st.tuples(AUTHORS, STEPS, st.sampled_from((1, -2))).map(lambda given: seal(INVITED, *given))
STATEMENTS = (
    AUTHORS.map(lambda author: admit(INVITED, author))
    | st.tuples(AUTHORS, STEPS).map(lambda given: exclude(INVITED, *given))
    | st.tuples(st.integers(0, 1), AUTHORS).map(lambda given: claim(INVITED, *given))
    | AUTHORS.map(lambda author: claim(INVITED, 2, author, uses=2))
)
THINGS = st.lists(RECORDS | STATEMENTS, max_size=24)
RECORD_BYTES = EnvelopeCodec(INVITED).record_bytes


def offer(replica: Replica, thing: bytes) -> bool:
    """Whether it was taken in."""
    try:
        replica.add(thing) if len(thing) == RECORD_BYTES else replica.add_statement(thing)
    except Ignore:
        return False
    return True


def expected(things: list[bytes]) -> PlainModel:
    model = PlainModel(INVITED)
    for thing in sorted(things, key=lambda thing: len(thing) == RECORD_BYTES):
        model.add(thing[:-64]) if len(thing) == RECORD_BYTES else model.add_statement(thing)
    return model


@given(things=THINGS, chance=st.randoms(use_true_random=False))
def test_replica__updates_and_statements_in_any_order__one_root_and_state(
    things: list[bytes], chance: random.Random
) -> None:
    """What was ignored is offered once more, as anti-entropy does; what was stored is replayed as at a start."""
    replica, stored = Replica(INVITED), []
    for thing in [*chance.sample(things, len(things)), *chance.sample(things, len(things))]:
        if offer(replica, thing):
            stored.append(thing)
        if chance.random() < 0.2:
            replica.sum_some(chance.randrange(4))
    model = expected(things)
    assert replica.ledger.root() == model.root()
    assert replica.state_digest() == replica.replayed_digest() == model.state_digest()
    assert (replica.ledger.updates, replica.ledger.void_slots) == (len(model.counting), model.void)
    assert replica.ledger.authors() == model.authors
    again = Replica(INVITED)
    replay_statements(again, [thing for thing in stored if len(thing) != RECORD_BYTES], Path("x"))
    replay(again, enumerate(thing for thing in stored if len(thing) == RECORD_BYTES), Path("x"))
    assert (again.ledger.root(), again.state_digest()) == (model.root(), model.state_digest())


@given(things=THINGS, chance=st.randoms(use_true_random=False))
def test_sync__two_nodes_with_parts_of_updates_and_statements__end_equal(
    things: list[bytes], chance: random.Random
) -> None:
    ledgers = [Ledger(INVITED), Ledger(INVITED)]
    for thing in things:
        for ledger in chance.choice((ledgers[:1], ledgers[1:], ledgers)):
            with suppress(Ignore):
                ledger.add(thing) if len(thing) == RECORD_BYTES else ledger.add_statement(thing)
    for _ in range(2):
        for asker, other in (ledgers, ledgers[::-1]):
            compare(asker, other)
    assert ledgers[0].root() == ledgers[1].root()


def test_sync__joiner_of_an_allow_list_run__has_statements_before_records() -> None:
    full = ledger_of(LISTED, [])
    for author in range(300):
        full.add_statement(admit(LISTED, author))
    for author in range(300):
        full.add(seal(LISTED, author, author))
    joining = ledger_of(LISTED, [])
    session, cost = compare(joining, full)
    assert session.is_complete and joining.root() == full.root()
    assert cost.round_trips == 1 + 3 + 1 + 3 + 3


def test_sync__nothing_stated__asks_for_no_statements() -> None:
    full = ledger_of(small_manifest(), [seal(small_manifest(), 1, 0)])
    _, cost = compare(ledger_of(small_manifest(), []), full)
    assert cost.round_trips == 4


def test_sync__what_is_excluded_here__is_not_asked_for() -> None:
    full, lacking = ledger_of(OPEN, [seal(OPEN, 1, step) for step in range(4)]), ledger_of(OPEN, [])
    lacking.add_statement(exclude(OPEN, 1, 2))
    session, _ = compare(lacking, full)
    assert session.is_complete and not session.is_short
    assert lacking.updates == 2
