"""When a node may leave: nobody has work, and all hold the same (SPEC 9.6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocol import timings
from protocol.events import EstimateFinished, PeerJoined, PeerLeft, SendMessage, Ticked, WorkerReady
from protocol.ledger.ledger import Ledger
from protocol.limits import WORK_DISTANCE_MAX
from protocol.node.end_of_run import Ending
from protocol.node.node import Node
from protocol.wire import Head, PeerId, Ping
from tests.simulation.scripted import scripted_network
from tests.support.ledgers import seal
from tests.support.manifests import small_manifest
from tests.support.node_cores import OTHER_STATE, X, Y, head_of, join, node, own, pushed, tell

SHORT = small_manifest(steps=1)


def finished(*peers: PeerId, expects_peers: bool = False) -> Node:
    """A node that has made the only step of its run, and has these neighbours."""
    made = node(manifest=SHORT, expects_peers=expects_peers)
    made.handle(WorkerReady(), 10)
    made.handle(EstimateFinished(step=0, scalars=(5,)), 20)
    join(made, *peers, now_ms=20)
    return made


def same(target: Node, peer: PeerId, work_distance: int, now_ms: int) -> None:
    """The neighbour says that it holds what the node holds."""
    tell(target, peer, head_of(target.replica.ledger, target.replica.state_digest(), work_distance), now_ms)


def ending(target: Node) -> Ending:
    """As it is now."""
    return target.end.ending


def distance(target: Node) -> int:
    """As it is now."""
    return target.end.ending.work_distance


def distances_told(target: Node, now_ms: int) -> dict[PeerId, int]:
    """What the node says to whom at the next tick."""
    effects = target.handle(Ticked(), now_ms)
    sent = [effect for effect in effects if isinstance(effect, SendMessage) and isinstance(effect.message, Head)]
    return {effect.peer: effect.message.work_distance for effect in sent if isinstance(effect.message, Head)}


def test_end__head_of_a_peer_that_was_dropped__is_no_occasion_to_tell_the_distance() -> None:
    told = finished(X, Y)
    same(told, Y, 5, 30)
    tell(told, X, Ping(nonce=1), 40)
    assert tell(told, X, head_of(told.replica.ledger, OTHER_STATE), 200) == []
    assert distances_told(told, 210) == {Y: 6}


def test_end__node_alone__is_over_at_once() -> None:
    alone = finished()
    alone.handle(Ticked(), 30)
    assert ending(alone).is_over and ending(alone).equal_peers == 0


def test_end__peers_expected_and_none_met__is_not_over_but_given_up_after_half_a_minute() -> None:
    waiting = finished(expects_peers=True)
    waiting.handle(WorkerReady(), timings.FIRST_SYNC_TIMEOUT_MS)  # it signs without peers only after that time
    waiting.handle(EstimateFinished(step=0, scalars=(5,)), 40_000)
    waiting.handle(Ticked(), 40_010)
    assert waiting.own_steps.is_finished and not ending(waiting).is_over and not ending(waiting).is_given_up
    waiting.handle(Ticked(), 40_010 + timings.FIRST_SYNC_TIMEOUT_MS)
    assert not ending(waiting).is_over and ending(waiting).is_given_up


def test_end__neighbour_with_another_root__is_waited_for() -> None:
    """A fault once: a node left after 5 s of quiet, whatever its neighbours held; two nodes ended with 6 and 8 updates,
    both with exit code 0."""
    leaving = finished(X, Y)
    same(leaving, X, WORK_DISTANCE_MAX, 30)
    leaving.handle(Ticked(), 40)
    assert (ending(leaving).equal_peers, ending(leaving).differing_peers) == (1, 1)
    assert distance(leaving) == 1 and not ending(leaving).is_over
    same(leaving, Y, WORK_DISTANCE_MAX, 50)
    assert ending(leaving).is_over and ending(leaving).equal_peers == 2


def test_end__neighbour_knows_of_work_further_away__is_waited_for_however_quiet_it_is() -> None:
    """A slow author's first update comes after all others have finished: nobody but its neighbours has heard of it."""
    leaving = finished(X)
    for told in range(WORK_DISTANCE_MAX):
        same(leaving, X, told, 30 + 10_000 * told)
        assert distance(leaving) == told + 1
        assert ending(leaving).is_over == (told == WORK_DISTANCE_MAX - 1)
        leaving.handle(Ticked(), 40 + 10_000 * told)


