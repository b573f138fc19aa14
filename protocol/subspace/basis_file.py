"""The file of a published basis: its bytes, and the checks that it must pass (SPEC 4.6). Bytes only, no files here."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from protocol.errors import Reject, RejectReason
from protocol.limits import DENSE_EXP_MAX
from protocol.run import Manifest, Method, TensorKind, TensorSpec, basis_bytes
from protocol.subspace.directions import Basis, Int8Array

MAGIC = b"sfnode/basis/2" + b"\n\0"
DENSE_MAGIC = b"sfnode/dense/1" + b"\n\0"
START_EXP_MIN: Final = -60
_DENSE_HEAD = struct.Struct(">16s3I")  # magic, rank, tensors, core rows; the tensors follow
_DENSE_TENSOR = struct.Struct(">2I2b")  # rows, cols, the exponents of U and V
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
    """The content of a file: the basis of each tensor by its number, and the start if there is one.

    ``core_rows``: of a dense core; 0 with any other.
    """

    bases: tuple[Basis, ...]
    start: Start | None = None
    core_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BasisShape:
    """The properties of a file that a manifest states: ranks (``start_rank`` 0: no start) and the largest |entry|.

    ``core_rows``: of a dense core; 0: the file is of another kind.
    """

    rank: int
    start_rank: int
    entry_max: int
    core_rows: int = 0


def encode_basis(rank: int, content: BasisContent) -> bytes:
    """Encode a file: magic, rank, number of tensors, rank and exponent of the start, rows and cols of each tensor.

    Then follow U and V of each tensor, row by row, int8, and then those of the start for each matrix.
    A dense basis has a head of its own (SPEC 4.7).
    """
    if content.core_rows:
        head = _dense_header(rank, content)
        return b"".join([head, *_entries(content.bases)])
    start = content.start
    products = [] if start is None else [each for each in start.products if each is not None]
    start_rank = products[0].u.shape[1] if products else 0
    head = _header(rank, _shapes(content.bases), start_rank, 0 if start is None else start.exp)
    return b"".join([head, *_entries(content.bases), *_entries(products)])


def _dense_header(rank: int, content: BasisContent) -> bytes:
    shapes = _shapes(content.bases)
    head = _DENSE_HEAD.pack(DENSE_MAGIC, rank, len(shapes), content.core_rows)
    tensors = [
        _DENSE_TENSOR.pack(*shape, each.u_exp, each.v_exp) for each, shape in zip(content.bases, shapes, strict=True)
    ]
    return b"".join([head, *tensors])


def _shapes(bases: Iterable[Basis]) -> list[tuple[int, int]]:
    return [(len(each.u), 0 if each.v is None else len(each.v)) for each in bases]


def _header(rank: int, shapes: Sequence[tuple[int, int]], start_rank: int, start_exp: int) -> bytes:
    return _HEAD.pack(MAGIC, rank, len(shapes), start_rank, start_exp) + np.array(shapes, dtype=">u4").tobytes()


def _entries(bases: Iterable[Basis]) -> list[bytes]:
    return [matrix.tobytes() for each in bases for matrix in (each.u, each.v) if matrix is not None]


def shape_of_basis(data: bytes) -> BasisShape:
    """Return ranks and largest |entry| of a basis file with any tensors. Raises Reject when it is not a basis file."""
    is_dense = data.startswith(DENSE_MAGIC)
    if not (is_dense or data.startswith(MAGIC)) or len(data) < _HEAD.size:
        raise Reject(RejectReason.BASIS, "not a basis file: it begins differently")
    _, rank, tensors, start_rank = _DENSE_HEAD.unpack_from(data)
    before = _DENSE_HEAD.size + _DENSE_TENSOR.size * tensors if is_dense else _HEAD.size + _SHAPE_BYTES * tensors
    entries = np.frombuffer(data[before:], dtype=np.int8)
    if not len(entries):
        raise Reject(RejectReason.BASIS, "not a basis file: it has no entries")
    largest = max(1, _largest(entries))
    if is_dense:
        return BasisShape(rank=rank, start_rank=0, entry_max=largest, core_rows=start_rank)
    return BasisShape(rank=rank, start_rank=start_rank, entry_max=largest)


def decode_basis_untrusted(manifest: Manifest, data: bytes, sha256: str | None = None) -> BasisContent:
    """Decode a published basis of ``manifest``. Raises Reject when ``data`` is not the file that the owner names.

    Args:
        sha256: the hash that a renewal names; None: that of the manifest.
    """
    tensors, method = manifest.tensors, manifest.method
    # [REJECT] SPEC 4.6.1: the file's hash is the one that the owner names
    if hashlib.sha256(data).hexdigest() != (sha256 or method.basis_sha256):
        raise Reject(RejectReason.BASIS, "the SHA-256 is not the one that the run's owner names")
    if method.is_dense:
        return _decode_dense(manifest, data)
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


def _decode_dense(manifest: Manifest, data: bytes) -> BasisContent:
    """Decode a basis for a dense core, whose hash is right (SPEC 4.7). Raises Reject."""
    tensors, method = manifest.tensors, manifest.method
    # [REJECT] SPEC 4.7.1: the length, magic, ranks and shapes are those of the run
    head = _DENSE_HEAD.pack(DENSE_MAGIC, method.rank, len(tensors), method.core_rows)
    if len(data) != basis_bytes(manifest) or not data.startswith(head):
        raise Reject(RejectReason.BASIS, "ranks or length are not those of the run's dense core")
    end = len(head) + _DENSE_TENSOR.size * len(tensors)
    told = list(_DENSE_TENSOR.iter_unpack(data[len(head) : end]))
    if [(rows, cols) for rows, cols, _, _ in told] != [(tensor.rows, tensor.cols) for tensor in tensors]:
        raise Reject(RejectReason.BASIS, "shapes are not those of the run's tensors")
    # [REJECT] SPEC 4.7.2: exponents and entries are within their bounds
    if any(abs(exp) > DENSE_EXP_MAX for _, _, *exps in told for exp in exps):
        raise Reject(RejectReason.BASIS, f"an exponent exceeds {DENSE_EXP_MAX}")
    entries = np.frombuffer(data, dtype=np.int8, offset=end).copy()
    if _largest(entries) > method.basis_max:
        raise Reject(RejectReason.BASIS, f"an entry exceeds basis_max, which is {method.basis_max}")
    cut = _Cut(entries)
    bases = tuple(cut.dense_basis(tensor, method, *exps) for tensor, (_, _, *exps) in zip(tensors, told, strict=True))
    return BasisContent(bases=bases, core_rows=method.core_rows)


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

    def dense_basis(self, tensor: TensorSpec, method: Method, u_exp: int, v_exp: int) -> Basis:
        """Take the U and V of a matrix with a dense core."""
        u = self._matrix(tensor.rows, method.core_rows)
        return Basis(u=u, v=self._matrix(tensor.cols, method.rank), u_exp=u_exp, v_exp=v_exp)

    def _matrix(self, rows: int, rank: int) -> Int8Array:
        found, self._rest = self._rest[: rows * rank], self._rest[rows * rank :]
        return found.reshape(rows, rank)
