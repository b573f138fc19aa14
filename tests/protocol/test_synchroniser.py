"""The node core and its sync sessions: no signature before the first one, and no fault of a peer that lasts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from protocol import timings
from protocol.events import (
    DropPeer,
    PeerJoined,
    PeerLeft,
    SendMessage,
    StartEstimate,
    StoreRecords,
    StoreStatements,
    Ticked,
    WorkerReady,
)
from protocol.sync.anti_entropy import answer
from protocol.wire import Head, PeerId, PullDone, Records, ShardsRequest, Spans, SpansRequest, Statements
from tests.support.ledgers import exclude, ledger_of, seal
from tests.support.manifests import small_manifest
from tests.support.node_cores import (
    MANIFEST,
    OTHER_STATE,
    X,
    Y,
    ask,
    head_of,
    join,
    join_live,
    next_request,
    node,
    other_head,
    own,
    pushed,
    sent,
    start_effects,
    tell,
    without_heads,
)

# --- first sync before signing


def test_node__expects_peers__signs_nothing_before_the_first_sync() -> None:
    joining = node(expects_peers=True)
    joining.handle(WorkerReady(), 10)
    join(joining, X, now_ms=20)
    record = seal(MANIFEST, 0, 0)
    full = ledger_of(MANIFEST, [record])
    effects = tell(joining, X, other_head(record), 30)
    while request := next((e.message for e in effects if isinstance(e, SendMessage)), None):
        assert not any(isinstance(effect, StartEstimate) for effect in effects)
        for message in answer(full, request):  # type: ignore[arg-type]
            effects = without_heads(tell(joining, X, message, 40))
        if joining.sync.is_live:
            break
    assert effects == start_effects(0)


def test_node__expects_peers_and_equal_root__starts_at_once() -> None:
    joining = node(expects_peers=True)
    joining.handle(WorkerReady(), 10)
    join(joining, X, now_ms=20)
    same = head_of(joining.replica.ledger, joining.replica.state_digest())
    assert tell(joining, X, same, 30) == start_effects(0)


def test_node__nobody_answers_for_thirty_seconds__goes_on_with_what_it_has() -> None:
    joining = node(expects_peers=True)
    joining.handle(WorkerReady(), 10)
    join(joining, X, now_ms=20)
    tell(joining, X, other_head(seal(MANIFEST, 0, 0)), 30)
    assert without_heads(joining.handle(Ticked(), 19 + timings.FIRST_SYNC_TIMEOUT_MS)) == []
    assert without_heads(joining.handle(Ticked(), 20 + timings.FIRST_SYNC_TIMEOUT_MS)) == start_effects(0)


def test_node__catching_up_takes_longer_than_thirty_seconds__still_signs_nothing() -> None:
    """A bug once: the time limit for "nobody answers" also ran while a neighbour answered, so that a node restored
    from a backup signed steps again before its own records had come back."""
    joining = node(expects_peers=True)
    joining.handle(WorkerReady(), 10)
    join(joining, X, now_ms=20)
    full = ledger_of(MANIFEST, [own(step, 900) for step in range(40)])
    effects = tell(joining, X, head_of(full, OTHER_STATE), 30)
    now_ms = 30
    while not joining.sync.is_live:
        request = next(e.message for e in effects if isinstance(e, SendMessage) and not isinstance(e.message, Head))
        now_ms += 9_000
        messages = answer(full, request)  # type: ignore[arg-type]
        joining.handle(Ticked(), now_ms - 1)
        for message in messages:
            effects = tell(joining, X, message, now_ms)
            assert not any(isinstance(effect, StartEstimate) for effect in effects) or joining.sync.is_live
    assert now_ms > timings.FIRST_SYNC_TIMEOUT_MS
    assert joining.own_steps.is_finished and joining.own_steps.updates == 0


def test_node__answer_of_the_wrong_kind_and_one_more__does_not_complete_the_sync() -> None:
    """A bug once: a session that had ended by a Reject took the next answer for its successful end."""
    joining = node(expects_peers=True)
    joining.handle(WorkerReady(), 10)
    join(joining, X, now_ms=20)
    (request,) = sent(tell(joining, X, other_head(seal(MANIFEST, 0, 0)), 30), SpansRequest)
    number = request[1].request  # type: ignore[attr-defined]
    assert isinstance(tell(joining, X, PullDone(request=number, records=0), 40)[0], DropPeer)
    assert tell(joining, X, Spans(request=number, statements=bytes(16), spans=()), 41) == []
    assert not joining.sync.is_live


def test_node__neighbours_min__waits_for_them_at_most_thirty_seconds() -> None:
    patient = node(neighbours_min=2)
    assert patient.handle(WorkerReady(), 10) == []
    join_live(patient, X)
    assert without_heads(patient.handle(Ticked(), 29_999)) == []
    assert without_heads(patient.handle(Ticked(), 30_000)) == start_effects(0)
    served = node(neighbours_min=2)
    served.handle(WorkerReady(), 10)
    join_live(served, X)
    assert without_heads(served.handle(PeerJoined(peer=Y), 30)) == start_effects(0)


# --- sessions


def test_sync__bucket_left_to_a_session_that_fails__does_not_count_as_held() -> None:
    """A bug once: Y's session skipped what X was about to send, X went away, Y's came to its end, and the node signed
    without having seen its own record that both hold."""
    manifest = small_manifest(epoch_steps=512, clip=100, steps=2_048)
    joining = node(manifest=manifest, expects_peers=True)
    joining.handle(WorkerReady(), 10)
    join(joining, X, Y, now_ms=20)
    full = ledger_of(manifest, [own(3, manifest=manifest), seal(manifest, 0, 1_500)])
    assert ask(joining, X, full, 30) is not None
    request = next_request(tell(joining, Y, head_of(full, OTHER_STATE), 40))
    while request and not (isinstance(request, ShardsRequest) and request.span == 1):
        request = next_request(tell(joining, Y, answer(full, request)[0], 50))
    joining.handle(PeerLeft(peer=X), 60)
    while request:
        effects = [effect for message in answer(full, request) for effect in tell(joining, Y, message, 70)]
        request = next_request(effects)
    assert joining.replica.ledger.updates == 1 and not joining.sync.is_live
    pull = ask(joining, Y, full, 5_000)
    assert pull is not None
    for message in answer(full, pull):
        tell(joining, Y, message, 5_010)
    assert joining.replica.ledger.updates == 2 and joining.sync.is_live


def test_sync__peer_that_joins_again_without_having_left__leaves_no_claims_behind() -> None:
    joining = node(is_training=False)
    join(joining, X, Y)
    full = ledger_of(MANIFEST, [seal(MANIFEST, 0, 0)])
    assert ask(joining, X, full, 30) is not None
    join(joining, X, now_ms=40)
    assert ask(joining, Y, full, 50) is not None


def test_sync__peer_never_answers__is_given_up_and_rests_longer_each_time() -> None:
    joining = node(is_training=False)
    join(joining, X)
    now_ms = 0
    rests: list[int] = []
    for _ in range(8):
        while not sent(tell(joining, X, other_head(seal(MANIFEST, 0, 0)), now_ms), SpansRequest):
            now_ms += 500
        started_ms = now_ms
        joining.handle(Ticked(), now_ms + timings.REQUEST_TIMEOUT_MS - 1)
        assert joining.sync.sessions_failed == len(rests)
        now_ms += timings.REQUEST_TIMEOUT_MS
        joining.handle(Ticked(), now_ms)
        rests.append(started_ms)
    pauses = [after - before - timings.REQUEST_TIMEOUT_MS for before, after in pairwise(rests)]
    assert pauses == [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def test_sync__late_answer_to_a_request_given_up__is_nobodys_fault() -> None:
    joining = node(is_training=False)
    join(joining, X)
    (request,) = sent(tell(joining, X, other_head(seal(MANIFEST, 0, 0)), 0), SpansRequest)
    joining.handle(Ticked(), timings.REQUEST_TIMEOUT_MS)
    number = request[1].request  # type: ignore[attr-defined]
    assert without_heads(tell(joining, X, Spans(request=number, statements=bytes(16), spans=()), 10_001)) == []


def test_sync__records_and_statements_that_nobody_asked_for__are_taken_in_and_judged() -> None:
    """SPEC 8.4.1: late is nobody's fault, but what is forged is."""
    asked = node(is_training=False)
    join(asked, X, Y)
    record, statement = seal(MANIFEST, 0, 0), exclude(MANIFEST, 1, 3)
    assert StoreRecords(records=(record,), is_own=False) in tell(asked, X, Records(request=77, data=record), 10)
    told = Statements(request=77, statements=(statement,), is_last=True)
    assert StoreStatements(statements=(statement,)) in tell(asked, X, told, 20)
    forged = Records(request=77, data=seal(MANIFEST, 0, 1)[:-64] + bytes(64))
    assert any(isinstance(effect, DropPeer) for effect in tell(asked, X, forged, 30))
    untrue = Statements(request=77, statements=(exclude(MANIFEST, 1, 2)[:-64] + bytes(64),), is_last=True)
    assert any(isinstance(effect, DropPeer) for effect in tell(asked, Y, untrue, 40))


