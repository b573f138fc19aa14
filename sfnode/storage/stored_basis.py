"""The file of a dense core's basis on this disk. No torch, no network."""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import OperatorError, Reject
from protocol.run import Manifest
from protocol.subspace import Bases, BasisContent, basis_file
from sfnode.storage.disk import read_bytes, write_durably

BASIS_FILE = "basis.bin"  # in a node's data directory
BASIS_ENDING = ".basis"  # of the file that `sfnode init` writes next to the run file


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseSettings:
    """Holds the fields of a method for a dense core: shape of the core, unit and bound of a message, rows of noise."""

    core_rows: int
    rank: int
    quantum_exp: int
    energy_max: int
    clip: int
    noise_rows: int


class StoredBasis:
    """Stores and finds the basis of the run in one node's data directory."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / BASIS_FILE

    def find(self, manifest: Manifest) -> Path | None:
        """Return the file of the basis; None if the run has no dense core, or the file is not here."""
        return self.path if manifest.method.is_dense and self.path.exists() else None

    def store(self, manifest: Manifest, data: bytes, *, origin: Path | str) -> Path:
        """Store ``data``, which came from ``origin``; return the path. OperatorError if it is not the run's basis."""
        _decode(manifest, data, origin)
        with suppress(OSError):  # missing, or unreadable: it is written again
            if self.path.read_bytes() == data:
                return self.path
        write_durably(self.path, data)
        return self.path


def basis_beside(manifest: Manifest, run_file: Path | None) -> Path | None:
    """Return the basis that `sfnode init` wrote next to the run's file, if it is there and the run's. OperatorError."""
    path = None if run_file is None else run_file.with_suffix(BASIS_ENDING)
    if path is None or not path.is_file():
        return None
    digest = hashlib.sha256(read_bytes(path, "the basis")).hexdigest()
    return path if digest == manifest.method.basis_sha256 else None


def read_bases(manifest: Manifest, file: Path | bytes | None) -> Bases:
    """Read the bases of a run; ``file`` has a dense core's basis, or is that. OperatorError: it is missing or wrong."""
    if not manifest.method.is_dense:
        return Bases(manifest)
    if file is None:
        raise OperatorError(
            "the run has a published basis, and it is not here: join with --bootstrap, so that a peer sends it, or "
            "give the owner's file with --basis"
        )
    data, origin = (file, "this") if isinstance(file, bytes) else (read_bytes(file, "the basis"), file)
    return Bases(manifest, _decode(manifest, data, origin))


def _decode(manifest: Manifest, data: bytes, origin: Path | str) -> BasisContent:
    try:
        return basis_file.decode_basis_untrusted(manifest, data)
    except Reject as reject:
        if hashlib.sha256(data).hexdigest() == manifest.method.basis_sha256:
            raise OperatorError(
                f"{origin} was made with another release of sfnode: {reject.detail}. Use that one, or make the run anew"
            ) from None
        raise OperatorError(f"{origin} is not the run's basis: {reject.detail}. Get the file again (--basis)") from None
