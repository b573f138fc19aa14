"""Records that a neighbour pushes: copies cost it what they cost the node, and nobody waits behind many of them."""

from __future__ import annotations

import time

import pytest
import trio

from protocol.events import Event, MessageArrived, PeerJoined
from protocol.framing import frame
from protocol.limits import FRAME_BYTES_MAX
from protocol.wire import Authors, Message, PeerId, PeersRequest, PullRequest, Records, WantedSlots, encode
from sfnode.network import bounds
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.rate_limits import handling_cost_bytes, in_turns, pushed_cost_bytes
from sfnode.node.event_inbox import BYTES_TOGETHER, EVENTS_TOGETHER, next_events, open_inbox
from tests.support.network_nodes import HELLO, LOOPBACK, dial, network, running_host, start, until

RECORD_BYTES = 128
PEER = PeerId("somebody")


def pushed(count: int) -> Records:
    return Records(request=0, data=bytes(RECORD_BYTES * count))


def test_copies__take_five_times_as_long_as_booked__count_as_five_times_as_many() -> None:
    """Copies of records on the disk, each by another author, took 0.3 ms each: a neighbour had half a core."""
    records, usual_s = pushed(100), 100 * bounds.PUSHED_RECORD_S
    booked = len(records.data) + pushed_cost_bytes(records, RECORD_BYTES)
    assert booked + handling_cost_bytes(records, RECORD_BYTES, 5 * usual_s) == pytest.approx(5 * booked)
    assert handling_cost_bytes(records, RECORD_BYTES, 0.9 * usual_s) == 0
    assert handling_cost_bytes(PullRequest(request=1, wanted=()), RECORD_BYTES, 9.0) == 0, "questions have their own"


def test_answers__name_what_must_be_read_back__are_paid_like_copies() -> None:
    """Four strangers answered a node's own questions: its neighbours waited a second for each answer of theirs."""
    page = Authors(request=1, span=0, authors=(), is_last=True)
    assert handling_cost_bytes(page, RECORD_BYTES, 0.5) == pytest.approx(
        handling_cost_bytes(pushed(0), RECORD_BYTES, 0.5)
    )
    assert handling_cost_bytes(page, RECORD_BYTES, 0.5) > bounds.RECEIVE_BURST_BYTES


def test_copies__machine_stands_still__neighbour_has_paid_long_before_it_looks_dead() -> None:
    owed = handling_cost_bytes(pushed(1), RECORD_BYTES, 300.0)
    assert owed / bounds.RECEIVE_BYTES_PER_S < bounds.DEAD_S / 2


def test_in_turns__pushed_records__are_cut_and_answers_are_not() -> None:
    records = Records(request=0, data=bytes(range(256)) * (FRAME_BYTES_MAX // 512))
    turns = list(in_turns(records, RECORD_BYTES))
    assert all(isinstance(turn, Records) and turn.request == 0 for turn in turns)
    assert b"".join(turn.data for turn in turns if isinstance(turn, Records)) == records.data
    assert len(turns) == -(-len(records.data) // (bounds.PUSHED_TOGETHER * RECORD_BYTES))
    for whole in (pushed(0), pushed(1), Records(request=7, data=records.data)):
        assert list(in_turns(whole, RECORD_BYTES)) == [whole]
    assert list(in_turns(records, 0)) == [records], "before the run is known"


@pytest.mark.parametrize(
    ("message", "taken"),
    [
        (pushed(1), EVENTS_TOGETHER),
        (pushed(bounds.PUSHED_TOGETHER), 1),
        (pushed(bounds.PUSHED_TOGETHER // 2), 2),
        (PullRequest(request=1, wanted=(WantedSlots(span=0, author=bytes(32), steps=b"\xff"),)), 1),
    ],
)
async def test_inbox__what_takes_long__is_handled_in_a_turn_of_its_own(message: Records, taken: int) -> None:
    """32 messages of 256 copies each took two seconds in one turn: a joiner's handshake takes a dozen turns."""
    assert bounds.PUSHED_TOGETHER * RECORD_BYTES == BYTES_TOGETHER
    inbox_in, inbox_out = open_inbox()
    for _ in range(2 * EVENTS_TOGETHER):
        inbox_in.send_nowait(MessageArrived(peer=PEER, message=message))
    assert len(await next_events(inbox_out, 0.0)) == taken


async def test_session__its_copies_took_long__next_is_read_when_that_is_earned() -> None:
    async with trio.open_nursery() as nursery, running_host(8, is_listening=False) as greedy:
        config = NetworkConfig(listen=(LOOPBACK,), neighbours_fixed=True)
        node = await start(nursery, network(1, config, record_bytes=RECORD_BYTES), is_reading=False)
        unread = node.network.unread
        link = await dial(greedy, node)

        async def received() -> Event:
            with trio.fail_after(30):
                return await unread.receive()

        await link.send_all(frame(encode(HELLO)) + frame(encode(pushed(1))))
        assert isinstance(await received(), PeerJoined)
        assert isinstance(await received(), MessageArrived)
        # Its burst is two seconds' worth, and half a second of a core is 4.5 seconds' worth.
        node.network.conversation.handled(greedy.peer, pushed(1), seconds=0.5, news=0)
        began_s = trio.current_time()
        await link.send_all(frame(encode(pushed(1))))
        assert isinstance(await received(), MessageArrived)
        assert trio.current_time() - began_s > 2.0
        # What brought news is paid for by that.
        node.network.conversation.handled(greedy.peer, pushed(1), seconds=0.5, news=1)
        began_s = trio.current_time()
        await link.send_all(frame(encode(pushed(1))))
        assert isinstance(await received(), MessageArrived)
        assert trio.current_time() - began_s < 2.0
        await link.aclose()
        nursery.cancel_scope.cancel()


async def test_peers__list_takes_long__is_charged_for_what_it_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of long addresses took fifteen times as long as was booked for it."""
    charged: list[tuple[Message, float]] = []

    def charge(_self: object, _peer: PeerId, message: Message, seconds: float, _now_s: float) -> None:
        charged.append((message, seconds))

    monkeypatch.setattr("sfnode.network.policy.rate_limits.RateLimits.charge", charge)
    monkeypatch.setattr("sfnode.network.discovery.PeerExchange.answer", lambda *_: time.sleep(0.02))
    async with trio.open_nursery() as nursery, running_host(8, is_listening=False) as greedy:
        node = await start(nursery, network(1, NetworkConfig(listen=(LOOPBACK,), neighbours_fixed=True)))
        link = await dial(greedy, node)
        await link.send_all(frame(encode(HELLO)) + frame(encode(PeersRequest())))
        await until(lambda: any(isinstance(message, PeersRequest) for message, _ in charged))
        await link.aclose()
        nursery.cancel_scope.cancel()
    assert [seconds >= 0.02 for message, seconds in charged if isinstance(message, PeersRequest)] == [True]
