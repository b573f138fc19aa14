"""Where a run's bases come from: the generator (SPEC 4.1), or the file of a dense core's basis (SPEC 4.6). Bytes only.

The file names no shapes: they follow from the manifest, and so does the file's length. Its basis stays the same in
every epoch. No digest depends on it, so a node without the model does not need it.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from protocol.errors import Reject, RejectReason
from protocol.limits import BASIS_ENTRY_MAX
from protocol.run import BASIS_MAGIC_BYTES, Manifest, basis_bytes
from protocol.subspace.directions import Basis, Int8Array, basis

MAGIC = b"sfnode/basis/4" + b"\n\0"
EXP_MAX = 60  # of each |exponent|: the view stays within the range of floats

assert len(MAGIC) == BASIS_MAGIC_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class BasisContent:
    """The content of a file: 2^target_exp target, directions of the stream's end, and the basis of each tensor.

    Attributes:
        target: int8[outputs, core_rows]; of a move of the stream's end, along which candidates' gradients are measured.
        tensors: u int8[outputs, core_rows] and v int8[inputs, rank] of each.
    """

    target: Int8Array
    target_exp: int
    tensors: tuple[Basis, ...]


def encode_basis(content: BasisContent) -> bytes:
    """Encode a file: magic, the exponents, the target, and U and V of each tensor, row by row, int8."""
    sides = [side for each in content.tensors for side in (each.u, each.v) if side is not None]
    exps = [exp for each in content.tensors for exp in (each.u_exp, each.v_exp)]
    numbers = [np.array([content.target_exp, *exps], dtype=np.int8), content.target, *sides]
    return MAGIC + b"".join(each.tobytes() for each in numbers)


def decode_basis_untrusted(manifest: Manifest, data: bytes) -> BasisContent:
    """Decode the basis of ``manifest``. Raises Reject when ``data`` is not the file that the owner names."""
    tensors, method = manifest.tensors, manifest.method
    # [REJECT] SPEC 4.6.1: the file's hash is the one that the owner names
    if hashlib.sha256(data).hexdigest() != method.basis_sha256:
        raise Reject(RejectReason.BASIS, "the SHA-256 is not the one that the run's owner names")
    # [REJECT] SPEC 4.6.2: the magic, and the length that the run's tensors need
    if not data.startswith(MAGIC) or len(data) != basis_bytes(manifest):
        raise Reject(RejectReason.BASIS, "magic or length are not those of a basis of the run's tensors")
    entries = np.frombuffer(data, dtype=np.int8, offset=len(MAGIC)).copy()  # torch warns of memory it may not write
    exps, rest = np.split(entries, [1 + 2 * len(tensors)])
    # [REJECT] SPEC 4.6.3: exponents and entries are within their bounds
    if np.abs(exps.astype(int)).max() > EXP_MAX:
        raise Reject(RejectReason.BASIS, f"an exponent exceeds {EXP_MAX}")
    if rest.min() < -BASIS_ENTRY_MAX:
        raise Reject(RejectReason.BASIS, f"an entry exceeds {BASIS_ENTRY_MAX}")
    written = tensors[0].outputs * method.core_rows
    sizes = [written, *(size for tensor in tensors for size in (written, tensor.inputs * method.rank))]
    target, *sides = np.split(rest, np.cumsum(sizes)[:-1])
    target_exp, *side_exps = exps.tolist()
    found = [
        Basis(u=u.reshape(-1, method.core_rows), v=v.reshape(-1, method.rank), u_exp=u_exp, v_exp=v_exp)
        for u, v, u_exp, v_exp in zip(sides[::2], sides[1::2], side_exps[::2], side_exps[1::2], strict=True)
    ]
    return BasisContent(target=target.reshape(-1, method.core_rows), target_exp=target_exp, tensors=tuple(found))


class Bases:
    """Knows the basis of every tensor in every epoch of one run.

    Args:
        manifest: of the run.
        content: of the basis's file, exactly when the run has a dense core (`decode_basis_untrusted`).
    """

    def __init__(self, manifest: Manifest, content: BasisContent | None = None) -> None:
        assert (content is not None) == manifest.method.is_dense
        self.manifest = manifest
        self._content = content

    def name(self, epoch: int) -> str:
        """Return the name of an epoch's basis. Epochs of one name have the same basis, so their coefficients add up."""
        return f"epoch {epoch}" if self._content is None else "of all epochs"

    def target(self) -> tuple[Int8Array, int]:
        """Return the target of a run with a dense core, and its exponent."""
        assert self._content is not None
        return self._content.target, self._content.target_exp

    def of(self, epoch: int, tensor_index: int) -> Basis:
        """Return the basis of one tensor in ``epoch``; a random one is generated at each call."""
        if self._content is not None:
            return self._content.tensors[tensor_index]
        tensor = self.manifest.tensors[tensor_index]
        return basis(self.manifest.run_id, epoch, tensor_index, tensor, self.manifest.method.rank)
