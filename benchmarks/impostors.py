"""Peers that lie or stall: a real node core whose messages are changed on the way out. Its ledger is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from protocol.events import Effect, Event, SendMessage
from protocol.limits import SPAN_STEPS, STEPS_MAX
from protocol.node import Node
from protocol.wire import Authors, Head, Message, Payloads, PullDone, Records, Shards, Spans

Bend = Callable[[Message], Message | None]  # None: says nothing
_ALL_STEPS = b"\xff" * (SPAN_STEPS // 8)


class Impostor:
    """Behaves like the node inside, except for what it says."""

    def __init__(self, node: Node, bend: Bend) -> None:
        self._node = node
        self._bend = bend

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """The node's effects, with the messages changed."""
        effects: list[Effect] = []
        for effect in self._node.handle(event, now_ms):
            if not isinstance(effect, SendMessage):
                effects.append(effect)
            elif message := self._bend(effect.message):
                effects.append(replace(effect, message=message))
        return effects


def wrong_digests(message: Message) -> Message | None:
    """Every digest, payload hash and frontier is false; the records are real."""
    match message:
        case Head():
            return replace(message, root=_other(message.root), updates=message.updates * 10, step=STEPS_MAX - 1)
        case Spans():
            return replace(message, spans=tuple(replace(part, digest=_other(part.digest)) for part in message.spans))
        case Shards():
            return replace(message, shards=tuple(replace(part, digest=_other(part.digest)) for part in message.shards))
        case Authors():
            return replace(
                message, authors=tuple(replace(part, digest=_other(part.digest)) for part in message.authors)
            )
        case Payloads():
            return replace(message, hashes=_other(message.hashes))
        case _:
            return message


def empty_promises(message: Message) -> Message | None:
    """Claims every slot of every author it knows, and sends nothing of it."""
    match message:
        case Head():
            return replace(message, root=_other(message.root), updates=message.updates * 10)
        case Spans() | Shards():
            return wrong_digests(message)
        case Authors():
            void = bytes(len(_ALL_STEPS))
            listed = (replace(part, valid=_ALL_STEPS, void=void, digest=bytes(16)) for part in message.authors)
            return replace(message, authors=tuple(listed))
        case Records():
            return None
        case PullDone():
            return replace(message, records=0)
        case _:
            return message


def garbage(message: Message) -> Message | None:
    """Sends noise of the right length in place of what it is asked for."""
    if isinstance(message, Records) and message.request != 0:
        return replace(message, data=_other(message.data))
    return message


def stalls(message: Message) -> Message | None:
    """Answers every question and never sends a record: whoever asks it has claimed the work, and waits."""
    return None if isinstance(message, Records | PullDone) else message


def _other(data: bytes) -> bytes:
    return bytes(byte ^ 0xFF for byte in data)
