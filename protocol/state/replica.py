"""A replica: the ledger and the model state it implies. Live nodes, catch-up and offline replay all run this code.

A change in an epoch at rest costs far more than the update itself, and anybody can sign old updates, or void their own,
in every epoch at once. So waiting updates are summed epoch by epoch, and a tick changes only a few epochs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile

from protocol import limits
from protocol.crypto import KEY_BYTES, Author, Digest
from protocol.errors import Ignore, Reject
from protocol.ledger import Archive, Envelope, Ledger, Statement, records_of, step_of
from protocol.run import Manifest
from protocol.state.coefficients import CoefficientLayout, Coefficients, updates_per_tick
from protocol.state.recount import Recount
from protocol.state.snapshot import Snapshot, SnapshotOverlay

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


_SUMMED_AT_ONCE = 64  # summed one by one, each would cost several times as much


class Replica:
    """Keeps ledger and coefficients in step: sums each accepted envelope once, removes voided and excluded ones.

    Attributes:
        recount: that follows the ledger's changes; None: there is none, or no longer.
    """

    def __init__(
        self, manifest: Manifest, archive: Archive | None = None, *, in_memory_max: int = limits.RECORDS_IN_MEMORY_MAX
    ) -> None:
        """Create an empty replica; ``archive`` and ``in_memory_max`` are those of :class:`Ledger`."""
        self.manifest = manifest
        self.ledger = Ledger(manifest, archive, in_memory_max=in_memory_max)
        self._overlay: SnapshotOverlay | None = None  # of a joiner that has not yet replayed all
        self.recount: Recount | None = None
        self._archive = archive
        self._coefficients = Coefficients(manifest)
        self._waiting_max = limits.WAITING_BYTES_MAX // self.ledger.codec.record_bytes
        self._waiting = WaitingUpdates(manifest)
        self._summed_at_once = min(_SUMMED_AT_ONCE, self._waiting.per_tick)
        # Of authors who are not admitted any more: how many genuine records, and without an archive these themselves.
        self._suspended = Counter[Author]()
        self._kept: dict[Author, list[bytes]] = {}

    def add(self, record: bytes, *, horizon_step: int | None = None) -> tuple[Envelope, Envelope | None]:
        """Accept one record. Raises Reject or Ignore like :meth:`Ledger.add`."""
        envelope, voided = self.ledger.add(record, horizon_step=horizon_step)
        if voided is None:
            self._waiting.add(envelope.record)
        else:
            self._waiting.remove(voided.record)
        if self.unsummed > self._waiting_max:
            self.sum_some(self._summed_at_once)
        changes = ((envelope,), ()) if voided is None else ((), (voided,))
        for follower in self._followers():
            follower.follow(*changes)
        return envelope, voided

    def add_statement(self, data: bytes) -> Statement:
        """Accept a statement and remove from the sum what no longer counts. Raises Reject or Ignore.

        An exclusion is final. But an author who is not admitted because another one claimed the same token may still
        be admitted later. The records of such an author are kept for that case.
        """
        roster = self.ledger.roster
        statement, slots = self.ledger.add_statement(data)
        dropped = [slot for slot in slots if isinstance(slot, bytes)]
        for record in dropped:
            self._waiting.remove(record)
        for follower in self._followers():
            follower.follow((), self._decoded(dropped))
        for record in (record for slot in slots for record in records_of(slot)):
            author = Author(record[:KEY_BYTES])
            if not roster.is_admitted(author):
                self._suspend(author, record)
        if statement.author in self._suspended and roster.is_admitted(statement.author):
            self._bring_back(statement.author)
        return statement

    def suspend(self, record: bytes) -> None:
        """Keep a stored record of an author who is not admitted, in case they are admitted later. Raises Reject."""
        envelope = self.ledger.codec.decode_untrusted(record)
        self.ledger.codec.check_signed(envelope)
        self._suspend(envelope.author, record)

    def _suspend(self, author: Author, record: bytes) -> None:
        self._suspended[author] += 1
        if self._archive is None:
            self._kept.setdefault(author, []).append(record)

    def _bring_back(self, author: Author) -> None:
        del self._suspended[author]
        for record in self._archive.read_all(author) if self._archive else self._kept.pop(author):
            try:
                self.add(record)
            except Ignore:
                pass  # the author has been excluded since, or the author table is full
            except Reject as reject:
                if self._archive is None:
                    raise
                raise self._archive.damage(f"a stored record: {reject}") from None

    def coefficients(self) -> Coefficients:
        """Sum all waiting updates and return the state with every update in."""
        while self.unsummed:
            self.sum_some(self.unsummed)
        return self._coefficients

    def coefficients_at(self, step: int) -> Coefficients:
        """Return the sum of the updates of the steps before ``step`` alone."""
        found = Coefficients(self.manifest)
        found.add(takewhile(lambda envelope: envelope.step < step, self.ledger.slots.envelopes()))
        return found

    @property
    def snapshot(self) -> Snapshot | None:
        """Return the snapshot in use until this replica has replayed everything (SPEC 9.5), else None."""
        return self._overlay.snapshot if self._overlay else None

    def use_snapshot(self, snapshot: Snapshot | None) -> None:
        """Show the worker this state with later updates from now on; None: the replayed state again."""
        self._overlay = None if snapshot is None else SnapshotOverlay(self.manifest, snapshot, self.ledger)

    def begin_recount(self, *, is_whole: bool) -> Recount:
        """Begin to check the state in slices; ``is_whole``: against the ledger, too."""
        self.recount = Recount(self.manifest, self.ledger, self.coefficients, is_whole=is_whole)
        return self.recount

    def _followers(self) -> list[SnapshotOverlay | Recount]:
        """Return the objects that must know every change of the ledger."""
        return [each for each in (self._overlay, self.recount) if each]

    def shown(self) -> Coefficients:
        """Return the coefficients for the worker: the state, or the snapshot in use with later updates.

        Make no digest of it: of the waiting updates, only as many as one tick sums are in it.
        """
        if self._overlay:
            return self._overlay.coefficients()
        self.sum_some(self._waiting.per_tick)
        if not self.unsummed:
            self._coefficients.removals = self.ledger.roster.removals()
        return self._coefficients

    @property
    def suspended(self) -> int:
        """Return how many records are suspended because their authors are not admitted."""
        return self._suspended.total()

    @property
    def unsummed(self) -> int:
        """Return how many updates still wait to be added to or removed from the coefficients."""
        return len(self._waiting)

    @property
    def is_summed(self) -> bool:
        """Return whether so few updates wait that the state digest costs one tick at most."""
        return self._waiting.ticks <= 1

    def tick(self) -> None:
        """Sum waiting updates unless they are few: a few wait for more, because many at once cost little more."""
        if self._waiting.ticks > 1 / 2:
            self.sum_some(self._waiting.per_tick)

    def sum_some(self, count: int) -> None:
        """Sum at most ``count`` waiting updates, so that catching up never blocks its caller for long."""
        for added, removed in self._waiting.take(count):
            self._coefficients.add(self._decoded(added))
            self._coefficients.remove(self._decoded(removed))
        self._coefficients.hash_resting()

    def state_digest(self) -> Digest:
        """Return the digest of the whole model state (SPEC 7.4)."""
        return self.coefficients().digest()

    def replayed_digest(self) -> Digest:
        """Compute the state digest anew from the ledger alone; :meth:`state_digest` must equal it."""
        return self.coefficients_at(self.manifest.steps).digest()

    def _decoded(self, records: Iterable[bytes]) -> Iterable[Envelope]:
        return map(self.ledger.codec.decode_untrusted, records)
