"""The run and its state in a data directory, for commands that need the trained weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Final, Literal

from protocol.errors import OperatorError
from protocol.run import SignedManifest
from protocol.state import Coefficients, Replica
from sfnode.storage.evaluations import best_of, read_evaluations
from sfnode.storage.store import read_manifest, replayed
from sfnode.storage.stored_bases import RenewedBasis, basis_in, renewals_for

BEST_STEP: Final = "best"
AtStep = int | Literal["best"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """Holds the sum of a ledger's updates, and the bases that it refers to.

    Attributes:
        basis: file of the manifest's published basis; None if the basis is random, or the file is not there.
        renewals: the bases that replaced it.
    """

    signed: SignedManifest
    coefficients: Coefficients
    basis: Path | None
    renewals: tuple[RenewedBasis, ...]


def read_state(data_dir: Path, at_step: AtStep | None = None) -> StoredState:
    """Verify and replay the ledger of ``data_dir``, read-only: a node may be running there.

    ``at_step``: sum only the updates of earlier steps; BEST_STEP: the step with the least loss on the node's held-out
    data.

    Raises:
        OperatorError: no node has run there, a renewed basis is missing, or no best step is known.
        StorageDamagedError: a record cannot be right.
    """
    directory = data_dir.expanduser()
    signed = read_manifest(directory)
    step = None if at_step is None else step_at(directory, at_step)
    with replayed(directory, signed.manifest) as replica:
        return StoredState(
            signed=signed,
            coefficients=replica.coefficients() if step is None else _before(replica, step),
            basis=basis_in(directory, signed.manifest),
            renewals=renewals_for(directory, replica),
        )


def step_at(directory: Path, at_step: AtStep) -> int:
    """Return the number of a step, also for `BEST_STEP`. OperatorError: nothing was measured on held-out data."""
    if at_step != BEST_STEP:
        return at_step
    best = best_of(read_evaluations(directory))
    if best is None:
        raise OperatorError(
            f"{directory}: no best step is known, because this node measured nothing on held-out data. Give the number "
            "of a step; or start nodes with --eval-data"
        )
    return best.step


def _before(replica: Replica, step: int) -> Coefficients:
    """Return the sum of the updates of the steps before ``step``."""
    coefficients = Coefficients(replica.manifest)
    coefficients.add(takewhile(lambda envelope: envelope.step < step, replica.ledger.slots.envelopes()))
    return coefficients