def test_end__author_at_work_lacks_its_last_round__is_awaited_until_it_falls_silent() -> None:
    long = small_manifest(steps=2)
    leaving = node(manifest=long)
    join(leaving, X)
    same(leaving, X, WORK_DISTANCE_MAX, 5)
    tell(leaving, X, pushed(seal(long, 0, 0)), 10)
    leaving.clock.resume_after(1)
    same(leaving, X, WORK_DISTANCE_MAX, 20)
    assert ending(leaving).awaited_authors == 1 and distance(leaving) == 1
    patience_ms = timings.END_INTERVALS * timings.STEP_WAIT_MS_MAX
    leaving.handle(Ticked(), 10 + patience_ms)
    assert not ending(leaving).is_over
    leaving.handle(Ticked(), 11 + patience_ms)
    assert ending(leaving).is_over


def test_end__no_work_of_its_own_beside_a_busy_author__says_one_at_once() -> None:
    """A fault once: a paused node said 0 while updates of its neighbour kept coming, since roots differ then. The
    neighbour, alone at work, took it for an author about to send its first update and waited half a minute for it."""
    paused = node(manifest=small_manifest(steps=9))
    join(paused, X)
    same(paused, X, 0, 5)
    paused.own_steps.switch(is_on=False)
    tell(paused, X, pushed(seal(small_manifest(steps=9), 0, 0)), 10)
    same(paused, X, 0, 20)
    assert ending(paused).awaited_authors == 1 and distance(paused) == 1


def test_end__neighbours_have_left_with_this_root__still_count_as_equal() -> None:
    leaving = finished(X, Y)
    same(leaving, X, 3, 30)
    leaving.handle(PeerLeft(peer=X, reason="left"), 40)
    leaving.handle(PeerLeft(peer=Y, reason="left without a word"), 40)
    leaving.handle(Ticked(), 50)
    assert ending(leaving).is_over and ending(leaving).equal_peers == 1


def test_end__strangers_come_and_leave_with_this_root_one_after_another__a_few_are_remembered() -> None:
    """A fault once: each was kept until the root changed, and the root of a run at rest never does."""
    resting = finished()
    for number in range(100):
        peer = PeerId(f"stranger {number}")
        join(resting, peer, now_ms=30)
        same(resting, peer, WORK_DISTANCE_MAX, 30)
        resting.handle(PeerLeft(peer=peer, reason="left"), 40)
    resting.handle(Ticked(), 50)
    assert ending(resting).is_over and ending(resting).equal_peers == 64


def test_end__update_comes_after_all_equal_neighbours_have_left__none_is_equal_any_more() -> None:
    long = small_manifest(steps=2)
    leaving = node(manifest=long)
    leaving.clock.resume_after(1)
    join(leaving, X, Y)
    same(leaving, X, WORK_DISTANCE_MAX, 30)
    leaving.handle(PeerLeft(peer=X, reason="left"), 40)
    tell(leaving, Y, pushed(seal(long, 1, 0)), 50)
    leaving.handle(PeerLeft(peer=Y, reason="left"), 60)
    leaving.handle(Ticked(), 70)
    assert ending(leaving).equal_peers == 0 and not ending(leaving).is_over


def test_end__distance_changes__all_neighbours_are_told_at_most_every_tenth_of_a_second() -> None:
    telling = finished(X, Y)
    distances_told(telling, 2_500)
    for peer in (X, Y):
        same(telling, peer, 4, 2_510)
    assert distances_told(telling, 2_520) == {}  # told when Y's head came
    same(telling, X, 6, 2_550)
    same(telling, Y, 6, 2_551)
    assert distances_told(telling, 2_560) == {}
    assert 0 < telling.rest_ms() <= 100
    assert distances_told(telling, 2_610) == {X: 7, Y: 7}


def test_end__neighbour_lies_for_ever__is_given_up_after_half_an_hour() -> None:
    held = finished(X)
    held.handle(Ticked(), 30)
    for now_ms in range(1_000, timings.END_WAIT_MS_MAX, 100_000):
        same(held, X, 0, now_ms)
        assert not ending(held).is_over
    assert not ending(held).is_given_up
    held.handle(Ticked(), timings.END_WAIT_MS_MAX + 1_000)
    assert ending(held).is_given_up and not ending(held).is_over


