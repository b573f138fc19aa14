"""The file of a published basis: its bytes, and the checks that it must pass (SPEC 4.6). Bytes only, no files here."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from protocol.errors import Reject, RejectReason
from protocol.run import Manifest, TensorSpec, basis_bytes
from protocol.subspace.directions import Basis, Int8Array

MAGIC = b"sfnode/basis/1" + b"\n\0"
_NUMBERS = np.dtype(">u4")


def encode_basis(rank: int, bases: Sequence[Basis]) -> bytes:
    """The file: magic, rank, number of tensors, rows and cols of each, then per tensor U and V, row by row, int8."""
    shapes = [(len(each.u), 0 if each.v is None else len(each.v)) for each in bases]
    entries = [matrix.tobytes() for each in bases for matrix in (each.u, each.v) if matrix is not None]
    numbers = np.array([rank, len(bases), *(size for shape in shapes for size in shape)], dtype=_NUMBERS)
    return b"".join([MAGIC, numbers.tobytes(), *entries])


def rank_and_max(data: bytes) -> tuple[int, int]:
    """Rank and largest |entry| of a basis file, whatever its tensors; Reject when ``data`` is not a basis file."""
    start = len(MAGIC)
    if not data.startswith(MAGIC) or len(data) < start + 2 * _NUMBERS.itemsize:
        raise Reject(RejectReason.BASIS, "not a basis file: it begins differently")
    rank, tensors = np.frombuffer(data, dtype=_NUMBERS, count=2, offset=start).tolist()
    entries = np.frombuffer(data[start + _NUMBERS.itemsize * (2 + 2 * tensors) :], dtype=np.int8)
    if not len(entries):
        raise Reject(RejectReason.BASIS, "not a basis file: it has no entries")
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
