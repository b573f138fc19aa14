"""What one process was seen to hold, kept apart from its own ledger, and the verdict when the two differ."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.crypto.keys import SIGNATURE_BYTES
from protocol.events import Effect, Event

Slot = tuple[bytes, int]


class Violation(AssertionError):
    """An invariant does not hold."""


def require(holds: object, text: str) -> None:
    """Raise Violation unless ``holds``."""
    if not holds:
        raise Violation(text)


def slot_of(record: bytes) -> Slot:
    """(author, round) of a record (SPEC 6.1)."""
    return record[:32], int.from_bytes(record[32:36], "big")


@dataclass
class Holding:
    """The set of records that one process was seen to store, kept apart from its own ledger."""

    payloads: dict[Slot, set[bytes]] = field(default_factory=dict)
    updates: int = 0
    void_slots: int = 0
    set_hash: int = 0  # of slots and statements, in no order
    excluded: dict[bytes, int] = field(default_factory=dict)

    def add(self, record: bytes) -> None:
        """One more record; Violation where the slot holds the payload already, or two others."""
        slot, payload = slot_of(record), record[:-SIGNATURE_BYTES]
        held = self.payloads.setdefault(slot, set())
        require(not self.is_excluded(slot), "a record was stored although its author is excluded from then on")
        require(payload not in held, "a payload was stored twice")
        require(len(held) < 2, "a third payload was stored for one slot")
        if not held:
            self.updates += 1
            self.set_hash ^= _number(b"counts", payload)
        else:
            (first,) = held
            self.updates -= 1
            self.void_slots += 1
            self.set_hash ^= _number(b"counts", first) ^ _number(b"void", slot[0], slot[1].to_bytes(4, "big"))
        held.add(payload)

    def state(self, statement: bytes) -> None:
        """One more statement of the owner: an admission or an exclusion (SPEC 7.7)."""
        author = statement[1:33]
        if statement[0] == 1:
            self.set_hash ^= _number(b"admitted", author)
            return
        from_step = int.from_bytes(statement[33:37], "big")
        known = self.excluded.get(author)
        require(known is None or from_step < known, "an exclusion was stored that says nothing new")
        if known is not None:
            self.set_hash ^= _number(b"excluded", author, known.to_bytes(4, "big"))
        self.set_hash ^= _number(b"excluded", author, from_step.to_bytes(4, "big"))
        self.excluded[author] = from_step
        for slot in [slot for slot in self.payloads if slot[0] == author and slot[1] >= from_step]:
            self._drop(slot)

    def _drop(self, slot: Slot) -> None:
        held = self.payloads.pop(slot)
        if len(held) == 2:
            self.void_slots -= 1
            self.set_hash ^= _number(b"void", slot[0], slot[1].to_bytes(4, "big"))
        else:
            self.updates -= 1
            self.set_hash ^= _number(b"counts", *held)

    def is_excluded(self, slot: Slot) -> bool:
        """Whether the owner has excluded the slot's author from its step or an earlier one on."""
        return slot[1] >= self.excluded.get(slot[0], slot[1] + 1)


@dataclass
class Life:
    """What was seen of one process from its start on."""

    holding: Holding = field(default_factory=Holding)
    verified: int = 0  # signatures
    loaded: int = 0  # records accepted from the disk at the start
    accepted: int = 0
    rejected: int = 0
    reserved_step: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """One event that a node was given, and what it asks for. ``is_last``: no further event was waiting."""

    event: Event
    effects: Sequence[Effect]
    now_ms: int
    is_last: bool


def _number(*parts: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(b"|".join(parts), digest_size=16).digest(), "big")
