"""Hold what a basis is found from, and choose examples of it: one object, and one way to hold some of them back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from protocol.run import TensorSpec
from sfnode.training.calibration.found_basis import Judged
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import Example, Scores, TaskData, batch_of, chunks_of

T = TypeVar("T")


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


def hold_back(items: Sequence[T], *, most: int, share: int = 1, is_share_out: bool = False) -> tuple[list[T], list[T]]:
    """Return the items to learn from, and others that judge what was learnt: one of ``share``, at most ``most``.

    Those lie evenly over all, since items are often sorted by label or length. ``is_share_out``: one of ``share``
    is left out even where fewer judge, as in the fit of every start so far; other numbers would give it other bytes.
    """
    if is_share_out:
        left_out: Sequence[int] = range(share - 1, len(items), share)
        held = left_out[:: max(1, -(-len(left_out) // most))]
    else:
        count = min(most, len(items) // share)
        left_out = held = [number * len(items) // count for number in range(count)]
    out = frozenset(left_out)
    return [item for number, item in enumerate(items) if number not in out], [items[number] for number in held]


def rows_in(examples: Sequence[Example]) -> int:
    """Return the number of rows that the examples take in a forward pass."""
    return sum(example.rows for example in examples)


def judged(scores: Scores, *, is_completion: bool) -> Judged:
    """Return the means of scores."""
    return Judged(loss=float(scores.loss.mean()), accuracy=None if is_completion else float(scores.right.mean()))
