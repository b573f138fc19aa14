"""A node's results on held-out data, in files next to the ledger: step by step, and what the run has given."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from protocol.errors import OperatorError
from protocol.schema import Malformed, from_plain_untrusted, to_plain
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Holds what the run has given to a node, measured on the same rows.

    Attributes:
        before: the model alone.
        own: a model that has learned from the node's own examples alone, in as many steps; None: not measured.
        after: the model of the run.
    """

    before: EvaluatedStep
    own: EvaluatedStep | None
    after: EvaluatedStep

    def in_words(self) -> str:
        """Return the accuracies, the number of rows, the step, and the command that measures them again."""
        text = f"{100 * self.after.accuracy:.1f} % together, {100 * self.before.accuracy:.1f} % the model alone"
        again = "`sfnode eval --compare` measures your own examples alone, too"
        if self.own is not None:
            text += f", {100 * self.own.accuracy:.1f} % your own examples alone"
            again = "`sfnode eval --compare` measures it again"
        return f"{text} ({self.after.rows:,} rows, step {self.after.step}; {again})"


class GainFile:
    """Reads and writes the last comparison by ``sfnode eval --compare``."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Gain | None:
        """Return the gain; None if there is no file. OperatorError: the file cannot be read."""
        if not self._path.exists():
            return None
        try:
            return from_plain_untrusted(Gain, json.loads(read_bytes(self._path, "the gain")), "gain")
        except (ValueError, RecursionError, Malformed):
            raise OperatorError(f"{self._path} is damaged. Remove it: `sfnode eval --compare` writes it anew") from None

    def write(self, gain: Gain) -> None:
        """Replace the file. OperatorError if it cannot be written."""
        write_json(self._path, to_plain(gain, as_rows=False))


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


def gain_of(evaluations: Sequence[EvaluatedStep]) -> Gain | None:
    """Return the gain from the first evaluation to the last; None if the first is not of the model alone."""
    if not evaluations or evaluations[0].step:
        return None
    return Gain(before=evaluations[0], own=None, after=evaluations[-1])


def has_become_worse(evaluations: Sequence[EvaluatedStep]) -> bool:
    """Return whether the last three evaluations, all after the best, have a mean loss above 105 % of the best loss."""
    best = best_of(evaluations)
    later = [each.loss for each in evaluations[-_LATER:] if best is not None and each.step > best.step]
    return best is not None and len(later) == _LATER and sum(later) > _LATER * _WORSE * best.loss
