"""What a calibration finds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protocol.subspace import Basis, BasisContent, Start

NOT_FINITE: Final = "the model gives numbers that are not finite on the calibration examples; try --dtype fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Means over examples that were held back.

    Attributes:
        accuracy: 0...1; None of completions, which are neither right nor wrong.
    """

    loss: float
    accuracy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBasis:
    """A basis, and what it says of the run that would use it.

    Attributes:
        bases: of every tensor, in the order of the manifest.
        rows: examples that went through the model to find it, each time they did; a backward pass counts as two.
        start: from where the run sets out; None: from the model as it is.
        learning_rate, epsilon_exp: that suit the size of its entries; None: those of `sfnode init`.
        of_start: the start in the model, on examples that it was not fitted to; None: not known, or no start.
        of_model: on the same examples, the model as it is; None: not known.
    """

    bases: tuple[Basis, ...]
    rows: int = 0
    learning_rate: float | None = None
    epsilon_exp: int | None = None
    of_start: Judged | None = None
    of_model: Judged | None = None
    start: Start | None = None

    @property
    def content(self) -> BasisContent:
        """What its file holds."""
        return BasisContent(bases=self.bases, start=self.start)

    @property
    def rank(self) -> int:
        """Columns of each side."""
        return int(self.bases[0].u.shape[1])
