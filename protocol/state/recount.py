"""Computes a replica's state anew from its ledger, a little at a time, while the ledger keeps changing (SPEC 7.6)."""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import groupby

from protocol.crypto import Author
from protocol.ledger import Envelope, Ledger
from protocol.limits import SPAN_STEPS
from protocol.run import Manifest
from protocol.state.coefficients import Coefficients, updates_per_tick

_SLOTS_READ = 16  # of one author at once: slots that are checked together when they come from the disk
# The most that a slice may cost, and the cost of its parts, in units of about 3 us.
_SLICE_COST = 1_024
_READ_COST, _LOOK_COST = 64, 1  # of _SLOTS_READ slots: when some count and come from the disk, and when none counts
_EPOCH_COST = 64  # of an empty state to sum an epoch in
_HASHED_PER_COST = 512  # coefficients
_SLICES_PER_TICK = 4  # as many updates are summed in a slice as in this part of a tick: 2.5 ms


class Recount:
    """Compares a state's digests, epoch by epoch, with the coefficients in memory and with what the ledger implies.

    The ledger may change during the recount. A change in an epoch that was compared already does not matter, and one
    in a later epoch is found there. A change in the present epoch is found, too, unless the recount has passed its
    slot. For that case :meth:`follow` must be called at every change.
    """

    def __init__(
        self, manifest: Manifest, ledger: Ledger, coefficients: Callable[[], Coefficients], *, is_whole: bool
    ) -> None:
        """Prepare a recount, of the ledger too if ``is_whole``; ``coefficients`` returns the state with all updates."""
        self._manifest = manifest
        self._ledger = ledger
        self._coefficients = coefficients
        self._fresh = Coefficients(manifest)
        self._to_add: list[Envelope] = []
        self._to_remove: list[Envelope] = []
        self._cost = 0
        self._epoch = self._span = -1  # those being read
        self._order: dict[Author, int] = {}  # the order in which the span's authors are read
        self._passed = (0, 0)  # in the span: an author's number, and its first offset that was not read
        self._slices = self._run(is_whole=is_whole)

    def advance(self) -> bool | None:
        """Run one slice of some milliseconds. Return whether the state is right, or None until that is known."""
        return next(self._slices)

    def follow(self, added: Iterable[Envelope], removed: Iterable[Envelope]) -> None:
        """Account for updates that the ledger has just accepted, and for those that no longer count."""
        self._to_add += filter(self._has_passed, added)
        self._to_remove += filter(self._has_passed, removed)

    def _has_passed(self, update: Envelope) -> bool:
        # Of the update's epoch, slots are read by span, then author, then offset. An author who is not in the order
        # came after the span was begun, so its slots there are never read.
        span, offset = divmod(update.step, SPAN_STEPS)
        is_passed = span < self._span
        if span == self._span:
            is_passed = update.author not in self._order or (self._order[update.author], offset) < self._passed
        return is_passed and update.step // self._manifest.method.epoch_steps == self._epoch

    # --- slice by slice, top to bottom --------------------------------------------------------------------

    def _run(self, *, is_whole: bool) -> Iterator[bool | None]:
        own = self._coefficients()
        epochs = sorted(own.revisions())
        # First the digests against memory, which is cheap; then each epoch against its sum from the ledger.
        for epoch in epochs:
            if not own.is_as_told(epoch):
                yield False
            if self._spend(own.layout.size // _HASHED_PER_COST):
                yield None
        for epoch, _ in groupby(merge(epochs, self._epochs_held())) if is_whole else ():
            yield from self._sum(epoch)
            own = self._coefficients()
            self._sum_some(len(self._to_add), len(self._to_remove))
            if own.epoch_digest(epoch) != self._fresh.epoch_digest(epoch):
                yield False
        yield True

    def _epochs_held(self) -> Iterator[int]:
        """Yield the epochs of every span that holds anything now, ascending, some of them twice."""
        epoch_steps = self._manifest.method.epoch_steps
        for span in self._ledger.slots.spans():
            first = span * SPAN_STEPS
            yield from range(first // epoch_steps, (first + SPAN_STEPS - 1) // epoch_steps + 1)

    def _sum(self, epoch: int) -> Iterator[None]:
        if self._fresh.revisions():
            self._fresh = Coefficients(self._manifest)
            self._spend(_EPOCH_COST)
        at_once = max(1, updates_per_tick(self._manifest) // _SLICES_PER_TICK)
        for found in self._read(epoch):
            self._to_add += found
            is_over = self._spend(_READ_COST if found else _LOOK_COST)
            while is_over or len(self._to_add) >= at_once:
                self._sum_some(at_once, at_once)
                yield None
                is_over = False
        while len(self._to_add) + len(self._to_remove) > at_once:  # excluding an author removes many at once
            self._sum_some(at_once, at_once)
            yield None

    def _read(self, epoch: int) -> Iterator[list[Envelope]]:
        """Yield the envelopes that count in the epoch, some slots of one author at a time."""
        first = epoch * self._manifest.method.epoch_steps
        end = min(first + self._manifest.method.epoch_steps, self._manifest.steps)
        self._epoch = epoch
        for span in range(first // SPAN_STEPS, (end - 1) // SPAN_STEPS + 1):
            start = span * SPAN_STEPS
            self._order = {author: number for number, author in enumerate(self._ledger.slots.authors_in(span))}
            self._span, self._passed = span, (0, 0)
            for author, number in self._order.items():
                for step in range(max(first, start), min(end, start + SPAN_STEPS), _SLOTS_READ):
                    steps = range(step, min(step + _SLOTS_READ, end, start + SPAN_STEPS))
                    self._passed = (number, steps.stop - start)
                    yield list(self._ledger.slots.counted(author, steps))
        self._span += 1

    def _sum_some(self, added: int, removed: int) -> None:
        self._fresh.add(self._to_add[:added])
        self._fresh.remove(self._to_remove[:removed])
        del self._to_add[:added], self._to_remove[:removed]

    def _spend(self, cost: int) -> bool:
        """Add a cost to the slice and return whether the slice is over."""
        self._cost += cost
        is_over = self._cost >= _SLICE_COST
        self._cost = 0 if is_over else self._cost
        return is_over
