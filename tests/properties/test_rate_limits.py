"""RateLimits: whatever peers ask, none gets more than its share, and a peer that asks little never waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from hypothesis import given, strategies as st

from protocol.crypto.hashing import Author
from protocol.events import MessageArrived, PeerJoined
from protocol.framing import frame
from protocol.limits import PULL_AUTHORS_MAX, PULL_BYTES_MAX
from protocol.wire import (
    CLASSES,
    Attestations,
    AuthorsRequest,
    FileRequest,
    Message,
    PayloadsRequest,
    PeerId,
    PeersRequest,
    Ping,
    PullRequest,
    Records,
    ShardsRequest,
    SpansRequest,
    WantedSlots,
    encode,
)
from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy import rate_limits as limits_module
from sfnode.network.policy.rate_limits import RateLimits, cost_us
from tests.support.network_nodes import HELLO, LOOPBACK, dial, network, running_host, start, until

ALL_AUTHORS = AuthorsRequest(request=1, span=0, shards=tuple(range(256)), after=bytes(32))
PULL = PullRequest(request=1, wanted=(WantedSlots(span=0, author=bytes(32), steps=b"\xff" * 128),) * PULL_AUTHORS_MAX)


# --- the pure part


def peer(number: int) -> PeerId:
    return PeerId(f"peer{number}")


def test_cost__every_request__has_one_and_no_other_message_has() -> None:
    requests: list[Message] = [
        SpansRequest(request=1),
        ShardsRequest(request=1, span=0),
        ALL_AUTHORS,
        PayloadsRequest(request=1, span=0, author=bytes(32)),
        PULL,
        PeersRequest(),
    ]
    assert all(0 < cost_us(request) <= bounds.ANSWERS_BURST_US / 10 for request in requests)
    assert cost_us(Ping(nonce=1)) == 0


def test_cost__messages_that_are_called_requests__all_have_one() -> None:
    """FileRequest: only observers may ask for it, and they pay by the byte."""
    named = {kind for kind in CLASSES if kind.__name__.endswith("Request")}
    assert set(limits_module._COST_US) == named - {FileRequest}


def test_cost__authors_of_one_shard__are_cheaper_than_of_all() -> None:
    one = AuthorsRequest(request=1, span=0, shards=(7,), after=bytes(32))
    assert 5 * cost_us(one) < cost_us(ALL_AUTHORS)


@given(
    gaps_ms=st.lists(st.integers(0, 2_000), min_size=1, max_size=200),
    costs=st.lists(st.integers(1, 5_000), min_size=200, max_size=200),
)
def test_rate_limits__one_peer_asks_for_anything__gets_no_more_than_burst_and_rate(
    gaps_ms: list[int], costs: list[int]
) -> None:
    rate_limits, now_s, answered_us = RateLimits(), 0.0, 0
    for gap_ms, cost in zip(gaps_ms, costs, strict=False):
        now_s += gap_ms / 1_000
        now_s += rate_limits.wait_s(peer(1), cost, now_s)
        answered_us += cost
        assert answered_us <= bounds.ANSWERS_BURST_US + now_s * bounds.ANSWERS_US_PER_S * 1.0001 + 1


@given(
    greedy=st.integers(1, 28), costs=st.lists(st.sampled_from([300, 1_200, 2_500, 4_500]), min_size=60, max_size=400)
)
def test_rate_limits__greedy_peers__an_honest_one_below_its_share_never_waits(greedy: int, costs: list[int]) -> None:
    rate_limits = RateLimits()
    next_s = dict.fromkeys(range(1, greedy + 1), 0.0)
    share = min(bounds.ANSWERS_US_PER_S, bounds.ANSWERS_ALL_US_PER_S / (greedy + 1))
    asked_us = 0
    for number in next_s:  # all are here before the honest one begins
        next_s[number] += rate_limits.wait_s(peer(number), 1, 0.0)
    for cost in costs:
        asked_us += cost
        now_s = asked_us / share
        assert rate_limits.wait_s(peer(0), cost, now_s) == 0.0
        for number, due_s in next_s.items():
            if due_s <= now_s:
                next_s[number] = now_s + rate_limits.wait_s(peer(number), 4_500, now_s)


def test_rate_limits__sixty_greedy_peers__together_get_no_more_than_all_may() -> None:
    """Long enough for the rate to show beside the burst."""
    check_together(peers=60, asked=300)


@given(peers=st.integers(1, 60), asked=st.integers(1, 40))
def test_rate_limits__greedy_peers_ask__together_get_no_more_than_all_may(peers: int, asked: int) -> None:
    check_together(peers, asked)


def check_together(peers: int, asked: int) -> None:
    rate_limits, end_s = RateLimits(), 20.0
    for number in range(peers):
        rate_limits.wait_s(peer(number), 1, 0.0)
    answered_us, next_s = 0, dict.fromkeys(range(peers), 0.0)
    for _ in range(asked * peers):
        number = min(next_s, key=next_s.__getitem__)
        now_s = next_s[number]
        if now_s > end_s:
            break
        next_s[number] = now_s + rate_limits.wait_s(peer(number), 4_500, now_s)
        answered_us += 4_500 if next_s[number] <= end_s else 0
    rate = min(bounds.ANSWERS_ALL_US_PER_S, peers * bounds.ANSWERS_US_PER_S)
    assert answered_us <= peers * (bounds.ANSWERS_BURST_US + 4_500) + rate * end_s * 1.01


def test_rate_limits__peers_come_and_go__bounded_and_those_gone_share_no_more() -> None:
    rate_limits = RateLimits()
    for number in range(1_000):
        rate_limits.wait_s(peer(number), bounds.ANSWERS_BURST_US, number / 100)
        rate_limits.ended(peer(number))
    assert len(rate_limits._buckets) <= bounds.ANSWERS_IDLE_S * 100 + 1
    assert rate_limits.wait_s(peer(1_000), bounds.ANSWERS_BURST_US, 10.0) == 0.0
    assert rate_limits.wait_s(peer(1_000), bounds.ANSWERS_US_PER_S, 10.0) == pytest.approx(1.0)


def test_rate_limits__peer_reconnects__finds_its_bucket_as_it_left_it() -> None:
    rate_limits = RateLimits()
    rate_limits.wait_s(peer(1), bounds.ANSWERS_BURST_US, 0.0)
    rate_limits.ended(peer(1))
    assert rate_limits.wait_s(peer(1), 6_000, 0.0) == pytest.approx(0.1)


def test_rate_limits__answers_take_longer_than_booked__what_they_took_is_owed() -> None:
    """Records that lie on the disk: a pull that is booked as 2.5 ms takes 57."""
    rate_limits, now_s, taken_s = RateLimits(), 0.0, 0.057
    for _ in range(20):
        now_s += rate_limits.wait_s(peer(1), cost_us(PULL), now_s)
        rate_limits.charge(peer(1), PULL, taken_s, now_s)
    earned_us = bounds.ANSWERS_BURST_US + now_s * bounds.ANSWERS_US_PER_S
    assert 19 * 1e6 * taken_s <= earned_us <= 20 * 1e6 * taken_s


def test_rate_limits__answer_is_quicker_than_booked__the_estimate_stays() -> None:
    rate_limits = RateLimits()
    rate_limits.wait_s(peer(1), bounds.ANSWERS_BURST_US, 0.0)
    rate_limits.charge(peer(1), PULL, 0.0, 0.0)
    rate_limits.charge(peer(1), Ping(nonce=1), 9.0, 0.0)  # nobody's answer
    assert rate_limits.wait_s(peer(1), 6_000, 0.0) == pytest.approx(0.1)


def test_rate_limits__peer_owes_for_long__is_not_forgotten_before_it_has_paid() -> None:
    """A disk that stalls for ten seconds: the peer is charged no more than it can pay before it looks dead."""
    rate_limits, now_s = RateLimits(), bounds.ANSWERS_IDLE_S + 0.5
    rate_limits.wait_s(peer(1), bounds.ANSWERS_BURST_US, 0.0)
    rate_limits.charge(peer(1), PULL, 30.0, 0.0)
    rate_limits.wait_s(peer(2), 1, now_s)
    assert rate_limits.wait_s(peer(1), bounds.ANSWERS_BURST_US, now_s) == pytest.approx(0.458, abs=1e-3)
    shared_us_per_s = bounds.ANSWERS_ALL_US_PER_S / (bounds.OUTBOUND_MAX + bounds.INBOUND_MAX)
    assert bounds.ANSWER_US_MAX / shared_us_per_s < bounds.DEAD_S / 2


# --- a greedy peer and an honest one at a real node


async def test_requests__first_is_not_handled_yet__the_second_is_not_handed_over() -> None:
    async with trio.open_nursery() as nursery, running_host(8, is_listening=False) as greedy:
        config = NetworkConfig(listen=(LOOPBACK,), neighbours_fixed=True)
        node = await start(nursery, network(1, config), is_reading=False)
        link = await dial(greedy, node)
        copies = Records(request=0, data=b"copies")  # pushed before each question
        await link.send_all(frame(encode(HELLO)) + (frame(encode(copies)) + frame(encode(ALL_AUTHORS))) * 9)
        unread = node.network.unread
        assert isinstance(await unread.receive(), PeerJoined)
        for number in range(3):
            with trio.fail_after(5):
                came = [await unread.receive(), await unread.receive()]
            assert [each.message for each in came if isinstance(each, MessageArrived)] == [copies, ALL_AUTHORS]
            node.network.conversation.handled(greedy.peer, copies, seconds=0.0, news=0)
            with trio.move_on_after(0.1) as waiting:
                await unread.receive()
            assert waiting.cancelled_caught, f"two questions at once, after {number}"
            node.network.conversation.handled(greedy.peer, ALL_AUTHORS, seconds=0.0, news=0)
        await link.aclose()
        nursery.cancel_scope.cancel()


async def test_requests__greedy_peer_asks_without_end__honest_one_is_served_as_if_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time plays no part: the budget never fills up again, so what is delivered is what the burst allows."""
    burst, questions = 10, 50
    monkeypatch.setattr(bounds, "ANSWERS_US_PER_S", 1e-3)
    monkeypatch.setattr(bounds, "ANSWERS_BURST_US", burst * cost_us(ALL_AUTHORS))
    async with trio.open_nursery() as nursery, running_host(8, is_listening=False) as greedy:
        node = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), neighbours_fixed=True)))
        honest = await start(nursery, network(2, NetworkConfig(bootstrap=node.addresses)))
        await until(honest.connected)

        def delivered(asker: PeerId, kind: type[Message]) -> int:
            received = [event for event in node.events if isinstance(event, MessageArrived)]
            return sum(event.peer == asker and isinstance(event.message, kind) for event in received)

        link = await dial(greedy, node)
        await link.send_all(frame(encode(HELLO)) + frame(encode(ALL_AUTHORS)) * 200)
        await until(lambda: delivered(greedy.peer, AuthorsRequest) == burst)
        for number in range(questions):  # one after the other, each worth a tenth of the honest one's own budget
            assert honest.network.sessions.send(node.peer, SpansRequest(request=number))
            await until(_is_more_than(lambda: delivered(honest.peer, SpansRequest), number))
        assert delivered(greedy.peer, AuthorsRequest) == burst
        await link.aclose()
        nursery.cancel_scope.cancel()


