"""Where a process may die between two effects."""

from __future__ import annotations

from collections.abc import Callable

from protocol.events import Effect, ReserveStep, SendMessage, StoreRecords

CrashPoint = Callable[[Effect], bool]

# Named points of a crash: an effect, and whether the process dies before or after it was carried out.
CRASH_POINTS: dict[str, tuple[CrashPoint, bool]] = {
    "reserved, not yet estimating": (lambda effect: isinstance(effect, ReserveStep), False),
    "before a step is reserved": (lambda effect: isinstance(effect, ReserveStep), True),
    "signed, not yet stored": (lambda effect: isinstance(effect, StoreRecords) and effect.is_own, True),
    "own update stored, not yet sent": (lambda effect: isinstance(effect, StoreRecords) and effect.is_own, False),
    "received, not yet stored": (lambda effect: isinstance(effect, StoreRecords) and not effect.is_own, True),
    "sent to one of several": (lambda effect: isinstance(effect, SendMessage), False),
}
