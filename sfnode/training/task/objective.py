"""Compute what a run minimises, one number per group of rows: the mean loss, or one minus a metric of its predictions.

A metric has no gradient, but its difference between two points of weight space can be measured like that of a loss.
"""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor

from protocol.errors import NumericError
from protocol.run import Objective
from sfnode.training.task.scoring import Scores


def group_objectives(objective: Objective, scores: Scores, labels_N: Tensor, groups: int) -> Tensor:
    """Return the objective of N examples in ``groups`` contiguous groups of equal size, fp64[G] on the CPU.

    Raises:
        NumericError: a loss is not finite; the predictions are meaningless too then.
    """
    loss_G = scores.loss.view(groups, -1).mean(dim=1).to("cpu", torch.float64)
    if not bool(loss_G.isfinite().all()):
        raise NumericError("the loss is not finite: the model overflowed; this step is skipped")
    match objective:
        case Objective.LOSS:
            return loss_G
        case Objective.ACCURACY:
            return 1 - scores.right.view(groups, -1).to("cpu", torch.float64).mean(dim=1)
        case Objective.F1:
            return 1 - macro_f1(scores.prediction.view(groups, -1).cpu(), labels_N.view(groups, -1).cpu())
        case _:
            assert_never(objective)


def macro_f1(prediction_GN: Tensor, label_GN: Tensor) -> Tensor:
    """Return the mean F1 over the labels that occur among a group's labels or predictions, fp64[G]."""
    classes = 1 + int(torch.maximum(prediction_GN, label_GN).max())
    numbers = torch.arange(classes)
    is_predicted_GNC, is_label_GNC = prediction_GN[..., None] == numbers, label_GN[..., None] == numbers
    both_GC = (is_predicted_GNC & is_label_GNC).sum(dim=1)
    either_GC = is_predicted_GNC.sum(dim=1) + is_label_GNC.sum(dim=1)  # 2 TP + FP + FN
    f1_GC = 2 * both_GC.to(torch.float64) / either_GC.clamp(min=1)
    return f1_GC.sum(dim=1) / (either_GC > 0).sum(dim=1)
