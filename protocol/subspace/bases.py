"""Where a run's bases come from: the generator, or files that its owner names by their hashes (SPEC 4.1, 4.6).

A published basis spans what the run's owner found worth searching, for instance from one calibration gradient. Its
entries are int8 and stay the same in every epoch until the owner renews it. No digest depends on it, so a node without
the model does not need it.
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
    """A published basis: the SHA-256 of its file (64 hex digits) and the file's content, by tensor number."""

    sha256: str
    bases: Sequence[Basis]
    start: Start | None = None


class Bases:
    """Knows the basis of every tensor in every epoch of one run, and the starts.

    Args:
        manifest: of the run.
        published: given exactly when the manifest's basis is published (`decode_basis_untrusted`).
        renewals: later published bases, by the first epoch that uses them (`Roster.renewals`).
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
        if published is not None:
            first = Published(sha256=manifest.method.basis_sha256, bases=published.bases, start=published.start)
            self._published = {0: first, **(renewals or {})}
        self._firsts = sorted(self._published)
        self._starts: dict[str, tuple[int, Start]] = {}  # by file: its first epoch, ascending, and its start
        for epoch in self._firsts:
            found = self._published[epoch]
            if found.start is not None and found.start.moves_any:
                self._starts.setdefault(found.sha256, (epoch, found.start))

    def name(self, epoch: int) -> str:
        """Return the name of an epoch's basis. Epochs of one name have the same basis, so their coefficients add up."""
        found = self._published_in(epoch)
        return f"epoch {epoch}" if found is None else found.sha256

    def of(self, epoch: int, tensor_index: int) -> Basis:
        """Return the basis of one tensor in ``epoch``; a random one is generated at each call."""
        found = self._published_in(epoch)
        if found is not None:
            return found.bases[tensor_index]
        tensor = self.manifest.tensors[tensor_index]
        return basis(self.manifest.run_id, epoch, tensor_index, tensor, self.manifest.method.rank)

    def starts(self, epoch: int) -> dict[str, Start]:
        """Return the starts added to the weights in ``epoch``, by the SHA-256 of their files, by first epoch.

        A file counts once, however often the owner names it. A file that adds nothing is left out.
        """
        return {sha256: start for sha256, (first, start) in self._starts.items() if first <= epoch}

    def _published_in(self, epoch: int) -> Published | None:
        """Return the published basis in use in ``epoch``; None when the run's basis is random."""
        return self._published[self._firsts[bisect_right(self._firsts, epoch) - 1]] if self._firsts else None
