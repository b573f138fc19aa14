"""Updates on their way into the coefficients, or out of them again.

To change an epoch that has come to rest costs far more than an update, and anybody can sign old updates, or void their
own, in every epoch at once. So what waits is summed epoch by epoch, and a tick changes few of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from protocol.ledger import step_of
from protocol.run import Manifest
from protocol.state.coefficients import CoefficientLayout, updates_per_tick

_COEFFICIENTS_PER_TICK = 100_000  # unpacked, changed, packed and hashed again in about 3 ms
_EPOCHS_PER_TICK_MIN = 2  # the one under way, and the one before, of which the last updates come late


@dataclass(slots=True)
class _Epoch:
    """Records: bytes rather than envelopes, for of a joiner many are waiting."""

    to_add: list[bytes] = field(default_factory=list)
    to_remove: list[bytes] = field(default_factory=list)


class WaitingUpdates:
    """What is not summed yet, by epoch; the epoch that has waited longest comes first."""

    def __init__(self, manifest: Manifest) -> None:
        self.per_tick = updates_per_tick(manifest)
        self._epochs_per_tick = max(_EPOCHS_PER_TICK_MIN, _COEFFICIENTS_PER_TICK // CoefficientLayout(manifest).size)
        self._epoch_steps = manifest.method.epoch_steps
        self._epochs: dict[int, _Epoch] = {}
        self._updates = 0

    def __len__(self) -> int:
        return self._updates

    @property
    def ticks(self) -> float:
        """How many ticks it takes to sum what waits."""
        return max(self._updates / self.per_tick, len(self._epochs) / self._epochs_per_tick)

    def add(self, record: bytes) -> None:
        """An update counts."""
        self._of(record).to_add.append(record)

    def remove(self, record: bytes) -> None:
        """An update that was added counts no more."""
        self._of(record).to_remove.append(record)

    def _of(self, record: bytes) -> _Epoch:
        self._updates += 1
        epoch = step_of(record) // self._epoch_steps
        if epoch not in self._epochs:
            self._epochs[epoch] = _Epoch()
        return self._epochs[epoch]

    def take(self, count: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """At most ``count`` records, and of no more epochs than a tick may change: what to add and what to remove, one
        epoch after the other."""
        for epoch in list(islice(self._epochs, self._epochs_per_tick)):
            waiting = self._epochs[epoch]
            added = _cut(waiting.to_add, count)
            removed = _cut(waiting.to_remove, count - len(added))  # once all are added: nothing is taken out before
            count -= len(added) + len(removed)
            self._updates -= len(added) + len(removed)
            if not waiting.to_add and not waiting.to_remove:
                del self._epochs[epoch]
            yield added, removed


def _cut(records: list[bytes], count: int) -> list[bytes]:
    """The first ``count`` of the list, which loses them."""
    first = records[:count]
    del records[:count]
    return first