def test_sync__records_under_the_number_of_another_question__are_no_fault() -> None:
    joining = node(is_training=False)
    join(joining, X)
    record = seal(MANIFEST, 0, 0)
    ((_, request),) = sent(tell(joining, X, other_head(record), 0), SpansRequest)
    effects = tell(joining, X, Records(request=request.request, data=record), 10)  # type: ignore[attr-defined]
    assert without_heads(effects) == [StoreRecords(records=(record,), is_own=False)]


def test_sync__live_node__asks_only_when_the_difference_lasts() -> None:
    live = node(is_training=False)
    join(live, X)
    tell(live, X, head_of(live.replica.ledger, live.replica.state_digest()), 100)
    assert live.sync.is_live
    other = other_head(seal(MANIFEST, 0, 0))
    assert tell(live, X, other, 200) == []
    assert len(sent(tell(live, X, other, 2_200), SpansRequest)) == 1


def test_sync__live_node_was_away_for_a_thousand_steps__catches_up_in_one_session() -> None:
    """A bug once: the horizon followed the own frontier alone, and each session brought 64 steps."""
    manifest = small_manifest(epoch_steps=512, clip=100, steps=2_000)
    away = node(manifest=manifest, is_training=False)
    join(away, X)
    tell(away, X, head_of(away.replica.ledger, away.replica.state_digest()), 100)
    assert away.sync.is_live
    full = ledger_of(manifest, [seal(manifest, 0, step) for step in range(0, 1_000, 50)])
    ahead = replace(head_of(full, OTHER_STATE), step=950)
    tell(away, X, ahead, 60_000)
    request = next_request(tell(away, X, ahead, 62_000))
    while request:
        effects = [effect for message in answer(full, request) for effect in tell(away, X, message, 62_010)]
        request = next_request(effects)
    assert away.replica.ledger.root() == full.root()


