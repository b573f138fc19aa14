"""A node's results on its held-out data, step by step, in a file next to the ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from protocol.errors import OperatorError
from sfnode.storage.disk import read_bytes, write_json

BEST_STEP: Final = "best"
AtStep = int | Literal["best"]

_LATER: Final = 3  # how many evaluations after the best one decide whether the run gets worse
_WORSE: Final = 1.05  # their mean loss, as a multiple of the best loss


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedStep:
    """Holds the result for the model after all steps before ``step``.

    Attributes:
        accuracy: 0...1.
        loss: mean over the rows, in nats.
        rows: number of rows.
    """

    step: int
    accuracy: float
    loss: float
    rows: int


class EvaluationsFile:
    """Reads and writes the evaluations of one node."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[EvaluatedStep]:
        """Return the evaluations by step; none if there is no file. OperatorError: the file cannot be read."""
        if not self._path.exists():
            return []
        try:
            found = [
                EvaluatedStep(
                    step=int(each["step"]),
                    accuracy=float(each["accuracy"]),
                    loss=float(each["loss"]),
                    rows=int(each["rows"]),
                )
                for each in json.loads(read_bytes(self._path, "evaluations"))
            ]
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise OperatorError(
                f"{self._path} is damaged. Remove it: only the best step so far is forgotten with it"
            ) from None
        return sorted(found, key=lambda each: each.step)

    def write(self, evaluations: Sequence[EvaluatedStep]) -> None:
        """Replace the file. OperatorError if it cannot be written."""
        write_json(self._path, [asdict(each) for each in evaluations])

    def step_at(self, at_step: AtStep) -> int:
        """Return the number of a step, also for `BEST_STEP`. OperatorError: nothing was measured on held-out data."""
        if at_step != BEST_STEP:
            return at_step
        best = best_of(self.read())
        if best is None:
            raise OperatorError(
                f"{self._path.parent}: no best step is known, because this node measured nothing on held-out data. "
                "Give the number of a step; or start nodes with --eval-data"
            )
        return best.step


def best_of(evaluations: Sequence[EvaluatedStep]) -> EvaluatedStep | None:
    """Return the evaluation with the least loss, the earliest of several; None if there are none."""
    return min(evaluations, key=lambda each: each.loss, default=None)


def has_become_worse(evaluations: Sequence[EvaluatedStep]) -> bool:
    """Return whether the last three evaluations, all after the best, have a mean loss above 105 % of the best loss."""
    best = best_of(evaluations)
    later = [each.loss for each in evaluations[-_LATER:] if best is not None and each.step > best.step]
    return best is not None and len(later) == _LATER and sum(later) > _LATER * _WORSE * best.loss
