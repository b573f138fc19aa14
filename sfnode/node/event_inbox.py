"""The daemon's inbox: events that arrive during a turn are taken together, and so are their effects."""

from collections.abc import Sequence
from contextlib import suppress

import trio

from protocol.events import Effect, Event, MessageArrived, StoreRecords
from protocol.wire import AuthorsRequest, PullRequest, Records

INBOX_EVENTS_MAX = 256  # beyond it the network's readers wait, and so do the senders
EVENTS_TOGETHER = 32  # handled before the network and the timers run again
# Bytes of messages in one turn. The core handles as many bytes of fresh or old records in 3 to 15 ms.
BYTES_TOGETHER = 8_192


def open_inbox() -> tuple[trio.MemorySendChannel[Event], trio.MemoryReceiveChannel[Event]]:
    return trio.open_memory_channel[Event](INBOX_EVENTS_MAX)


async def next_events(inbox: trio.MemoryReceiveChannel[Event], deadline_s: float) -> list[Event]:
    """Return the events that wait in the inbox, at most one turn's; wait for the first until the deadline."""
    events: list[Event] = []
    await trio.lowlevel.checkpoint()
    if not inbox.statistics().current_buffer_used:
        with trio.move_on_at(deadline_s):
            events.append(await inbox.receive())
    with suppress(trio.WouldBlock):
        while len(events) < EVENTS_TOGETHER and sum(map(_bytes_of, events)) < BYTES_TOGETHER:
            events.append(inbox.receive_nowait())
    return events


def _bytes_of(event: Event) -> int:
    """Return the bytes of incoming records; a question that takes milliseconds counts as a whole turn."""
    match event:
        case MessageArrived(message=Records(data=data)):
            return len(data)
        case MessageArrived(message=PullRequest() | AuthorsRequest()):
            return BYTES_TOGETHER
    return 0


def joined(effects: Sequence[Effect]) -> list[Effect]:
    """Merge consecutive effects that store others' records: each transaction costs 50 us."""
    joined: list[Effect] = []
    for effect in effects:
        last = joined[-1] if joined else None
        if isinstance(effect, StoreRecords) and isinstance(last, StoreRecords) and not (effect.is_own or last.is_own):
            joined[-1] = StoreRecords(records=(*last.records, *effect.records), is_own=False)
        else:
            joined.append(effect)
    return joined