def _is_more_than(count: Callable[[], int], number: int) -> Callable[[], bool]:
    return lambda: count() > number


def test_pushed_cost__records_that_nobody_asked_for__count_as_a_kilobyte_each() -> None:
    assert limits_module.pushed_cost_bytes(Records(request=0, data=bytes(5 * 124)), 124) == 5 * (1_000 - 124)
    assert limits_module.pushed_cost_bytes(Records(request=0, data=bytes(4_000)), 4_000) == 0  # long ones cost more
    assert limits_module.pushed_cost_bytes(Records(request=7, data=bytes(5 * 124)), 124) == 5 * (1_000 - 124)
    assert limits_module.pushed_cost_bytes(Records(request=7, data=bytes(5 * 124)), 124, is_asked_for=True) == 0
    assert limits_module.pushed_cost_bytes(Records(request=0, data=bytes(5 * 124)), 0) == 0
    assert limits_module.pushed_cost_bytes(Ping(nonce=1), 124) == 0


def test_asked__records_named_as_an_answer__are_one_only_as_far_as_something_was_asked() -> None:
    """A fault once: a peer that put any number on what it pushed escaped the bound of 2,000 records a second."""
    question = PullRequest(request=7, wanted=(WantedSlots(span=0, author=Author(bytes(32)), steps=bytes(128)),))
    asked, answer = limits_module.Asked(), Records(request=7, data=bytes(PULL_BYTES_MAX // 2))
    assert not asked.take(answer)
    asked.sent(question)
    assert not asked.take(Records(request=0, data=bytes(124)))
    assert [asked.take(answer) for _ in range(3)] == [True, True, False]
    for _ in range(100):
        asked.sent(question)
    assert sum(asked.take(answer) for _ in range(100)) == 2 * bounds.OWED_BYTES_MAX // PULL_BYTES_MAX
    assert not asked.take(Ping(nonce=1))


def test_cost__attestations__count_as_a_check_of_a_signature_each() -> None:
    message = Attestations(attestations=(bytes(136),) * 3)
    costs = {limits_module.pushed_cost_bytes(message, record_bytes) for record_bytes in (0, 110)}
    assert costs == {3 * bounds.PUSHED_RECORD_COST_BYTES}
