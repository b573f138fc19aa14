"""One turn of the node core: the event that it handles now, and how far the run is by then."""

from collections.abc import Iterable

from protocol.events import Effect
from protocol.node.step_clock import StepClock
from protocol.state import Replica
from protocol.sync import Synchroniser


class Turn:
    """Shares the present event's time and its effects between the parts of the core, with what all of them look at.

    Attributes:
        now_ms: time of the present event, or of the last one between two events.
        effects: what the present event has caused so far, in order.
    """

    def __init__(self, replica: Replica, clock: StepClock, sync: Synchroniser) -> None:
        self.replica = replica
        self.clock = clock
        self.sync = sync
        self.now_ms = 0
        self.effects: list[Effect] = []

    def begin(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.effects = []

    def do(self, effects: Iterable[Effect]) -> None:
        """Add effects, to be carried out after those that are here already."""
        self.effects.extend(effects)

    def frontier(self) -> int:
        """Return how far the run is: the lower median of the steps of the authors at work."""
        return self.clock.authors.frontier(self.replica.ledger.standing_authors(), self.now_ms)

    def horizon(self, asked_step: int | None = None) -> int | None:
        """Return the last step acceptable now; None while catching up, when every step lies ahead (SPEC 7.3.3)."""
        if not self.sync.is_live:
            return None
        return self.clock.authors.horizon(
            self.replica.ledger.authors(),
            self.now_ms,
            own_step=self.clock.next_step,
            neighbours=self.sync.head_step,
            asked_step=asked_step,
        )
