"""The node core, event by event: the exact effects, their order, and what it must never do."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from protocol import timings
from protocol.events import (
    DropPeer,
    EstimateFinished,
    EstimateLost,
    EstimateSkipped,
    PeerJoined,
    PeerLeft,
    ReserveStep,
    SendMessage,
    StartEstimate,
    StoreRecords,
    Ticked,
    TrainingSwitched,
    WorkerReady,
)
from protocol.node.authors_at_work import AuthorsAtWork
from protocol.sync.anti_entropy import Request, answer
from protocol.wire import Head, Message, Ping, Records, SpansRequest
from tests.support.ledgers import ledger_of, seal
from tests.support.manifests import small_manifest
from tests.support.node_cores import (
    MANIFEST,
    X,
    Y,
    ask,
    head_of,
    join,
    join_live,
    next_request,
    node,
    own,
    pushed,
    sent,
    start_effects,
    tell,
    without_heads,
)

# --- own steps


def test_node__worker_ready__reserves_the_step_before_it_is_estimated() -> None:
    assert node().handle(WorkerReady(), 10) == start_effects(0)


def test_node__before_its_first_tick__starts_nothing() -> None:
    assert node(is_asleep=True).handle(WorkerReady(), 10) == []


def test_node__estimate_finished__stores_before_it_sends() -> None:
    training = node()
    join_live(training, X, Y)
    training.handle(WorkerReady(), 10)
    effects = training.handle(EstimateFinished(step=0, scalars=(-300,)), 1_000)
    record = own(0, -300)
    assert effects == [
        StoreRecords(records=(record,), is_own=True),
        *start_effects(1),
        SendMessage(peer=X, message=pushed(record)),
        SendMessage(peer=Y, message=pushed(record)),
    ]
    assert (training.own_steps.updates, training.replica.ledger.updates) == (1, 1)


def test_node__estimate_of_a_step_it_did_not_ask_for__is_passed_over() -> None:
    training = node()
    training.handle(WorkerReady(), 10)
    assert training.handle(EstimateFinished(step=7, scalars=(1,)), 20) == []
    assert training.own_steps.estimating == 0


def test_node__estimate_skipped_or_lost__passes_the_step_and_signs_nothing() -> None:
    training = node()
    training.handle(WorkerReady(), 10)
    assert training.handle(EstimateSkipped(step=0), 20) == start_effects(1)
    assert training.handle(EstimateLost(step=1), 30) == []  # no worker until one is back
    assert training.handle(WorkerReady(), 40) == start_effects(2)
    assert (training.own_steps.skipped, training.own_steps.updates) == (2, 0)


def test_node__restarted__goes_on_after_the_reserved_and_after_its_highest_held_step() -> None:
    assert node(reserved_step=4).handle(WorkerReady(), 10) == start_effects(5)
    assert node(reserved_step=4, records=[own(8)]).handle(WorkerReady(), 10) == start_effects(9)


def test_node__last_step_done__is_finished_and_asks_for_no_more() -> None:
    short = small_manifest(steps=1)
    training = node(manifest=short)
    training.handle(WorkerReady(), 10)
    assert not training.own_steps.is_finished
    effects = training.handle(EstimateFinished(step=0, scalars=(5,)), 20)
    assert effects == [StoreRecords(records=(own(0, manifest=short),), is_own=True)] and training.own_steps.is_finished


def test_node__relay__never_estimates() -> None:
    relay = node(is_training=False)
    assert relay.handle(WorkerReady(), 10) == relay.handle(Ticked(), 99_999) == []


def test_node__switched_off_while_it_measures__publishes_that_step_and_starts_no_other_until_switched_on() -> None:
    training = node()
    join_live(training, X)
    training.handle(WorkerReady(), 10)
    assert training.handle(TrainingSwitched(is_on=False), 20) == []
    effects = training.handle(EstimateFinished(step=0, scalars=(-300,)), 1_000)
    assert not any(isinstance(effect, ReserveStep | StartEstimate) for effect in effects)
    assert training.own_steps.updates == 1
    assert tell(training, X, pushed(seal(MANIFEST, 7, 3)), 2_000)[0] == StoreRecords(
        records=(seal(MANIFEST, 7, 3),), is_own=False
    )
    assert training.rest_ms() > timings.FLUSH_INTERVAL_MS  # no step is to be looked for
    assert training.handle(TrainingSwitched(is_on=True), 3_000)[:2] == start_effects(3)  # where the others are


def test_node__machine_that_slept_for_hundreds_of_rounds__fetches_them_without_waiting_for_heads() -> None:
    """A bug once: each 64 rounds began with two Heads, so 300 took 20 s, and a fast run was never reached again."""
    long = small_manifest(steps=1_000, epoch_steps=1_000)
    slept = node(manifest=long, records=[seal(long, 7, 0)], is_training=False)
    join_live(slept, X)
    full = ledger_of(long, [seal(long, 7, step) for step in range(300)])
    assert ask(slept, X, full, 60_000) is None  # not before the second different Head
    request: Request | None = ask(slept, X, full, 62_000)
    for now_ms in range(62_000, 62_500, 50):
        while request:
            effects = [effect for part in answer(full, request) for effect in tell(slept, X, part, now_ms)]
            request = next_request(effects)
        request = next_request(slept.handle(Ticked(), now_ms))
    assert slept.replica.ledger.updates == 300 and slept.sync.sessions_completed == 5


def test_node__switched_off__has_no_work_and_is_finished_with_the_others() -> None:
    short = small_manifest(steps=3)
    paused = node(manifest=short)
    join(paused, X)
    paused.handle(TrainingSwitched(is_on=False), 5)
    paused.handle(WorkerReady(), 10)
    tell(paused, X, head_of(paused.replica.ledger, paused.replica.state_digest()), 20)
    finished = [paused.own_steps.is_finished]
    for step in range(short.steps):
        tell(paused, X, pushed(seal(short, 7, step)), 100 + step)
        finished.append(paused.own_steps.is_finished)
    assert finished == [False, False, False, True] and paused.own_steps.updates == 0


def test_node__own_record_of_the_step_comes_while_it_measures__signs_no_second_payload() -> None:
    """A restored backup: a late neighbour brings what this node signed in its former life. A bug once: the node
    voided its own slot, or, when the scalars were equal, an Ignore escaped from the core."""
    for former in (own(0, 77), own(0, -300)):
        training = node()
        join_live(training, X)
        training.handle(WorkerReady(), 10)
        tell(training, X, pushed(former), 20)
        effects = training.handle(EstimateFinished(step=0, scalars=(-300,)), 1_000)
        assert not any(isinstance(effect, StoreRecords) for effect in effects)
        assert (training.replica.ledger.void_slots, training.own_steps.updates, training.own_steps.skipped) == (0, 0, 1)


def test_node__author_table_full__does_not_train_and_does_not_fail() -> None:
    """A bug once: the first volunteer beyond authors_max stopped with an Ignore that escaped from the core."""
    manifest = small_manifest(authors_max=1)
    full = node(manifest=manifest, records=[seal(manifest, 0, 0)])
    assert full.handle(WorkerReady(), 10) == []
    racing = node(manifest=manifest)
    join_live(racing, X)
    assert racing.handle(WorkerReady(), 10) == start_effects(0, manifest)
    tell(racing, X, pushed(seal(manifest, 0, 0)), 20)
    assert racing.handle(EstimateFinished(step=0, scalars=(1,)), 1_000) == []
    assert (racing.own_steps.updates, racing.own_steps.skipped) == (0, 1)


def test_node__told_of_no_peers_and_joined_by_one__signs_nothing_before_it_is_live() -> None:
    """A danger once: only a node that knew of peers asked for its own highest round first. One whose backup was
    restored, and which others dialled, signed its old rounds again."""
    waiting = node()
    waiting.handle(WorkerReady(), 10)
    join(waiting, X, now_ms=20)
    assert waiting.handle(EstimateFinished(step=0, scalars=(-300,)), 1_000) == []
    assert without_heads(waiting.handle(Ticked(), 30_019)) == []
    assert without_heads(waiting.handle(Ticked(), 30_020)) == start_effects(1)  # that neighbour never answers


# --- flood


def test_node__new_record__is_stored_then_sent_to_all_but_its_source() -> None:
    relay = node(is_training=False)
    join(relay, X, Y)
    record = seal(MANIFEST, 0, 0)
    assert tell(relay, X, pushed(record), 1_000) == [
        StoreRecords(records=(record,), is_own=False),
        SendMessage(peer=Y, message=pushed(record)),
    ]
    assert tell(relay, Y, pushed(record), 1_010) == []
    assert relay.intake.ignored == {"ALREADY_HELD": 1}


def test_node__copies_come__authors_at_work_are_looked_at_for_what_is_new_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = [seal(MANIFEST, author, 0) for author in range(3)]
    live, joining = node(expects_peers=True), node(expects_peers=True)
    join_live(live, X, Y)
    join(joining, X)
    frontier, horizon = Mock(return_value=0), Mock(return_value=39)
    monkeypatch.setattr(AuthorsAtWork, "frontier", frontier)
    monkeypatch.setattr(AuthorsAtWork, "horizon", horizon)
    for _ in range(2):
        tell(live, X, pushed(*records), 10)
        assert (frontier.call_count, horizon.call_count) == (0, 1)
    tell(joining, X, pushed(*records), 10)
    assert (frontier.call_count, horizon.call_count) == (1, 1)
    assert joining.replica.ledger.updates == live.replica.ledger.updates == 3


def test_node__records_within_one_flush_interval__travel_in_one_frame() -> None:
    relay = node(is_training=False)
    join(relay, X, Y)
    first, second, third = (seal(MANIFEST, 0, step) for step in range(3))
    tell(relay, X, pushed(first), 1_000)
    assert sent(tell(relay, X, pushed(second), 1_010), Records) == []
    assert sent(tell(relay, X, pushed(third), 1_020), Records) == []
    assert sent(relay.handle(Ticked(), 1_050), Records) == [(Y, pushed(second, third))]


def test_node__neighbour_shows_that_it_holds_a_record__is_not_told_of_it() -> None:
    relay = node(is_training=False)
    join(relay, X, Y)
    first, second = (seal(MANIFEST, 0, step) for step in range(2))
    tell(relay, X, pushed(first), 1_000)
    tell(relay, X, pushed(second), 1_010)
    tell(relay, Y, pushed(second), 1_020)
    assert sent(relay.handle(Ticked(), 1_100), Records) == []


def test_node__equivocation__stores_the_second_and_floods_the_pair_to_all_who_may_lack_it() -> None:
    relay = node(is_training=False)
    join(relay, X, Y)
    first, second = seal(MANIFEST, 0, 0, 1), seal(MANIFEST, 0, 0, 2)
    tell(relay, X, pushed(first), 1_000)
    effects = tell(relay, Y, pushed(second), 2_000)
    assert effects == [
        StoreRecords(records=(second,), is_own=False),
        SendMessage(peer=X, message=pushed(first, second)),
        SendMessage(peer=Y, message=pushed(first)),  # Y sent the second and may never have seen the first
    ]
    assert not any(isinstance(effect, DropPeer) for effect in effects)


def test_node__bad_record_in_the_middle_of_a_frame__keeps_those_before_and_drops_the_peer() -> None:
    relay = node(is_training=False)
    join(relay, X, Y)
    good, bad = seal(MANIFEST, 0, 0), seal(MANIFEST, 0, 1)[:-64] + bytes(64)
    effects = tell(relay, X, pushed(good, bad, seal(MANIFEST, 0, 2)), 1_000)
    assert effects[0] == StoreRecords(records=(good,), is_own=False)
    assert isinstance(effects[1], DropPeer) and effects[1].peer == X and "signature" in effects[1].reason
    assert effects[2:] == [SendMessage(peer=Y, message=pushed(good))]
    assert (relay.replica.ledger.updates, relay.rejected) == (1, {"SIGNATURE": 1})


def test_node__messages_still_on_their_way_from_a_dropped_peer__are_passed_over() -> None:
    relay = node(is_training=False)
    join(relay, X, Y)
    tell(relay, X, Records(request=0, data=b"x"), 1_000)
    assert tell(relay, X, pushed(seal(MANIFEST, 0, 0)), 1_000) == []
    assert tell(relay, X, SpansRequest(request=1), 1_000) == []
    assert {peer for peer, _ in sent(relay.handle(Ticked(), 9_000), Head)} == {Y}
    relay.handle(PeerLeft(peer=X), 21_000)
    join(relay, X, now_ms=22_000)
    assert len(tell(relay, X, SpansRequest(request=1), 22_001)) == 1


@pytest.mark.parametrize("message", [Ping(nonce=1), Records(request=0, data=b"x")], ids=["not-for-the-core", "torn"])
def test_node__message_no_honest_node_sends__drops_the_peer(message: Message) -> None:
    relay = node(is_training=False)
    join(relay, X)
    effects = tell(relay, X, message, 1_000)
    assert len(effects) == 1 and isinstance(effects[0], DropPeer)


def test_node__flood_of_too_early_records__is_ignored_without_growing() -> None:
    live = node(is_training=False, manifest=small_manifest(steps=2_000))
    join(live, X)
    tell(live, X, head_of(live.replica.ledger, live.replica.state_digest()), 500)
    manifest = live.manifest
    records = [seal(manifest, author, 1_999)[:-64] + bytes(64) for author in range(200)]
    assert tell(live, X, pushed(*records), 1_000) == []
    assert (live.intake.ignored, live.replica.ledger.updates) == ({"TOO_EARLY": 200}, 0)


# --- heads


def test_node__neighbour_joins__is_told_the_head_now_and_every_two_seconds() -> None:
    relay = node(is_training=False)
    head = head_of(relay.replica.ledger, relay.replica.state_digest())
    assert relay.handle(PeerJoined(peer=X), 100) == [SendMessage(peer=X, message=head)]
    assert relay.handle(Ticked(), 100 + timings.HEAD_INTERVAL_MS - 1) == []
    assert relay.handle(Ticked(), 100 + timings.HEAD_INTERVAL_MS) == [SendMessage(peer=X, message=head)]
