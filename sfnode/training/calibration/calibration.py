"""Hold what a basis is found from, and choose examples of it: one object, and one way to hold some of them back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from protocol.run import TensorSpec
from sfnode.training.calibration.found_basis import Judged
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, Scores, TaskData, batch_of, chunks_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """Holds what a basis is found from: a loaded model, the tensors that its run trains, and the owner's examples.

    Attributes:
        tensors: in the order in which a manifest lists them.
        data: the examples, and how they become prompts and labels.
    """

    shared: SharedModel
    tensors: Sequence[TensorSpec]
    data: TaskData

    def only(self, examples: Sequence[Example]) -> Calibration:
        """Return the same model and tensors with other examples."""
        return replace(self, data=replace(self.data, examples=tuple(examples)))

    @property
    def rows(self) -> int:
        """Return the number of rows that all examples take in a forward pass."""
        return rows_in(self.data.examples)

    def scores(self, examples: Sequence[Example]) -> Scores:
        """Score examples in one batch."""
        return self.shared.scores(batch_of(self.data, examples, 1, self.shared.device), self.data.label_tokens)

    @torch.inference_mode()
    def judge(self, examples: Sequence[Example]) -> Scores:
        """Score examples in chunks sorted by length, without gradients."""
        found = [self.scores(chunk) for chunk in chunks_of(examples, EVALUATION_TOKENS)]
        return Scores(
            loss=torch.cat([each.loss for each in found]),
            prediction=torch.cat([each.prediction for each in found]),
            right=torch.cat([each.right for each in found]),
        )


def choose_evenly(examples: Sequence[Example], count: int) -> tuple[list[Example], list[Example]]:
    """Choose ``count`` examples that lie evenly over all, since files are often sorted by label; return also the rest.

    All that are held back from a fit or from training are chosen in this way, but for the fit of a start (`forward`).
    """
    count = min(count, len(examples))
    chosen = {number * len(examples) // count for number in range(count)}
    return (
        [example for number, example in enumerate(examples) if number in chosen],
        [example for number, example in enumerate(examples) if number not in chosen],
    )


def rows_in(examples: Sequence[Example]) -> int:
    """Return the number of rows that the examples take in a forward pass."""
    return sum(example.rows for example in examples)


def judged(scores: Scores, *, is_completion: bool) -> Judged:
    """Return the means of scores."""
    return Judged(loss=float(scores.loss.mean()), accuracy=None if is_completion else float(scores.right.mean()))
