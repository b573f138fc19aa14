"""Hold the result of a calibration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from protocol.run import TensorSpec
from protocol.subspace import Basis, BasisContent, Start
from sfnode.storage import DenseSettings

NOT_FINITE: Final = "the model gives numbers that are not finite on the calibration examples; try --dtype fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Means over held-back examples.

    Attributes:
        accuracy: 0...1; None of completions, which are neither right nor wrong.
    """

    loss: float
    accuracy: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBasis:
    """A basis, with the settings and prospects of a run that uses it.

    Attributes:
        bases: of every tensor, in the order of the manifest.
        rows: that went through the model to find it, counted each time; a backward pass counts as two.
        start: of the run; None: the unchanged model.
        learning_rate, epsilon_exp: that suit the size of the entries; None: the defaults of `sfnode init`.
        of_start: the model with the start, on examples that it was not fitted to; None: unknown, or no start.
        of_model: the unchanged model on the same examples; None: unknown.
        dense: for a dense core; None: the run draws its directions.
        tensors: with a dense core.
    """

    bases: tuple[Basis, ...]
    rows: int = 0
    learning_rate: float | None = None
    epsilon_exp: int | None = None
    of_start: Judged | None = None
    of_model: Judged | None = None
    start: Start | None = None
    tensors: tuple[TensorSpec, ...] = ()
    dense: DenseSettings | None = None

    @property
    def content(self) -> BasisContent:
        """Return the content of its file."""
        core_rows = 0 if self.dense is None else self.dense.core_rows
        return BasisContent(bases=self.bases, start=self.start, core_rows=core_rows)

    @property
    def rank(self) -> int:
        """Return the number of columns of each side; of a dense core, of the input side."""
        first = self.bases[0]
        return int((first.u if self.dense is None or first.v is None else first.v).shape[1])
