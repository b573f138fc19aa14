"""Plays what neighbours say on a real synchroniser and its replica, and writes down what they are asked."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from protocol.errors import Ignore, Reject
from protocol.events import SendMessage
from protocol.ledger.ledger import Ledger
from protocol.run.manifest import Manifest
from protocol.state.replica import Replica
from protocol.sync.anti_entropy import answer
from protocol.sync.comparison_schedule import Synchroniser
from protocol.wire import Head, Message, PeerId, Records, Statements, decode_untrusted, encode
from tests.vectors.notation import Case, case

_NOW_MS = 0  # no time passes


class Asking:
    """One node that asks, and the events so far."""

    def __init__(
        self,
        manifest: Manifest,
        records: Sequence[bytes] = (),
        statements: Sequence[bytes] = (),
        *,
        horizon: int | None = None,
        last_request: int = 0,
    ) -> None:
        self._given: dict[str, object] = {"horizon_step": horizon, "last_request": last_request}
        self._given |= {"records": [each.hex() for each in records], "statements": [each.hex() for each in statements]}
        self._horizon = horizon
        self.replica = Replica(manifest)
        for statement in statements:
            self.replica.add_statement(statement)
        for record in records:
            self.replica.add(record)
        self.sync = Synchroniser(self.replica.ledger, last_request)
        self._told: list[dict[str, object]] = []
        self._found: list[dict[str, object]] = []
        self.asked: Message | None = None  # by the last event

    def hear(self, *messages: Message, of: str = "a", expect: str | None = None) -> Asking:
        """A neighbour says this; ``expect``: the reason for which the last of it is refused."""
        if not self.sync.is_open(PeerId(of)):
            self.sync.open(PeerId(of))
        for message in messages:
            self._told.append({"from": of, "message": encode(message).hex()})
            self._found.append(self._heard(PeerId(of), message))
        assert self._found[-1]["reason"] == expect, (self._found[-1], expect)
        return self

    def hear_all(self, other: Ledger, *, of: str = "a", requests_max: int = 100) -> Asking:
        """The neighbour holds ``other`` and answers honestly, until nothing more is asked or so many requests."""
        while self.asked is not None and requests_max > 0:
            requests_max -= 1
            self.hear(*answer(other, self.asked), of=of)  # type: ignore[arg-type]
        return self

    def leave(self, of: str) -> Asking:
        """A neighbour goes."""
        self._told.append({"leave": of})
        self._found.append({})
        self.sync.close(PeerId(of))
        return self

    def look(self) -> Asking:
        """Write down what has come of it."""
        ledger = self.replica.ledger
        self._told.append({"look": True})
        found = {"is_live": self.sync.is_live, "updates": ledger.updates, "void_slots": ledger.void_slots}
        self._found.append({"look": found | {"root": ledger.root().hex()}})
        return self

    def case(self, name: str, manifest: str) -> Case:
        """The case of these events."""
        given = {"manifest": manifest, **self._given, "events": self._told}
        return case(name, "ask", given, {"events": self._found})

    def _heard(self, peer: PeerId, message: Message) -> dict[str, object]:
        self.asked = None
        try:
            sent = self._taken(peer, message)
        except Reject as reject:
            return {"verdict": "REJECT", "reason": reject.reason.name}
        assert all(effect.peer == peer for effect in sent) and len(sent) <= 1
        self.asked = sent[0].message if sent else None
        return {"verdict": "ACCEPT", "reason": None, "sent": [encode(effect.message).hex() for effect in sent]}

    def _taken(self, peer: PeerId, message: Message) -> list[SendMessage]:
        match message:
            case Head():
                return self.sync.receive_head(peer, message, _NOW_MS, self._horizon)
            case Records(request=request):
                records = self.replica.ledger.codec.split_untrusted(message.data)
                self.sync.count_records(peer, request, records, _NOW_MS)
                for record in records:
                    with suppress(Ignore):
                        self.replica.add(record, horizon_step=self.sync.horizon_of(peer, request, self._horizon))
                return []
            case Statements():
                for statement in message.statements:
                    with suppress(Ignore):
                        self.replica.add_statement(statement)
        return self.sync.receive(peer, decode_untrusted(encode(message)), _NOW_MS)
