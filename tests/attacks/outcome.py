"""What one attack came to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

A_NEW_NODE: Final = "not measured: each measurement has a new node"  # of what an attack leaves behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Figures of one attack, each with its unit.

    Attributes:
        before, during, after: what an honest node, or a joiner, did or held then: "5.5 steps/s".
        attacker: what the attacker spent: bytes sent, and processor time where that is the price.
        bound: what must hold, as the threat model says it.
        is_held: whether it held.
    """

    before: str
    during: str
    after: str
    attacker: str
    bound: str
    is_held: bool


Attack = Callable[[bool], Outcome]  # the argument: whether a short form will do, of seconds
