"""A run's published basis on this disk. No torch, no network."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from protocol.bases import Bases, decode_basis_untrusted, rank_and_max
from protocol.errors import OperatorError, Reject
from protocol.manifest import Manifest
from protocol.method import BasisKind
from protocol.subspace import Basis
from sfnode.files import describe_os_error, read_bytes, write_durably

BASIS_FILE: Final = "basis.bin"  # in a node's data directory
UNIT_EXP: Final = 3  # of the files that `sfnode basis make` writes: one is 8, and rounding costs 0.1 % of the energy


class BasisFile:
    """The file of a data directory, read where it lies: peers ask for it in parts, and it may have 256 MiB."""

    def __init__(self, path: Path) -> None:
        """OperatorError when there is none."""
        self._path = path
        try:
            self.total = path.stat().st_size
        except OSError as error:
            raise OperatorError(f"cannot read the basis {path}: {describe_os_error(error)}") from None

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Bytes from ``offset`` on, none beyond the end. OSError."""
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(bytes_max)


def basis_settings(path: Path) -> dict[str, int | str]:
    """What a new run's method says of the published basis in ``path``, by the fields' names in MethodChoice."""
    data = read_bytes(path, "the basis")
    try:
        rank, entry_max = rank_and_max(data)
    except Reject as reject:
        raise OperatorError(f"--basis {path}: {reject.detail}. `sfnode basis make` writes one") from None
    digest = hashlib.sha256(data).hexdigest()
    return {"rank": rank, "basis_sha256": digest, "basis_unit_exp": UNIT_EXP, "basis_max": entry_max}


def basis_in(data_dir: Path, manifest: Manifest) -> Path | None:
    """Where a node keeps the run's published basis; None for a random one, and where it has none."""
    path = data_dir / BASIS_FILE
    return path if manifest.method.basis is BasisKind.PUBLISHED and path.exists() else None


def read_bases(manifest: Manifest, path: Path | None) -> Bases:
    """The bases of a run; ``path``: file of the published one, if it has one.

    Raises:
        OperatorError: there is no such file, or it is not the run's.
    """
    if manifest.method.basis is BasisKind.RANDOM:
        return Bases(manifest)
    if path is None:
        raise OperatorError(
            "the run has a published basis, and it is not here: join with --bootstrap, so that a peer sends it, or "
            "give the owner's file with --basis"
        )
    return Bases(manifest, _decode(manifest, read_bytes(path, "the basis"), str(path)))


def store_basis(manifest: Manifest, data: bytes, *, origin: str, data_dir: Path) -> Path:
    """Keep ``data`` (from ``origin``, in words) as the run's basis in ``data_dir``. OperatorError when it is not."""
    _decode(manifest, data, origin)
    write_durably(data_dir / BASIS_FILE, data)
    return data_dir / BASIS_FILE


def _decode(manifest: Manifest, data: bytes, origin: str) -> tuple[Basis, ...]:
    try:
        return decode_basis_untrusted(manifest, data)
    except Reject as reject:
        raise OperatorError(f"{origin} is not the run's basis: {reject.detail}. Get the file again") from None
