"""Promises of the specification about what a node signs, asks and floods, over all its lives; part of the watch.

Whatever is watched here follows from the events that a node was given and the effects that it asked for; of the core
itself only the manifest, the author, the local choices and whether it is live are read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from itertools import product

from nacl.bindings import crypto_sign_open
from nacl.exceptions import BadSignatureError

from protocol import limits, timings
from protocol.crypto.hashing import Author
from protocol.events import (
    DropPeer,
    Event,
    MessageArrived,
    PeerJoined,
    PeerLeft,
    SendMessage,
    StartEstimate,
    StoreRecords,
    StoreStatements,
    Ticked,
)
from protocol.node.node import Node
from protocol.wire import Head, Message, PeerId, Records
from tests.simulation.holding import Handled, Life, Slot, require, slot_of

_SIGNATURE_BYTES = 64


@dataclass(slots=True)
class _Neighbour:
    """What one node owes a neighbour by the flood, and what both know that it knows (SPEC 8.3)."""

    owed_ms: dict[bytes, int] = field(default_factory=dict)  # payload -> since when
    known: set[bytes] = field(default_factory=set)  # it sent them, or was sent them
    told_ms: int | None = None  # when it was last told of any
    is_full: bool = False  # its queue has overflowed: until it is emptied nothing is owed, anti-entropy cures it

    def owe(self, payload: bytes, now_ms: int) -> None:
        """The neighbour must be told soon."""
        self.is_full = self.is_full or len(self.owed_ms) >= limits.PUSH_QUEUE_RECORDS_MAX
        if self.is_full:
            self.owed_ms.clear()
        else:
            self.owed_ms[payload] = now_ms


@dataclass(slots=True)
class _Process:
    """What was seen of one process."""

    life: Life
    since_ms: int
    met_ms: int | None = None  # when the first neighbour came
    has_heard: bool = False  # a head came: some neighbour has answered
    interval_ms: int = 50  # SPEC 8.3: for how long it may gather records
    neighbours: dict[PeerId, _Neighbour] = field(default_factory=dict)


class Promises:
    """Sees what one world's nodes are given and what they ask for."""

    def __init__(self) -> None:
        self.forgetful: set[bytes] = set()  # authors whose disk lost what was durable: SPEC 12 promises them less
        self._processes: dict[bytes, _Process] = {}  # by author
        self._durable: dict[Slot, bytes] = {}
        self._estimated: dict[bytes, int] = {}
        self._genuine: set[bytes] = set()

    def see(self, life: Life, node: Node, handled: Handled) -> None:
        """One event was handled."""
        event, effects, now_ms = handled.event, handled.effects, handled.now_ms
        process = self._processes.get(node.author)
        if process is None or process.life is not life:
            process = self._processes[node.author] = _Process(life=life, since_ms=now_ms)
        self._see_event(process, event, now_ms)
        stored = [record[:-_SIGNATURE_BYTES] for e in effects if isinstance(e, StoreRecords) for record in e.records]
        self._see_news(process, node, event, stored, now_ms)
        for effect in effects:
            match effect:
                case StoreRecords():
                    self._see_stored(node, effect)
                case StoreStatements():
                    _forget_excluded(process)
                case SendMessage():
                    self._see_sent(process, effect, node, handled)
                case DropPeer():
                    process.neighbours.pop(effect.peer, None)
                case StartEstimate():
                    self._check_has_asked(process, node, now_ms)
        for neighbour in process.neighbours.values() if handled.is_last else ():
            due_ms = now_ms - process.interval_ms
            late = [payload for payload, since_ms in neighbour.owed_ms.items() if since_ms <= due_ms]
            require(not late, "a record was stored and a neighbour never told of it")

    def see_own(self, record: bytes) -> None:
        """A node's own record is durable."""
        self._durable.setdefault(slot_of(record), record[:-_SIGNATURE_BYTES])

    def see_send(self, author: Author, node: Node, message: Message) -> None:
        """A message leaves. SPEC 9.2.2: the own update is durable before it is sent, whatever order the host keeps."""
        if not isinstance(message, Records) or author in self.forgetful:
            return
        for payload in _payloads(message.data, node):
            if slot_of(payload)[0] == author:
                require(self._durable.get(slot_of(payload)) == payload, "an own update was sent and is not durable")

    def see_estimate(self, author: Author, step: int) -> None:
        """A worker starts. SPEC 9.2.1: a reserved step is never estimated again, after a crash either."""
        if author not in self.forgetful:
            require(step > self._estimated.get(author, -1), f"step {step} was estimated twice, in two lives of a node")
            self._estimated[author] = step

    # --- records ------------------------------------------------------------------------------------------

    def _see_stored(self, node: Node, effect: StoreRecords) -> None:
        """SPEC 6.2, 9.2.2: stored records are genuine, and what an honest author signs is durable before it is sent."""
        for record in effect.records:
            require(self._is_genuine(record, node.manifest.run_id), "a record was stored that nobody has signed so")
            author = slot_of(record)[0]
            is_promised = author in self._processes and author not in self.forgetful and not effect.is_own
            is_durable = self._durable.get(slot_of(record)) == record[:-_SIGNATURE_BYTES]
            require(is_durable or not is_promised, "an honest author's record is about that it never made durable")

    def _is_genuine(self, record: bytes, run_id: bytes) -> bool:
        """Seed and signature, from the text of the specification and with libsodium alone."""
        if record not in self._genuine and _is_signed_so(record, run_id):
            self._genuine.add(record)
        return record in self._genuine

    def _check_has_asked(self, process: _Process, node: Node, now_ms: int) -> None:
        """SPEC 9.2.3: a node that knows of peers, or had one, signs nothing before one has told it where the run is."""
        since_ms = process.since_ms if process.met_ms is None else process.met_ms
        has_waited = now_ms - since_ms >= timings.FIRST_SYNC_TIMEOUT_MS
        is_alone = process.met_ms is None and not node.own_steps._config.expects_peers
        is_free = process.has_heard or has_waited or is_alone
        require(is_free, "a node that knows of peers began a step before any of them had answered")

    # --- the flood ----------------------------------------------------------------------------------------

    def _see_event(self, process: _Process, event: Event, now_ms: int) -> None:
        match event:
            case PeerJoined():
                process.met_ms = now_ms if process.met_ms is None else process.met_ms
                process.neighbours[event.peer] = _Neighbour()
            case PeerLeft():
                process.neighbours.pop(event.peer, None)
            case MessageArrived(message=Head()):
                process.has_heard = True
            case Ticked(late_ms=late_ms):
                process.interval_ms = _adapted(process.interval_ms, late_ms)

    def _see_news(self, process: _Process, node: Node, event: Event, stored: list[bytes], now_ms: int) -> None:
        """SPEC 8.3: a new record goes to all but its source, the first one of a newly void slot to all. In this order:
        the first ones while a frame is read, and what was new in it when all of it is stored. What a node pulled
        before it is live goes to nobody."""
        source = process.neighbours.get(event.peer) if isinstance(event, MessageArrived) else None
        waiting = list(stored)
        for payload in _frame(event, node) or stored:
            if payload in waiting:
                firsts = process.life.holding.payloads[slot_of(payload)].difference(waiting)
                for first, neighbour in product(firsts, process.neighbours.values()):
                    neighbour.owe(first, now_ms)
                waiting.remove(payload)
            elif source:
                source.owed_ms.pop(payload, None)  # it has shown that it holds the record
        is_news = node.sync.is_live or not _is_answer(event)
        for payload, neighbour in product(stored, process.neighbours.values()):
            if neighbour is source:
                neighbour.known.add(payload)
            elif is_news:
                neighbour.owe(payload, now_ms)

    def _see_sent(self, process: _Process, effect: SendMessage, node: Node, handled: Handled) -> None:
        message, neighbour = effect.message, process.neighbours.get(effect.peer)
        if neighbour is None or not isinstance(message, Records) or message.request:
            return
        require(handled.is_last, "a neighbour was told of records while a further event was waiting")
        rested_ms = process.interval_ms if neighbour.told_ms is None else handled.now_ms - neighbour.told_ms
        require(rested_ms == 0 or rested_ms >= process.interval_ms, "a neighbour was told of records too soon again")
        neighbour.told_ms = handled.now_ms
        for payload in _payloads(message.data, node):
            is_void = len(process.life.holding.payloads.get(slot_of(payload), ())) == 2
            is_news = payload not in neighbour.known or is_void
            require(is_news, "a neighbour was told of a record that it has sent, or told twice")
            neighbour.known.add(payload)
            neighbour.owed_ms.pop(payload, None)
        neighbour.is_full = False


