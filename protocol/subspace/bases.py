"""Where a run's bases come from: the generator, or the file of a dense core's basis (SPEC 4.1, 4.6).

The file's basis stays the same in every epoch. No digest depends on it, so a node without the model does not need it.
"""

from protocol.run import Manifest
from protocol.subspace.basis_file import BasisContent
from protocol.subspace.directions import Basis, basis


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
