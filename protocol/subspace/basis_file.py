"""The file of a published basis: its bytes, and the checks that it must pass (SPEC 4.6). Bytes only, no files here."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from protocol.errors import Reject, RejectReason
from protocol.run import Manifest, Method, TensorKind, TensorSpec, basis_bytes
from protocol.subspace.directions import Basis, Int8Array

MAGIC = b"sfnode/basis/2" + b"\n\0"
START_EXP_MIN: Final = -60
_HEAD = struct.Struct(">16s3Ii")  # magic, rank, tensors, start rank, start exponent; the shapes follow
_SHAPE_BYTES: Final = 8  # rows and cols of a tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a file adds to the weights from its first epoch on: 2^(exp - 2 basis_unit_exp) U V^T to each matrix.

    Attributes:
        exp: START_EXP_MIN ... 0.
        products: U and V of each tensor, int8 with as many columns as the start's rank; None for a vector.
    """

    exp: int
    products: tuple[Basis | None, ...]

    def view_exp(self, method: Method) -> int:
        """Return e such that the file adds 2^e U V^T to a matrix, for the integers U and V."""
        return self.exp - 2 * method.basis_unit_exp

    def moves(self, index: int) -> bool:
        """Return whether the start changes the tensor of this number."""
        product = self.products[index]
        return product is not None and bool(product.u.any())

    @property
    def moves_any(self) -> bool:
        """Return whether the start changes any tensor: a file that has nothing to add holds zeros."""
        return any(self.moves(index) for index in range(len(self.products)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BasisContent:
    """The content of a file: the basis of each tensor by its number, and the start if there is one."""

    bases: tuple[Basis, ...]
    start: Start | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BasisShape:
    """The properties of a file that a manifest states: ranks (``start_rank`` 0: no start) and the largest |entry|."""

    rank: int
    start_rank: int
    entry_max: int


def encode_basis(rank: int, content: BasisContent) -> bytes:
    """Encode a file: magic, rank, number of tensors, rank and exponent of the start, rows and cols of each tensor.

    Then follow U and V of each tensor, row by row, int8, and then those of the start for each matrix.
    """
    start = content.start
    products = [] if start is None else [each for each in start.products if each is not None]
    start_rank = products[0].u.shape[1] if products else 0
    shapes = [(len(each.u), 0 if each.v is None else len(each.v)) for each in content.bases]
    head = _header(rank, shapes, start_rank, 0 if start is None else start.exp)
    return b"".join([head, *_entries(content.bases), *_entries(products)])


def _header(rank: int, shapes: Sequence[tuple[int, int]], start_rank: int, start_exp: int) -> bytes:
    return _HEAD.pack(MAGIC, rank, len(shapes), start_rank, start_exp) + np.array(shapes, dtype=">u4").tobytes()


def _entries(bases: Iterable[Basis]) -> list[bytes]:
    return [matrix.tobytes() for each in bases for matrix in (each.u, each.v) if matrix is not None]


def shape_of_basis(data: bytes) -> BasisShape:
    """Return ranks and largest |entry| of a basis file with any tensors. Raises Reject when it is not a basis file."""
    if not data.startswith(MAGIC) or len(data) < _HEAD.size:
        raise Reject(RejectReason.BASIS, "not a basis file: it begins differently")
    _, rank, tensors, start_rank, _ = _HEAD.unpack_from(data)
    entries = np.frombuffer(data[_HEAD.size + _SHAPE_BYTES * tensors :], dtype=np.int8)
    if not len(entries):
        raise Reject(RejectReason.BASIS, "not a basis file: it has no entries")
    return BasisShape(rank=rank, start_rank=start_rank, entry_max=max(1, _largest(entries)))


def decode_basis_untrusted(manifest: Manifest, data: bytes, sha256: str | None = None) -> BasisContent:
    """Decode a published basis of ``manifest``. Raises Reject when ``data`` is not the file that the owner names.

    Args:
        sha256: the hash that a renewal names; None: that of the manifest.
    """
    tensors, method = manifest.tensors, manifest.method
    # [REJECT] SPEC 4.6.1: the file's hash is the one that the owner names
    if hashlib.sha256(data).hexdigest() != (sha256 or method.basis_sha256):
        raise Reject(RejectReason.BASIS, "the SHA-256 is not the one that the run's owner names")
    # [REJECT] SPEC 4.6.2: magic, ranks and shapes are those of the run, and nothing follows
    start_rank = method.start_rank
    start_exp = int.from_bytes(data[_HEAD.size - 4 : _HEAD.size], "big", signed=True)
    header = _header(method.rank, [(tensor.rows, tensor.cols) for tensor in tensors], start_rank, start_exp)
    if not data.startswith(header) or len(data) != basis_bytes(manifest):
        raise Reject(RejectReason.BASIS, "ranks or shapes are not those of the run's tensors")
    # [REJECT] SPEC 4.6.3: the start's exponent is within its bounds
    if not (START_EXP_MIN if start_rank else 0) <= start_exp <= 0:
        raise Reject(RejectReason.BASIS, f"the start's exponent {start_exp} is out of bounds")
    entries = np.frombuffer(data, dtype=np.int8, offset=len(header)).copy()  # torch warns of memory it may not write
    # [REJECT] SPEC 4.6.4: no entry exceeds basis_max
    if _largest(entries) > method.basis_max:
        raise Reject(RejectReason.BASIS, f"an entry exceeds basis_max, which is {method.basis_max}")
    cut = _Cut(entries)
    bases = tuple(cut.basis(tensor, method.rank) for tensor in tensors)
    if not start_rank:
        return BasisContent(bases=bases)
    products = [cut.basis(tensor, start_rank) if tensor.kind is TensorKind.MATRIX else None for tensor in tensors]
    return BasisContent(bases=bases, start=Start(exp=start_exp, products=tuple(products)))


def _largest(entries: Int8Array) -> int:
    return max(int(entries.max()), -int(entries.min()))


class _Cut:
    """Takes matrices off the front of a file's entries."""

    def __init__(self, entries: Int8Array) -> None:
        self._rest = entries

    def basis(self, tensor: TensorSpec, rank: int) -> Basis:
        """Take the U of a tensor, and the V when it is a matrix."""
        u = self._matrix(tensor.rows, rank)
        return Basis(u=u, v=self._matrix(tensor.cols, rank) if tensor.cols else None)

    def _matrix(self, rows: int, rank: int) -> Int8Array:
        found, self._rest = self._rest[: rows * rank], self._rest[rows * rank :]
        return found.reshape(rows, rank)
