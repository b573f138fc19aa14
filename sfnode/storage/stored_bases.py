"""A run's published bases on this disk: the manifest's, and its renewals. No torch, no network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import OperatorError, Reject
from protocol.run import BasisKind, Manifest
from protocol.state import Replica
from protocol.subspace import Bases, BasisContent, Published, basis_file
from sfnode.storage.disk import read_bytes, write_durably

BASIS_FILE: Final = "basis.bin"  # in a node's data directory: the basis that the manifest names
BASIS_ENDING: Final = ".basis"  # of the file that `sfnode init` writes next to the run file
UNIT_EXP: Final = 3  # in files of `sfnode basis make`: 1.0 is stored as 8, and rounding costs 0.1 % of the energy


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewedBasis:
    """Describes a basis that the owner published later: its first epoch, its hash (64 hex digits), and its file."""

    from_epoch: int
    sha256: str
    file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseSettings:
    """Holds the fields of a method for a dense core: rows of the core, unit and bound of a message."""

    core_rows: int
    quantum_exp: int
    energy_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BasisSpec:
    """Holds the values of a basis in a new run's method.

    Attributes:
        sha256: of the file, 64 hex digits.
        unit_exp, entry_max: entries are multiples of 2^-unit_exp, at most entry_max of them.
        start_rank: rank of the start in the file; 0 without one.
        core_rows: of a dense core; 0: the run draws its directions.
    """

    rank: int
    sha256: str
    unit_exp: int
    entry_max: int
    start_rank: int = 0
    core_rows: int = 0

    @classmethod
    def of(cls, data: bytes) -> BasisSpec:
        """Return the values for a published basis whose file holds ``data``; Reject if it is no such file."""
        shape = basis_file.shape_of_basis(data)
        return cls(
            rank=shape.rank,
            sha256=hashlib.sha256(data).hexdigest(),
            unit_exp=UNIT_EXP,
            entry_max=shape.entry_max,
            start_rank=shape.start_rank,
            core_rows=shape.core_rows,
        )

    @classmethod
    def read(cls, path: Path) -> BasisSpec:
        """Return the values for the published basis in ``path``; OperatorError if there is none."""
        try:
            return cls.of(read_bytes(path, "the basis"))
        except Reject as reject:
            raise OperatorError(f"--basis {path}: {reject.detail}. `sfnode basis make` writes one") from None


class StoredBases:
    """Stores and finds the published bases of the run in one node's data directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path_of(self, manifest: Manifest, sha256: str) -> Path:
        """Return the path of the run's published basis with this hash."""
        is_first = sha256 == manifest.method.basis_sha256
        return self._folder / (BASIS_FILE if is_first else f"basis-{sha256[:16]}.bin")

    def first(self, manifest: Manifest) -> Path | None:
        """Return the file of the manifest's published basis; None if the basis is random, or the file is not here."""
        path = self._folder / BASIS_FILE
        return path if manifest.method.basis is BasisKind.PUBLISHED and path.exists() else None

    def renewals(self, manifest: Manifest, renewals: Mapping[int, str]) -> tuple[RenewedBasis, ...]:
        """Return the run's renewals (`Roster.renewals`) whose files are here, ascending by epoch."""
        here = {each: path for each in set(renewals.values()) if (path := self.path_of(manifest, each)).exists()}
        return tuple(
            RenewedBasis(from_epoch=epoch, sha256=sha256, file=here[sha256])
            for epoch, sha256 in renewals.items()
            if sha256 in here
        )

    def renewals_of(self, replica: Replica) -> tuple[RenewedBasis, ...]:
        """Return the renewals of a ledger; OperatorError if one is missing that the ledger's updates need."""
        for sha256 in replica.renewals_needed():
            path = self.path_of(replica.manifest, sha256)
            if not path.exists():
                text = "the owner has renewed the basis, and the new one is missing"
                raise OperatorError(f"{path}: {text}: start the node, it fetches the file from its neighbours")
        return self.renewals(replica.manifest, replica.ledger.roster.renewals())

    def store(self, manifest: Manifest, data: bytes, *, origin: Path | str, sha256: str | None = None) -> Path:
        """Store ``data``, which came from ``origin``, as a published basis of the run; return its path.

        ``sha256`` is that of a renewal; None: the manifest's. OperatorError if ``data`` is another file.
        """
        _decode(manifest, data, origin, sha256)
        path = self.path_of(manifest, sha256 or manifest.method.basis_sha256)
        if not _holds(path, data):
            write_durably(path, data)
        return path


def basis_beside(manifest: Manifest, run_file: Path | None) -> Path | None:
    """Return the basis that `sfnode init` wrote next to the run's file, if it is there and the run's. OperatorError."""
    path = None if run_file is None else run_file.with_suffix(BASIS_ENDING)
    if path is None or not path.is_file():
        return None
    digest = hashlib.sha256(read_bytes(path, "the basis")).hexdigest()
    return path if digest == manifest.method.basis_sha256 else None


def read_bases(manifest: Manifest, path: Path | None, renewals: Sequence[RenewedBasis] = ()) -> Bases:
    """Read the bases of a run; ``path`` is the file of the manifest's published basis, if it has one.

    Raises:
        OperatorError: there is no such file, or one is not the run's.
    """
    if manifest.method.basis is BasisKind.RANDOM:
        return Bases(manifest)
    if path is None:
        raise OperatorError(
            "the run has a published basis, and it is not here: join with --bootstrap, so that a peer sends it, or "
            "give the owner's file with --basis"
        )
    first = _decode(manifest, read_bytes(path, "the basis"), path)
    contents: dict[str, Published] = {}
    for sha256, file in {each.sha256: each.file for each in renewals}.items():  # one that several name is read once
        content = _decode(manifest, read_bytes(file, "the basis"), file, sha256)
        contents[sha256] = Published(sha256=sha256, bases=content.bases, start=content.start)
    return Bases(manifest, first, {each.from_epoch: contents[each.sha256] for each in renewals})


def read_renewal(manifest: Manifest, path: Path) -> tuple[bytes, BasisContent]:
    """Read a file that could renew the run's basis; return its bytes and content. OperatorError: it is no such file."""
    data = read_bytes(path, "the basis")
    return data, _decode(manifest, data, path, hashlib.sha256(data).hexdigest())


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except OSError:
        return False  # missing, or unreadable: it is written again


def _decode(manifest: Manifest, data: bytes, origin: Path | str, sha256: str | None = None) -> BasisContent:
    try:
        return basis_file.decode_basis_untrusted(manifest, data, sha256)
    except Reject as reject:
        raise OperatorError(f"{origin} is not the run's basis: {reject.detail}. Get the file again") from None
