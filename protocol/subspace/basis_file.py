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

MAGIC = b"sfnode/basis/3" + b"\n\0"
EXP_MAX = 60  # of |u_exp| and |v_exp|: the view stays within the range of floats

assert len(MAGIC) == BASIS_MAGIC_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class BasisContent:
    """The content of a file: 2^u_exp u, which all tensors share, and 2^v_exp v of each tensor.

    Attributes:
        u: int8[outputs, core_rows].
        v: of each tensor, int8[inputs, rank].
        v_exps: one for each of them.
    """

    u: Int8Array
    u_exp: int
    v: tuple[Int8Array, ...]
    v_exps: tuple[int, ...]

    def basis(self, index: int) -> Basis:
        return Basis(u=self.u, v=self.v[index], u_exp=self.u_exp, v_exp=self.v_exps[index])


def encode_basis(content: BasisContent) -> bytes:
    """Encode a file: magic, the exponents, U, and the V of each tensor, row by row, int8."""
    exps = np.array([content.u_exp, *content.v_exps], dtype=np.int8)
    return b"".join([MAGIC, exps.tobytes(), content.u.tobytes(), *(v.tobytes() for v in content.v)])


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
    exps, rest = entries[: 1 + len(tensors)].astype(int), entries[1 + len(tensors) :]
    # [REJECT] SPEC 4.6.3: exponents and entries are within their bounds
    if np.abs(exps).max() > EXP_MAX:
        raise Reject(RejectReason.BASIS, f"an exponent exceeds {EXP_MAX}")
    if rest.min() < -BASIS_ENTRY_MAX:
        raise Reject(RejectReason.BASIS, f"an entry exceeds {BASIS_ENTRY_MAX}")
    outputs = tensors[0].outputs
    sizes = [outputs * method.core_rows, *(tensor.inputs * method.rank for tensor in tensors)]
    u, *v = np.split(rest, np.cumsum(sizes)[:-1])
    return BasisContent(
        u=u.reshape(outputs, method.core_rows),
        u_exp=int(exps[0]),
        v=tuple(each.reshape(-1, method.rank) for each in v),
        v_exps=tuple(exps[1:].tolist()),
    )


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

    def of(self, epoch: int, tensor_index: int) -> Basis:
        """Return the basis of one tensor in ``epoch``; a random one is generated at each call."""
        if self._content is not None:
            return self._content.basis(tensor_index)
        tensor = self.manifest.tensors[tensor_index]
        return basis(self.manifest.run_id, epoch, tensor_index, tensor, self.manifest.method.rank)
