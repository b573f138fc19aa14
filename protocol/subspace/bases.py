"""Where a run's bases come from: the generator, or files that its owner names by their hashes (SPEC 4.1, 4.6).

A published basis is what the run's owner found worth searching, for instance from one calibration gradient: int8
entries, the same in every epoch until the owner renews it. No digest depends on it, so a node without the model does
without it.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from protocol.errors import Reject, RejectReason
from protocol.run.manifest import Manifest, TensorSpec, basis_bytes
from protocol.run.method import BasisKind
from protocol.subspace.directions import Basis, Int8Array, basis

MAGIC = b"sfnode/basis/1" + b"\n\0"
_NUMBERS = np.dtype(">u4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published basis: the SHA-256 of its file, 64 hex digits, and what the file holds, by tensor number."""

    sha256: str
    bases: Sequence[Basis]


class Bases:
    """The basis of every tensor in every epoch of one run.

    Args:
        manifest: of the run.
        published: by tensor number, exactly when the manifest's basis is published (`decode_basis_untrusted`).
        renewals: later ones, by the first epoch that has them (`Roster.renewals`).
    """

    def __init__(
        self,
        manifest: Manifest,
        published: Sequence[Basis] | None = None,
        renewals: Mapping[int, Published] | None = None,
    ) -> None:
        assert (published is not None) == (manifest.method.basis is BasisKind.PUBLISHED)
        self.manifest = manifest
        self._published: dict[int, Published] = {}
        if published is not None:
            self._published = {0: Published(sha256=manifest.method.basis_sha256, bases=published), **(renewals or {})}
        self._starts = sorted(self._published)

    def name(self, epoch: int) -> str:
        """Of the basis of ``epoch``: epochs with the same name have the same basis, and their coefficients add up."""
        found = self._published_in(epoch)
        return f"epoch {epoch}" if found is None else found.sha256

    def of(self, epoch: int, tensor_index: int) -> Basis:
        """The basis of one tensor in ``epoch``; a random one is generated at each call."""
        found = self._published_in(epoch)
        if found is not None:
            return found.bases[tensor_index]
        tensor = self.manifest.tensors[tensor_index]
        return basis(self.manifest.run_id, epoch, tensor_index, tensor, self.manifest.method.rank)

    def _published_in(self, epoch: int) -> Published | None:
        """The last one that began at ``epoch`` or before; None where the basis is random."""
        return self._published[self._starts[bisect_right(self._starts, epoch) - 1]] if self._starts else None


def encode_basis(rank: int, bases: Sequence[Basis]) -> bytes:
    """The file: magic, rank, number of tensors, rows and cols of each, then per tensor U and V, row by row, int8."""
    shapes = [(len(each.u), 0 if each.v is None else len(each.v)) for each in bases]
    entries = [matrix.tobytes() for each in bases for matrix in (each.u, each.v) if matrix is not None]
    numbers = np.array([rank, len(bases), *(size for shape in shapes for size in shape)], dtype=_NUMBERS)
    return b"".join([MAGIC, numbers.tobytes(), *entries])


def rank_and_max(data: bytes) -> tuple[int, int]:
    """Rank and largest |entry| of a basis file of whatever tensors; Reject when it is none."""
    start = len(MAGIC)
    if not data.startswith(MAGIC) or len(data) < start + 2 * _NUMBERS.itemsize:
        raise Reject(RejectReason.BASIS, "no basis file: another beginning")
    rank, tensors = np.frombuffer(data, dtype=_NUMBERS, count=2, offset=start).tolist()
    entries = np.frombuffer(data[start + _NUMBERS.itemsize * (2 + 2 * tensors) :], dtype=np.int8)
    if not len(entries):
        raise Reject(RejectReason.BASIS, "no basis file: no entries")
    return rank, max(1, int(entries.max()), -int(entries.min()))


def decode_basis_untrusted(manifest: Manifest, data: bytes, sha256: str | None = None) -> tuple[Basis, ...]:
    """A published basis of ``manifest``, by tensor number. Reject when ``data`` is not the file that the owner names.

    Args:
        sha256: the hash that a renewal names; None: that of the manifest.
    """
    tensors, method = manifest.tensors, manifest.method
    # [REJECT] SPEC 4.6.1: the file's hash is the one that the owner names
    if hashlib.sha256(data).hexdigest() != (sha256 or method.basis_sha256):
        raise Reject(RejectReason.BASIS, "the SHA-256 is not the one that the run's owner names")
    # [REJECT] SPEC 4.6.2: magic, rank and shapes are those of the run, and nothing follows
    numbers = [method.rank, len(tensors), *(size for tensor in tensors for size in (tensor.rows, tensor.cols))]
    header = MAGIC + np.array(numbers, dtype=_NUMBERS).tobytes()
    if not data.startswith(header) or len(data) != basis_bytes(tensors, method.rank):
        raise Reject(RejectReason.BASIS, "rank or shapes are not those of the run's tensors")
    entries = np.frombuffer(data, dtype=np.int8, offset=len(header)).copy()  # torch warns of memory it may not write
    # [REJECT] SPEC 4.6.3: no entry exceeds basis_max
    if max(int(entries.max()), -int(entries.min())) > method.basis_max:
        raise Reject(RejectReason.BASIS, f"an entry exceeds basis_max, which is {method.basis_max}")
    return tuple(_cut(entries, tensors, method.rank))


def _cut(entries: Int8Array, tensors: Sequence[TensorSpec], rank: int) -> list[Basis]:
    found, start = [], 0
    for tensor in tensors:
        middle = start + tensor.rows * rank
        end = middle + tensor.cols * rank
        v = entries[middle:end].reshape(tensor.cols, rank) if tensor.cols else None
        found.append(Basis(u=entries[start:middle].reshape(tensor.rows, rank), v=v))
        start = end
    return found
