"""The daemon's inbox: what has come meanwhile is taken together, and what follows from it is carried out together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import trio

from protocol.events import Effect, Event, StoreRecords

INBOX_EVENTS_MAX = 256  # beyond it the readers of the network wait, and with them the senders
_EVENTS_TOGETHER = 32  # handled before the network and the timers get their turn again


def open_inbox() -> tuple[trio.MemorySendChannel[Event], trio.MemoryReceiveChannel[Event]]:
    """The two ends of an inbox."""
    return trio.open_memory_channel[Event](INBOX_EVENTS_MAX)


async def next_events(inbox: trio.MemoryReceiveChannel[Event], deadline_s: float) -> list[Event]:
    """What waits in the inbox, at most _EVENTS_TOGETHER; waits for the first until the deadline."""
    events: list[Event] = []
    await trio.lowlevel.checkpoint()
    if not inbox.statistics().current_buffer_used:
        with trio.move_on_at(deadline_s):
            events.append(await inbox.receive())
    with suppress(trio.WouldBlock):
        while len(events) < _EVENTS_TOGETHER:
            events.append(inbox.receive_nowait())
    return events


def joined(effects: Sequence[Effect]) -> list[Effect]:
    """The effects, with those that store records of others one after the other as one: a transaction costs 50 us."""
    joined: list[Effect] = []
    for effect in effects:
        last = joined[-1] if joined else None
        if isinstance(effect, StoreRecords) and isinstance(last, StoreRecords) and not (effect.is_own or last.is_own):
            joined[-1] = StoreRecords(records=(*last.records, *effect.records), is_own=False)
        else:
            joined.append(effect)
    return joined
