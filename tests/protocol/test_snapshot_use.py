"""Snapshots: when one is used before it is proved, what the worker is shown, and what a replay says of it."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from protocol import limits, timings
from protocol.events import (
    EstimateFinished,
    FetchFailed,
    FetchSnapshot,
    Halt,
    PeerJoined,
    PeerLeft,
    ReserveStep,
    SnapshotArrived,
    SnapshotOutcome,
    Ticked,
    WorkerReady,
)
from protocol.ledger.digest_buckets import shard_of
from protocol.node.node_config import SnapshotUse
from protocol.state.snapshot import AttestationCodec, encode_snapshot
from protocol.state.snapshot_proof import ProofVerdict, judge, take_snapshot
from protocol.sync.anti_entropy import answer
from protocol.wire import AuthorsRequest, PeerId, SpansRequest, StatementsRequest
from tests.support.ledgers import admit, exclude, seal, signer
from tests.support.node_cores import Y, head_of, join, next_request, pushed, tell
from tests.support.snapshot_runs import (
    AUTHORS,
    DENSE_RUN,
    FRONTIER,
    JOINER,
    ROUND,
    RUN,
    STEP,
    Pair,
    attest,
    false_snapshot,
    records,
    replica_of,
    run_of,
    true_snapshot,
)

# --- use


def told(pair: Pair, snapshot_of: object = None, *, authors: tuple[int, ...] = AUTHORS) -> Pair:
    """The veteran has heard these authors attest the snapshot."""
    snapshot = snapshot_of or true_snapshot(pair.veteran.manifest)
    for each in attest(snapshot, *authors, manifest=pair.veteran.manifest):  # type: ignore[arg-type]
        pair.veteran.snapshots.attestations.add(each.data, teller=Y)
    return pair


def fetch(pair: Pair, snapshot: object = None) -> None:
    data = encode_snapshot(pair.joiner.manifest, snapshot or true_snapshot(pair.joiner.manifest))  # type: ignore[arg-type]
    pair.run(lambda: bool(pair.joiner.snapshots._wanted()))
    assert pair.joiner.snapshots._wanted()
    pair.joiner.handle(SnapshotArrived(data=data), pair.now_ms)


def outcome_of(pair: Pair) -> SnapshotOutcome:
    return pair.joiner.snapshots.outcome


def test_joiner__with_a_snapshot__contributes_before_its_replay_is_through_and_then_proves_it() -> None:
    pair = told(Pair(snapshot=SnapshotUse.ALWAYS))
    pair.joiner.handle(WorkerReady(), 0)
    fetch(pair)
    assert outcome_of(pair) is SnapshotOutcome.USED
    pair.run(lambda: any(pair.of_joiner(ReserveStep)))
    ledger, full = pair.joiner.replica.ledger, replica_of()
    assert not pair.joiner.sync.is_live and ledger.slots.slots_before(STEP) < true_snapshot().slots
    assert pair.joiner.replica.state_digest() != full.state_digest()
    shown, whole = pair.joiner.replica.shown(), full.coefficients()
    assert [shown.flat(epoch).tolist() for epoch in range(2)] == [whole.flat(epoch).tolist() for epoch in range(2)]
    step = pair.joiner.own_steps.estimating
    assert step is not None and step >= FRONTIER
    pair.joiner.handle(EstimateFinished(step=step, scalars=(1,) * ROUND), pair.now_ms)
    assert pair.joiner.own_steps.updates == 1
    pair.run(lambda: outcome_of(pair) is SnapshotOutcome.PROVED)
    assert outcome_of(pair) is SnapshotOutcome.PROVED and pair.joiner.replica.snapshot is None
    assert pair.joiner.replica.shown() is pair.joiner.replica.coefficients()
    assert ledger.slots.slots_before(STEP) == true_snapshot().slots


@pytest.mark.slow
def test_joiner__with_a_snapshot_of_a_dense_run__contributes_and_then_proves_every_step_of_it() -> None:
    """A step is an epoch: the file has a sum of rows and numbers for each of a thousand."""
    pair = told(Pair(DENSE_RUN, snapshot=SnapshotUse.ALWAYS))
    pair.joiner.handle(WorkerReady(), 0)
    fetch(pair)
    assert outcome_of(pair) is SnapshotOutcome.USED
    pair.run(lambda: any(pair.of_joiner(ReserveStep)))
    shown, whole = pair.joiner.replica.shown(), replica_of(DENSE_RUN).coefficients()
    assert len(true_snapshot(DENSE_RUN).epochs) == STEP
    assert all(np.array_equal(shown.core(step), whole.core(step)) for step in range(STEP))
    step = pair.joiner.own_steps.estimating
    assert step is not None
    pair.joiner.handle(EstimateFinished(step=step, scalars=(3, *(1,) * 16)), pair.now_ms)
    pair.run(lambda: outcome_of(pair) is SnapshotOutcome.PROVED)
    assert outcome_of(pair) is SnapshotOutcome.PROVED and pair.joiner.own_steps.updates == 1


def test_joiner__neighbour_holds_its_own_rounds__knows_them_before_it_signs() -> None:
    """A key without its disk: the last of its rounds lies before the snapshot, in what is not replayed yet."""
    held = (*records(), seal(RUN, JOINER, 0), seal(RUN, JOINER, 5 * ROUND))
    pair = Pair(held=held, snapshot=SnapshotUse.ALWAYS)
    snapshot = take_snapshot(pair.veteran.replica, STEP)
    told(pair, snapshot)
    pair.joiner.handle(WorkerReady(), 0)
    fetch(pair, snapshot)
    pair.run(lambda: any(pair.of_joiner(ReserveStep)))
    assert not pair.joiner.sync.is_live
    assert pair.joiner.replica.ledger.highest_step(signer(JOINER).author) == 5 * ROUND


def test_joiner__session_breaks_after_the_snapshot_came__next_one_asks_for_its_own_rounds_first_too() -> None:
    """Found by a trace: only while the file was sought did sessions begin with the own key. With the next one the node
    signed nothing before its whole replay was through."""
    pair = told(Pair(held=(*records(), seal(RUN, JOINER, 5 * ROUND)), snapshot=SnapshotUse.ALWAYS), true_snapshot())
    fetch(pair)
    other, full = PeerId("other"), pair.veteran.replica.ledger
    pair.joiner.handle(PeerLeft(peer=other), pair.now_ms)
    pair.joiner.handle(PeerJoined(peer=other), pair.now_ms)
    request = next_request(tell(pair.joiner, other, head_of(full, bytes(32)), pair.now_ms))
    while isinstance(request, SpansRequest | StatementsRequest):
        (reply,) = answer(full, request)
        request = next_request(tell(pair.joiner, other, reply, pair.now_ms))
    assert isinstance(request, AuthorsRequest) and request.shards == (shard_of(signer(JOINER).author),)


@pytest.mark.parametrize(
    ("admission", "use", "authors", "is_used"),
    [
        ("allow-list", SnapshotUse.AUTO, AUTHORS, True),
        ("allow-list", SnapshotUse.NEVER, AUTHORS, False),
        ("allow-list", SnapshotUse.ALWAYS, AUTHORS[:2], False),
        ("allow-list", SnapshotUse.ALWAYS, (*AUTHORS[:2], 7), False),
        ("open", SnapshotUse.AUTO, AUTHORS, False),
        ("open", SnapshotUse.ALWAYS, AUTHORS, True),
    ],
)
def test_joiner__who_may_use_one__depends_on_its_operator_the_run_and_the_authors(
    admission: str, use: SnapshotUse, authors: tuple[int, ...], is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_BEHIND_MIN", 100)
    pair = told(Pair(run_of(admission=admission), snapshot=use), authors=authors)
    pair.run(lambda: bool(pair.joiner.snapshots._wanted()) or pair.joiner.sync.is_live)
    assert bool(pair.joiner.snapshots._wanted()) == is_used
    assert pair.joiner.sync.is_live != is_used


def test_joiner__not_far_behind__waits_for_its_replay() -> None:
    pair = told(Pair(snapshot=SnapshotUse.AUTO))
    pair.run(lambda: pair.joiner.sync.is_live)
    assert pair.joiner.sync.is_live and pair.joiner.snapshots.outcome is SnapshotOutcome.NONE


def test_joiner__another_file_comes__is_not_used() -> None:
    pair = told(Pair(snapshot=SnapshotUse.ALWAYS))
    fetch(pair, false_snapshot())
    assert pair.joiner.snapshots.outcome is SnapshotOutcome.NONE and pair.joiner.replica.snapshot is None


def test_joiner__snapshot_is_attested__asks_for_the_file_once_and_again_after_a_failure() -> None:
    pair = told(Pair(snapshot=SnapshotUse.ALWAYS))
    pair.run(lambda: bool(pair.joiner.snapshots._wanted()))
    data = encode_snapshot(RUN, true_snapshot())
    wanted = FetchSnapshot(sha256=hashlib.sha256(data).hexdigest(), file_bytes=len(data))
    assert pair.joiner.handle(Ticked(), pair.now_ms).count(wanted) == 1
    assert pair.joiner.handle(Ticked(), pair.now_ms).count(wanted) == 0
    pair.joiner.handle(FetchFailed(sha256=wanted.sha256), pair.now_ms)
    for rest_ms, asked in ((1_999, 0), (2_000, 1), (9_000, 0)):
        effects = pair.joiner.handle(Ticked(), pair.now_ms + rest_ms)
        assert effects.count(wanted) == asked


def test_joiner__attested_file_is_not_a_snapshot__replays_first() -> None:
    pair, useless = Pair(snapshot=SnapshotUse.ALWAYS), b"useless".ljust(200, b".")
    for number in AUTHORS:
        table = pair.veteran.snapshots.attestations
        made = table.codec.attest(signer(number), STEP, len(useless), hashlib.sha256(useless).digest())
        table.add(made.data, teller=Y)
    pair.run(lambda: bool(pair.joiner.snapshots._wanted()))
    pair.joiner.handle(SnapshotArrived(data=useless), pair.now_ms)
    assert pair.joiner.snapshots.outcome is SnapshotOutcome.USELESS
    assert pair.joiner.snapshots._wanted() == []
    pair.run(lambda: pair.joiner.sync.is_live)
    assert not list(pair.of_joiner(Halt))


# --- the overlay


def test_overlay__updates_come_and_go__shows_the_snapshot_and_what_follows_it() -> None:
    replica, full = replica_of(held=()), replica_of()
    replica.use_snapshot(true_snapshot())
    for record in reversed(records()):
        replica.add(record)
    other = seal(RUN, 1, FRONTIER, *range(ROUND))
    for each in (replica, full):
        each.add(other)  # voids a slot
        each.add_statement(exclude(RUN, 2, STEP + ROUND))
    shown, whole = replica.shown(), full.coefficients()
    assert shown is not replica.coefficients()
    assert [shown.flat(epoch).tolist() for epoch in range(2)] == [whole.flat(epoch).tolist() for epoch in range(2)]


# --- proof


def test_proof__equal_sets__equal_or_unequal_by_every_coefficient() -> None:
    replica = replica_of()
    assert judge(true_snapshot(), replica) is ProofVerdict.EQUAL
    assert judge(false_snapshot(), replica) is ProofVerdict.UNEQUAL
    assert judge(replace(true_snapshot(), epochs={}), replica) is ProofVerdict.UNEQUAL


def test_proof__late_update_or_more_than_exist__says_nothing_or_that_they_are_missing() -> None:
    late = tuple(record for record in records() if record != records()[7])
    assert judge(take_snapshot(replica_of(held=late), STEP), replica_of()) is ProofVerdict.OTHER_SET
    assert judge(true_snapshot(), replica_of(held=late)) is ProofVerdict.MISSING


def test_proof__void_slot_or_exclusion_since__says_nothing() -> None:
    voided, excluding, later = replica_of(), replica_of(), replica_of()
    voided.add(seal(RUN, 1, 0, *range(ROUND)))
    excluding.add_statement(exclude(RUN, 1, 512))
    later.add_statement(exclude(RUN, 1, STEP))
    assert judge(true_snapshot(), voided) is ProofVerdict.OTHER_SET
    assert judge(true_snapshot(), excluding) is ProofVerdict.OTHER_SET
    assert judge(true_snapshot(), later) is ProofVerdict.EQUAL


def test_joiner__authors_lie_in_concert__halts_and_names_them() -> None:
    pair = told(Pair(snapshot=SnapshotUse.ALWAYS), false_snapshot())
    fetch(pair, false_snapshot())
    pair.run(lambda: any(pair.of_joiner(Halt)))
    (halt,) = pair.of_joiner(Halt)
    assert isinstance(halt, Halt) and "the same updates give other coefficients" in halt.detail
    assert all(signer(number).author.hex()[:16] in halt.detail for number in AUTHORS)
    codec = AttestationCodec(RUN)
    for data in halt.attestations:
        codec.check_signed(codec.decode_untrusted(data))
    assert len(halt.attestations) == 3


def test_joiner__snapshot_counts_more_than_its_only_neighbour_has__goes_on_with_its_own_state() -> None:
    """A neighbour that withholds an update must not make the joiner stop and accuse those who signed."""
    pair = told(Pair(held=records()[1:], snapshot=SnapshotUse.ALWAYS), true_snapshot())
    fetch(pair)
    pair.run(lambda: outcome_of(pair) is not SnapshotOutcome.USED)
    assert outcome_of(pair) is SnapshotOutcome.UNPROVED and not list(pair.of_joiner(Halt))


def test_joiner__snapshot_counts_more_than_anybody_has__goes_on_when_it_has_not_come_in_time() -> None:
    """It may be true: a token that was claimed twice takes slots from everybody, and so does a full table of authors.

    The joiner halted where it had two neighbours, and accused those who had signed.
    """
    late = tuple(record for record in records() if record != records()[7])
    pair = told(Pair(held=late, snapshot=SnapshotUse.ALWAYS), true_snapshot())
    fetch(pair)
    pair.run(lambda: pair.joiner.sync.is_live)
    live_ms = pair.now_ms
    join(pair.joiner, Y, now_ms=live_ms)
    pair.run(lambda: outcome_of(pair) is not SnapshotOutcome.USED)
    assert outcome_of(pair) is SnapshotOutcome.UNPROVED and not list(pair.of_joiner(Halt))
    assert pair.now_ms - live_ms >= timings.SNAPSHOT_MISSING_MS


def test_joiner__neighbour_with_nothing_makes_it_live_in_mid_replay__uses_the_snapshot_until_all_has_come() -> None:
    """A replay may take minutes. One of 173 s was halted after 60, when a second joiner was among the neighbours."""
    late, later = records()[7:9]
    held = tuple(record for record in records() if record not in (late, later))
    pair = told(Pair(held=held, snapshot=SnapshotUse.ALWAYS), true_snapshot())
    fetch(pair)
    pair.run(lambda: pair.joiner.sync.is_live)
    live_ms = pair.now_ms
    pair.run(lambda: pair.now_ms >= live_ms + timings.SNAPSHOT_MISSING_MS - 2_000)
    tell(pair.joiner, PeerId("other"), pushed(late), now_ms=pair.now_ms)
    pair.run(lambda: pair.now_ms >= live_ms + timings.SNAPSHOT_MISSING_MS + 30_000)
    assert outcome_of(pair) is SnapshotOutcome.USED
    tell(pair.joiner, PeerId("other"), pushed(later), now_ms=pair.now_ms)
    pair.run(lambda: outcome_of(pair) is not SnapshotOutcome.USED)
    assert outcome_of(pair) is SnapshotOutcome.PROVED


def test_joiner__late_update_since_the_snapshot__goes_on_with_its_own_state() -> None:
    late = tuple(record for record in records() if record != records()[7])
    snapshot = take_snapshot(replica_of(held=late), STEP)
    pair = told(Pair(snapshot=SnapshotUse.ALWAYS), snapshot)
    fetch(pair, snapshot)
    pair.run(lambda: pair.joiner.snapshots.outcome is not SnapshotOutcome.USED)
    assert pair.joiner.snapshots.outcome is SnapshotOutcome.UNPROVED and not list(pair.of_joiner(Halt))
    assert pair.joiner.replica.shown() is pair.joiner.replica.coefficients()


def test_joiner__owner_excludes_an_author_of_the_snapshot_meanwhile__stops_using_it_at_once() -> None:
    pair = told(Pair(snapshot=SnapshotUse.ALWAYS))
    pair.joiner.handle(WorkerReady(), 0)
    fetch(pair)
    pair.run(lambda: len(pair.joiner.replica.ledger.roster) > 0)
    pair.joiner.replica.add_statement(exclude(RUN, 2, 16))
    pair.run(lambda: pair.joiner.snapshots.outcome is not SnapshotOutcome.USED)
    assert pair.joiner.snapshots.outcome is SnapshotOutcome.UNPROVED and pair.joiner.replica.snapshot is None


def test_joiner__statement_comes_while_an_old_exclusion_holds__goes_on_using_the_snapshot() -> None:
    """Its own claim of an invitation did it."""
    pair = told(Pair(snapshot=SnapshotUse.ALWAYS))
    pair.joiner.replica.add_statement(exclude(RUN, 7, 3))
    fetch(pair)
    for statement, outcome in (
        (admit(RUN, 8), SnapshotOutcome.USED),
        (exclude(RUN, 2, STEP), SnapshotOutcome.USED),
        (exclude(RUN, 7, 2), SnapshotOutcome.UNPROVED),
    ):
        pair.joiner.replica.add_statement(statement)
        pair.joiner.handle(Ticked(), pair.now_ms)
        assert outcome_of(pair) is outcome
