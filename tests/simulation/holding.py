"""What one process was seen to hold, kept apart from its own ledger, and the verdict when the two differ."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from protocol.keys import SIGNATURE_BYTES

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
    set_hash: int = 0  # of the slots, in no order

    def add(self, record: bytes) -> None:
        """One more record; Violation where the slot holds the payload already, or two others."""
        slot, payload = slot_of(record), record[:-SIGNATURE_BYTES]
        held = self.payloads.setdefault(slot, set())
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


@dataclass
class Life:
    """What was seen of one process from its start on."""

    holding: Holding = field(default_factory=Holding)
    verified: int = 0  # signatures
    loaded: int = 0  # records accepted from the disk at the start
    accepted: int = 0
    rejected: int = 0
    reserved_step: int = -1


def _number(*parts: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(b"|".join(parts), digest_size=16).digest(), "big")
