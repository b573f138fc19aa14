"""The run and its state as a data directory describes them, for commands that need the trained weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from protocol.run import SignedManifest
from protocol.state import Coefficients
from sfnode.storage.store import read_manifest, replayed
from sfnode.storage.stored_bases import RenewedBasis, basis_in, renewals_for


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The state that a ledger adds up to.

    Attributes:
        basis: file of the manifest's published basis; None when the basis is random, or the file is not there.
        renewals: the bases that took its place.
    """

    signed: SignedManifest
    coefficients: Coefficients
    basis: Path | None
    renewals: tuple[RenewedBasis, ...]


def read_state(data_dir: Path) -> StoredState:
    """Verify and replay the ledger of ``data_dir``, read-only: a node may be running there.

    Raises:
        OperatorError: no node has run there, or a renewed basis is missing.
        StorageDamagedError: a record cannot be right.
    """
    directory = data_dir.expanduser()
    signed = read_manifest(directory)
    with replayed(directory, signed.manifest) as replica:
        return StoredState(
            signed=signed,
            coefficients=replica.coefficients(),
            basis=basis_in(directory, signed.manifest),
            renewals=renewals_for(directory, replica),
        )
