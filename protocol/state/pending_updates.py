"""Updates that wait to be added to the coefficients, or removed from them.

A change in an epoch at rest costs far more than the update itself, and anybody can sign old updates, or void their own,
in every epoch at once. So waiting updates are summed epoch by epoch, and a tick changes only a few epochs.
"""

from collections.abc import Iterator
from itertools import islice

from protocol.ledger import step_of
from protocol.run import Manifest
from protocol.state.coefficients import CoefficientLayout, updates_per_tick

_COEFFICIENTS_PER_TICK = 100_000  # unpacked, changed, packed and hashed again in about 3 ms
_EPOCHS_PER_TICK_MIN = 2  # the present epoch, and the one before, whose last updates come late


class WaitingUpdates:
    """Holds the updates that are not summed yet, by epoch; the epoch that has waited longest comes first."""

    def __init__(self, manifest: Manifest) -> None:
        self.per_tick = updates_per_tick(manifest)
        self._epochs_per_tick = max(_EPOCHS_PER_TICK_MIN, _COEFFICIENTS_PER_TICK // CoefficientLayout(manifest).size)
        self._epoch_steps = manifest.method.epoch_steps
        # By epoch, the records to add and those to remove: as bytes, not as envelopes, because a joiner has many.
        self._epochs: dict[int, tuple[list[bytes], list[bytes]]] = {}
        self._updates = 0

    def __len__(self) -> int:
        return self._updates

    @property
    def ticks(self) -> float:
        """Return how many ticks it takes to sum all waiting updates."""
        return max(self._updates / self.per_tick, len(self._epochs) / self._epochs_per_tick)

    def add(self, record: bytes) -> None:
        """Queue an update that counts."""
        self._of(record)[0].append(record)

    def remove(self, record: bytes) -> None:
        """Queue the removal of an update that was added but no longer counts."""
        self._of(record)[1].append(record)

    def _of(self, record: bytes) -> tuple[list[bytes], list[bytes]]:
        self._updates += 1
        return self._epochs.setdefault(step_of(record) // self._epoch_steps, ([], []))

    def take(self, count: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield the records to add and to remove, epoch by epoch: at most ``count`` in all, of one tick's epochs."""
        for epoch in list(islice(self._epochs, self._epochs_per_tick)):
            to_add, to_remove = self._epochs[epoch]
            added = _cut(to_add, count)
            removed = _cut(to_remove, count - len(added))  # after all are added, so that none is removed before
            count -= len(added) + len(removed)
            self._updates -= len(added) + len(removed)
            if not to_add and not to_remove:
                del self._epochs[epoch]
            yield added, removed


def _cut(records: list[bytes], count: int) -> list[bytes]:
    """Remove the first ``count`` records of the list and return them."""
    first = records[:count]
    del records[:count]
    return first