def _adapted(interval_ms: int, late_ms: int) -> int:
    """SPEC 8.3: a tick has come so late."""
    return min(2 * interval_ms, 400) if late_ms > 25 else max(interval_ms - 25, 50)


def _forget_excluded(process: _Process) -> None:
    """Nobody is told of what does not count any more."""
    for neighbour in process.neighbours.values():
        for payload in [payload for payload in neighbour.owed_ms if process.life.holding.is_excluded(slot_of(payload))]:
            del neighbour.owed_ms[payload]


def _is_answer(event: Event) -> bool:
    """Whether the event brings records that were asked for."""
    return isinstance(event, MessageArrived) and isinstance(event.message, Records) and event.message.request != 0


def _frame(event: Event, node: Node) -> list[bytes]:
    """Payloads of the records that the event brings."""
    if isinstance(event, MessageArrived) and isinstance(event.message, Records):
        return _payloads(event.message.data, node)
    return []


def _payloads(data: bytes, node: Node) -> list[bytes]:
    size = node.replica.ledger.codec.record_bytes
    return [data[start : start + size - _SIGNATURE_BYTES] for start in range(0, len(data), size)]


def _is_signed_so(record: bytes, run_id: bytes) -> bool:
    payload, signature = record[:-_SIGNATURE_BYTES], record[-_SIGNATURE_BYTES:]
    author, step, seed = payload[:32], payload[32:36], payload[36:44]
    hashed = hashlib.sha256()
    for part in (b"sfnode/seed/1", run_id, author, step):
        hashed.update(len(part).to_bytes(4, "big") + part)
    try:
        crypto_sign_open(signature + b"sfnode/envelope1" + run_id + payload, author)
    except BadSignatureError:
        return False
    return hashed.digest()[:8] == seed
