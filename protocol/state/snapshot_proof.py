"""Takes a snapshot of a replica, and checks a snapshot that others made against a replica's replay (SPEC 9.5)."""

from enum import StrEnum
from itertools import takewhile

import numpy as np

from protocol import limits
from protocol.state.coefficients import Coefficients, fewest_bytes
from protocol.state.replica import Replica
from protocol.state.snapshot import Snapshot


class ProofVerdict(StrEnum):
    """The result of comparing a snapshot with a complete replay."""

    EQUAL = "equal"
    UNEQUAL = "unequal"  # the same updates have other coefficients: a lie, or a broken machine
    OTHER_SET = "other set"  # updates have come or were removed since: no conclusion is possible
    MISSING = "missing"  # the snapshot counts more slots than are here: they may come yet


def may_fit(replica: Replica, step: int) -> bool:
    """Return whether the epochs that end by ``step`` leave the file within its bound. Those at rest are not copied."""
    own, whole = replica.coefficients(), step // replica.manifest.method.epoch_steps
    held = (epoch for epoch in own.revisions() if epoch < whole and own.epoch_digest(epoch))
    return sum(own.packed(epoch).nbytes for epoch in held) <= limits.SNAPSHOT_BYTES_MAX


def take_snapshot(replica: Replica, step: int) -> Snapshot:
    """Take the snapshot of all that a replica holds below ``step``."""
    return Snapshot(
        step=step,
        digest=replica.ledger.slots.digest_before(step),
        slots=replica.ledger.slots.slots_before(step),
        epochs=_epochs_before(replica, step),
    )


def judge(snapshot: Snapshot, replica: Replica) -> ProofVerdict:
    """Compare a snapshot with the replica's own state of the same steps."""
    ledger, step = replica.ledger, snapshot.step
    if ledger.slots.digest_before(step) == snapshot.digest:
        own = _epochs_before(replica, step)
        is_same = own.keys() == snapshot.epochs.keys() and all(
            np.array_equal(flat, snapshot.epochs[epoch]) for epoch, flat in own.items()
        )
        return ProofVerdict.EQUAL if is_same else ProofVerdict.UNEQUAL
    # A suspended or excluded author may explain the slots that are missing here.
    is_cut = replica.suspended or any(from_step < step for from_step in ledger.roster.excluded().values())
    return (
        ProofVerdict.OTHER_SET if is_cut or ledger.slots.slots_before(step) >= snapshot.slots else ProofVerdict.MISSING
    )


def _epochs_before(replica: Replica, step: int) -> dict[int, np.typing.NDArray[np.signedinteger]]:
    """Return the replica's own sums of the steps below ``step``, by epoch, without epochs that are all zero.

    Each is in the fewest bytes: in int64 they may take eight times the size of the file. Do not write to them.
    """
    own, epoch_steps = replica.coefficients(), replica.manifest.method.epoch_steps
    divided, found = step // epoch_steps, {}
    for epoch in sorted(epoch for epoch in own.revisions() if epoch * epoch_steps < step):
        packed = own.packed(epoch)
        if epoch == divided:  # subtract its updates from ``step`` on
            later = Coefficients(replica.manifest)
            updates = replica.ledger.slots.envelopes(from_step=step)
            later.add(takewhile(lambda update: update.step // epoch_steps == divided, updates))
            flat = own.flat(epoch) - later.flat(epoch)
            packed = flat.astype(f"i{fewest_bytes(flat)}")
        if packed.any():
            found[epoch] = packed
    return found