def test_end__neighbour_lies_and_there_is_more_and_more_to_sum__half_an_hour_does_not_begin_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault once: an author who made old slots void every 25 minutes kept all others for two hours."""
    held = finished(X)
    for now_ms in range(1_000, timings.END_WAIT_MS_MAX, 100_000):
        same(held, X, 0, now_ms)
        with monkeypatch.context() as busy:
            busy.setattr(type(held.replica), "is_summed", property(lambda _replica: False))
            held.handle(Ticked(), now_ms + 50_000)
            assert not ending(held).is_given_up and distance(held) == 0
    held.handle(Ticked(), timings.END_WAIT_MS_MAX + 1_000)
    assert ending(held).is_given_up


def test_end__restarted_after_its_last_round_and_nobody_answers__is_given_up_after_half_an_hour_too() -> None:
    """A fault once: as it was never live it counted as catching up, and the half hour did not begin."""
    silent_ms = timings.FIRST_SYNC_TIMEOUT_MS
    restarted = node(manifest=SHORT, records=[own(0, manifest=SHORT)], reserved_step=0)
    join(restarted, X)
    tell(restarted, X, head_of(Ledger(SHORT), OTHER_STATE, 9), 10)
    restarted.handle(Ticked(), silent_ms - 1)
    assert restarted.own_steps.is_finished and distance(restarted) == 0
    restarted.handle(Ticked(), silent_ms + 10)
    assert distance(restarted) == 1
    restarted.handle(Ticked(), silent_ms + 10 + timings.END_WAIT_MS_MAX)
    assert ending(restarted).is_given_up and not ending(restarted).is_over


def test_end__node_with_steps_to_make__says_nothing_but_zero() -> None:
    training = node()
    join(training, X)
    same(training, X, WORK_DISTANCE_MAX, 10)
    training.handle(WorkerReady(), 20)
    same(training, X, WORK_DISTANCE_MAX, 30)
    assert distance(training) == 0


def test_end__newcomer_without_a_head__holds_the_run_open() -> None:
    open_run = finished(X)
    same(open_run, X, WORK_DISTANCE_MAX, 30)
    assert ending(open_run).is_over
    open_run.handle(PeerJoined(peer=Y), 40)
    open_run.handle(Ticked(), 50)
    assert not ending(open_run).is_over
    same(open_run, Y, 0, 60)
    assert not ending(open_run).is_over and distance(open_run) == 1


def test_end__neighbours_differ_for_a_moment__distance_neither_rises_nor_falls() -> None:
    """Else every update on its way through a network of relays would make each of them tell its neighbours twice."""
    held = finished(X, Y)
    for peer in (X, Y):
        same(held, peer, 3, 30)
    tell(held, X, replace(head_of(held.replica.ledger, bytes(32), 7), root=bytes(32)), 40)
    assert ending(held).differing_peers == 1 and distance(held) == 4
    same(held, Y, 1, 50)
    assert distance(held) == 2


@pytest.mark.parametrize("is_ring", [False, True])
@pytest.mark.parametrize(
    "seed", [0, 1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
)
def test_network__paces_of_one_to_ten_and_a_slow_newcomer__whoever_may_leave_holds_what_all_hold_in_the_end(
    seed: int, is_ring: bool
) -> None:
    with scripted_network(seed=seed) as network:
        names = [f"node{number}" for number in range(6)]
        for number, name in enumerate(names):
            network.add(name, *names[max(0, number - 1) : number], estimate_ms=(100, 1_000, 300)[number % 3])
        if is_ring:
            network.connect(names[-1], names[0])
        network.run(2_000)
        names.append("slow")  # its first step takes longer than the whole run of the others
        network.add("slow", names[-2], expects_peers=True, estimate_ms=30_000)
        left: dict[str, bytes] = {}
        for _ in range(600):
            if set(left) == set(names):
                break
            network.run(500)
            over = [name for name in names if ending(network.node(name)).is_over]
            left |= {name: network.node(name).replica.ledger.root() for name in over if name not in left}
        assert set(left) == set(names)
        network.run(30_000)  # as long as the slowest step takes: nobody adds anything any more
        assert len(set(left.values())) == 1 and len(network.digests()) == 1
        assert {network.node(name).own_steps.updates > 0 for name in names} == {True}