def test_horizon__one_neighbour_of_three_says_the_run_is_far_ahead__does_not_move() -> None:
    manifest = small_manifest(epoch_steps=512, clip=100, steps=2_000)
    live = node(manifest=manifest, is_training=False)
    liar = PeerId("liar")
    join(live, X, Y, liar)
    same = head_of(live.replica.ledger, live.replica.state_digest())
    for peer, step in ((X, 0), (Y, 0), (liar, 1_900)):
        tell(live, peer, replace(same, step=step), 100)
    tell(live, liar, pushed(seal(manifest, 0, 1_900)), 200)
    assert live.intake.ignored == {"TOO_EARLY": 1}


def test_horizon__behind_together_with_a_neighbour__does_not_hold_back_what_a_third_one_has() -> None:
    """Found by the simulation: two nodes on an island were 20 rounds behind. The one at the bridge took the lower of
    its two neighbours' frontiers for the run's, asked for nothing beyond it, and both stayed behind."""
    manifest = small_manifest(epoch_steps=512, clip=100, steps=2_000)
    bridge = node(manifest=manifest, is_training=False)
    join(bridge, X, Y)
    same = head_of(bridge.replica.ledger, bridge.replica.state_digest())
    tell(bridge, X, same, 100)
    tell(bridge, Y, same, 100)
    full = ledger_of(manifest, [seal(manifest, 0, step) for step in range(1_500, 1_520)])
    ahead = replace(head_of(full, OTHER_STATE), step=1_510)
    tell(bridge, Y, ahead, 2_000)
    request = next_request(tell(bridge, Y, ahead, 4_000))
    while request is not None:
        effects = [effect for message in answer(full, request) for effect in tell(bridge, Y, message, 4_010)]
        request = next_request([effect for effect in effects if isinstance(effect, SendMessage) and effect.peer == Y])
    assert bridge.replica.ledger.root() == full.root()


def test_horizon__most_authors_left_long_ago_and_all_are_silent_now__does_not_hold_back_what_the_last_one_did() -> None:
    """Found by the simulation: three of four authors had left after ten rounds. A relay lost its network while the last
    one went on; after a minute of silence the frontier of everybody was theirs again, 90 rounds below what the relay
    held itself, and nothing that it lacked was within 64 rounds of it."""
    manifest = small_manifest(epoch_steps=512, clip=100, steps=2_000)
    left = [seal(manifest, author, step) for author in range(3) for step in range(10)]
    relay = node(manifest=manifest, records=left + [seal(manifest, 3, step) for step in range(100)], is_training=False)
    join(relay, X)
    tell(relay, X, head_of(relay.replica.ledger, relay.replica.state_digest()), 100)
    full = ledger_of(manifest, left + [seal(manifest, 3, step) for step in range(300)])
    ahead = replace(head_of(full, OTHER_STATE), step=9)
    for now_ms in range(100_000, 120_000, 2_000):
        request = next_request(tell(relay, X, ahead, now_ms))
        while request is not None:
            effects = [effect for message in answer(full, request) for effect in tell(relay, X, message, now_ms)]
            request = next_request(effects)
    assert relay.replica.ledger.root() == full.root()


def test_sync__records_that_a_joiner_pulled__are_not_flooded_to_its_other_neighbours() -> None:
    """A joiner sent 15 MB for the 5 MB that it fetched: to neighbours who had them."""
    joining = node(is_training=False)
    join(joining, X, Y)
    records = [seal(MANIFEST, 0, step) for step in range(5)]
    full = ledger_of(MANIFEST, records)
    pull = ask(joining, X, full, 30)
    assert pull is not None
    effects = [effect for message in answer(full, pull) for effect in tell(joining, X, message, 40)]
    effects += joining.handle(Ticked(), 500)
    assert joining.replica.ledger.updates == 5 and joining.sync.is_live
    assert sent(effects, Records) == []
    assert [peer for peer, _ in sent(tell(joining, X, pushed(seal(MANIFEST, 0, 5)), 600), Records)] == [Y]
