"""Where a run's bases come from: the generator, or files that its owner names by their hashes (SPEC 4.1, 4.6).

A published basis is what the run's owner found worth searching, for instance from one calibration gradient: int8
entries, the same in every epoch until the owner renews it. No digest depends on it, so a node without the model does
without it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocol.run import BasisKind, Manifest
from protocol.subspace.basis_file import BasisContent, Start
from protocol.subspace.directions import Basis, basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published basis: the SHA-256 of its file, 64 hex digits, and what the file holds, by tensor number."""

    sha256: str
    bases: Sequence[Basis]


class Bases:
    """The basis of every tensor in every epoch of one run, and the start.

    Args:
        manifest: of the run.
        published: given exactly when the manifest's basis is published (`decode_basis_untrusted`).
        renewals: later ones, by the first epoch that has them (`Roster.renewals`).
    """

    def __init__(
        self,
        manifest: Manifest,
        published: BasisContent | None = None,
        renewals: Mapping[int, Published] | None = None,
    ) -> None:
        assert (published is not None) == (manifest.method.basis is BasisKind.PUBLISHED)
        self.manifest = manifest
        self._published: dict[int, Published] = {}
        self.start: Start | None = None
        if published is not None:
            first = Published(sha256=manifest.method.basis_sha256, bases=published.bases)
            self._published = {0: first, **(renewals or {})}
            self.start = published.start
        self._starts = sorted(self._published)

    def name(self, epoch: int) -> str:
        """The name of an epoch's basis: epochs of one name have the same basis, and their coefficients add up."""
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
