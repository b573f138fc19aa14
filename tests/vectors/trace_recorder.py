"""Plays a short story on a real node core and writes down every event and what followed: the traces' building block."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from protocol import limits
from protocol.crypto.keys import Signer
from protocol.events import (
    Effect,
    EstimateFinished,
    EstimateLost,
    EstimateSkipped,
    Event,
    FetchFailed,
    MessageArrived,
    PeerJoined,
    PeerLeft,
    SendMessage,
    SnapshotArrived,
    StatementSubmitted,
    Ticked,
    TrainingSwitched,
    WorkerReady,
)
from protocol.ledger.ledger import Ledger
from protocol.node.node import Node
from protocol.node.node_config import NodeConfig
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.sync.anti_entropy import Reply, Request, answer
from protocol.wire import Head, Message, PeerId, PullDone, PullRequest, Records
from sfnode.storage.stored_records import replay, replay_statements
from tests.vectors.notation import Case, case
from tests.vectors.trace_notation import Parts, add_parts, effect_row, event_row

ME = Signer(bytes(32))
X, Y, Z = PeerId("x"), PeerId("y"), PeerId("z")
_DISK = Path("disk of a trace")  # in error texts
OTHER_STATE = b"\7" * 32  # told by neighbours whose state nobody looks at


class Story:
    """One node from its start on. Time only goes forward; what is told to it is written down with what it does."""

    def __init__(
        self,
        name: str,
        manifest: Manifest,
        *,
        held: Sequence[bytes] = (),
        statements: Sequence[bytes] = (),
        **config: Any,
    ) -> None:
        """``held``, ``statements``: what lies on the node's disk; ``config``: of :class:`NodeConfig`."""
        self.name = name
        self.manifest = manifest
        self.config = NodeConfig(**{"first_request": 100, **config})
        self.now_ms = 0
        self.effects: list[Effect] = []  # of the last event
        self._replica = Replica(manifest)
        replay_statements(self._replica, statements, _DISK)
        replay(self._replica, enumerate(held), _DISK)
        self.node = Node(manifest, ME, self.config, self._replica)
        self._held, self._statements = list(held), list(statements)
        self._done: list[tuple[int, Event, list[Effect], dict[str, Any]]] = []
        self._limits: dict[str, int] = {}
        self._asked: dict[PeerId, Request] = {}
        self._known: dict[str, bool] = self._marks()

    # --- events

    def tick(self, at_ms: int, late_ms: int = 0) -> Story:
        """Time has passed."""
        return self.take(Ticked(late_ms=late_ms), at_ms)

    def ticks(self, *at_ms: int) -> Story:
        """Time has passed, several times."""
        for each in at_ms:
            self.tick(each)
        return self

    def worker_ready(self, at_ms: int) -> Story:
        """A worker is there."""
        return self.take(WorkerReady(), at_ms)

    def switch(self, at_ms: int, *, is_on: bool) -> Story:
        """The operator pauses training, or lets it go on."""
        return self.take(TrainingSwitched(is_on=is_on), at_ms)

    def join(self, at_ms: int, *peers: PeerId) -> Story:
        """Neighbours come."""
        for peer in peers:
            self.take(PeerJoined(peer=peer), at_ms)
        return self

    def leave(self, at_ms: int, peer: PeerId) -> Story:
        """A neighbour goes."""
        return self.take(PeerLeft(peer=peer), at_ms)

    def tell(self, at_ms: int, peer: PeerId, *messages: Message, is_last: bool = True) -> Story:
        """A neighbour says something."""
        for message in messages:
            self.take(MessageArrived(peer=peer, message=message), at_ms, is_last=is_last)
        return self

    def push(self, at_ms: int, peer: PeerId, *records: bytes, is_last: bool = True) -> Story:
        """A neighbour floods records, in one message."""
        return self.tell(at_ms, peer, Records(request=0, data=b"".join(records)), is_last=is_last)

    def same(self, at_ms: int, peer: PeerId, *, step: int = 0, work_distance: int = 0) -> Story:
        """A neighbour says that it holds the very same."""
        ledger, digest = self._replica.ledger, self._replica.state_digest()
        return self.tell(at_ms, peer, head_of(ledger, step=step, work_distance=work_distance, state_digest=digest))

    def estimated(self, at_ms: int, step: int, *scalars: int) -> Story:
        """The worker has measured a round; without scalars some that differ by step."""
        chosen = scalars or tuple((step + index) % 9 + 1 for index in range(self.manifest.method.scalars))
        return self.take(EstimateFinished(step=step, scalars=chosen), at_ms)

    def skipped(self, at_ms: int, step: int) -> Story:
        """The worker could not measure it."""
        return self.take(EstimateSkipped(step=step), at_ms)

    def lost(self, at_ms: int, step: int) -> Story:
        """The worker has died over it."""
        return self.take(EstimateLost(step=step), at_ms)

    def submit(self, at_ms: int, statement: bytes) -> Story:
        """Somebody at this machine has a statement."""
        return self.take(StatementSubmitted(statement=statement), at_ms)

    def snapshot_arrived(self, at_ms: int, data: bytes) -> Story:
        """A file has come."""
        return self.take(SnapshotArrived(data=data), at_ms)

    def fetch_failed(self, at_ms: int, sha256: str) -> Story:
        """Nobody had a file."""
        return self.take(FetchFailed(sha256=sha256), at_ms)

    def take(self, event: Event, at_ms: int, *, is_last: bool = True) -> Story:
        """Any event; ``is_last`` False: the next one waits already."""
        assert at_ms >= self.now_ms, f"{self.name}: {at_ms} comes after {self.now_ms}"
        self.now_ms = at_ms
        ignored = self._ignored()
        self.effects = self.node.handle(event, at_ms, is_last=is_last)
        more: dict[str, Any] = {} if is_last else {"waits": True}
        if news := self._ignored() - ignored:
            more["ignored"] = dict(sorted(news.items()))
        marks = self._marks()
        if changed := {name: is_so for name, is_so in marks.items() if self._known[name] is not is_so}:
            more["becomes"] = changed
        self._known = marks
        self._note_requests(event)
        self._done.append((at_ms, event, self.effects, more))
        return self

    def _ignored(self) -> Counter[str]:
        return self.node.intake.ignored + self.node.snapshots.ignored

    def _marks(self) -> dict[str, bool]:
        node, ending = self.node, self.node.end.ending
        return {
            "live": node.sync.is_live,
            "finished": node.own_steps.is_finished,
            "over": ending.is_over,
            "given_up": ending.is_given_up,
        }

    # --- dialogues

    def request(self, peer: PeerId) -> Request | None:
        """The request that the neighbour has not answered yet."""
        return self._asked.get(peer)

    def _note_requests(self, event: Event) -> None:
        if isinstance(event, MessageArrived) and isinstance(event.message, Reply):
            asked = self._asked.get(event.peer)
            if asked and asked.request == event.message.request:
                del self._asked[event.peer]
        for effect in self.effects:
            if isinstance(effect, SendMessage) and isinstance(effect.message, Request):
                self._asked[effect.peer] = effect.message

    def answer(
        self, at_ms: int, peer: PeerId, full: Ledger, *, rounds: int = 99, until: type[Message] | None = None
    ) -> Story:
        """The neighbour, who holds ``full``, answers what it is asked: ``rounds`` requests, or ``until`` such a one."""
        for _ in range(rounds):
            request = self.request(peer)
            if request is None or (until and isinstance(request, until)):
                break
            self.tell(at_ms, peer, *answer(full, request))
        return self

    def catch_up(self, at_ms: int, peer: PeerId, full: Ledger, *, step: int = 0) -> Story:
        """The neighbour tells its head and answers until it is asked for nothing more."""
        return self.tell(at_ms, peer, head_of(full, step=step)).answer(at_ms, peer, full)

    def until_pull(self, at_ms: int, peer: PeerId, full: Ledger, *, step: int = 0) -> Story:
        """The same, but the pull is not answered."""
        return self.tell(at_ms, peer, head_of(full, step=step)).answer(at_ms, peer, full, until=PullRequest)

    def pulled(self, at_ms: int, peer: PeerId, *records: bytes) -> Story:
        """The neighbour answers a pull with these records, and that was all."""
        request = self.request(peer)
        assert isinstance(request, PullRequest)
        frames = [Records(request=request.request, data=b"".join(records))] if records else []
        return self.tell(at_ms, peer, *frames, PullDone(request=request.request, records=len(records)))

    # --- the case

    def name_parts(self, parts: Parts) -> None:
        """Give every record and statement of this story a name."""
        for statement in self._statements:
            parts.add_statement(statement)
        for record in self._held:
            parts.add_record(record)
        record_bytes = self._replica.ledger.codec.record_bytes
        for _, event, effects, _ in self._done:
            for told in (event, *effects):
                add_parts(told, record_bytes, parts)

    def limited(self, **changed: int) -> AbstractContextManager[Story]:
        """While it lasts these limits of SPEC 10 have other values; the case says so."""
        self._limits |= changed
        return self._limited(changed)

    @contextmanager
    def _limited(self, changed: dict[str, int]) -> Iterator[Story]:
        before = {name: getattr(limits, name) for name in changed}
        try:
            _set(changed)
            yield self
        finally:
            _set(before)

    def case(self, name_of: Callable[[Manifest], str], parts: Parts) -> Case:
        """The trace, as it is written."""
        given: dict[str, Any] = {
            "manifest": name_of(self.manifest),
            "secret_seed": bytes(32).hex(),
            "config": self._config(),
            "limits": self._limits,
            "disk": {
                "statements": [parts.written(data) for data in self._statements],
                "records": [parts.written(data) for data in self._held],
            },
        }
        events = [
            {
                "at_ms": at_ms,
                "event": event_row(event, parts),
                **more,
                "effects": [effect_row(e, parts) for e in effects],
            }
            for at_ms, event, effects, more in self._done
        ]
        return case(self.name, "trace", given, {"events": events})

    def _config(self) -> dict[str, Any]:
        config = self.config
        return {
            "is_training": config.is_training,
            "expects_peers": config.expects_peers,
            "reserved_step": config.reserved_step,
            "first_request": config.first_request,
            "snapshot": config.snapshot.value,
            "snapshot_authors_min": config.snapshot_authors_min,
        }


def _set(values: dict[str, int]) -> None:
    for name, value in values.items():
        setattr(limits, name, value)


def head_of(ledger: Ledger, *, step: int = 0, work_distance: int = 0, state_digest: bytes = OTHER_STATE) -> Head:
    """The head of a neighbour that holds ``ledger``."""
    return Head(
        root=ledger.root(),
        state_digest=state_digest,
        updates=ledger.updates,
        step=step,
        work_distance=work_distance,
    )


def sha256_of(data: bytes) -> str:
    """64 hex digits."""
    return hashlib.sha256(data).hexdigest()
