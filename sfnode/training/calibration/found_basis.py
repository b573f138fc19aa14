"""What a calibration finds."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.subspace import Basis, BasisContent, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBasis:
    """A basis, and what it says of the run that would use it.

    Attributes:
        bases: of every tensor, in the order of the manifest.
        rows: examples that went through the model to find it, each time they did; a backward pass counts as two.
        start: from where the run sets out; None: from the model as it is.
        learning_rate, epsilon_exp: that suit the size of its entries; None: those of `sfnode init`.
        accuracy: 0...1, of the start in the model, on examples that it was not fitted to; None: not known, or no start.
        accuracy_alone: on the same examples, of the model as it is; None: not known.
    """

    bases: tuple[Basis, ...]
    rows: int = 0
    learning_rate: float | None = None
    epsilon_exp: int | None = None
    accuracy: float | None = None
    accuracy_alone: float | None = None
    start: Start | None = None

    @property
    def content(self) -> BasisContent:
        """What its file holds."""
        return BasisContent(bases=self.bases, start=self.start)

    @property
    def rank(self) -> int:
        """Columns of each side."""
        return int(self.bases[0].u.shape[1])
