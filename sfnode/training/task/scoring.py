"""Score hidden states for a task: logits, likelihoods, losses, predictions, and what the run minimises of them.

The output head, softmax and losses use the loss dtype (fp32; fp64 for an fp64 model), only at the positions that count.
Shapes: N examples, L label words, R rows, T tokens, S candidates of all examples, of which one has at most C,
P positions that count, A hidden states of any kind, H width of the hidden state, G groups of contiguous rows,
V vocabulary, r rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never, cast

import torch
from torch import Tensor, nn

from protocol.errors import NumericError
from protocol.run import Objective
from sfnode.training.model import LogitScale, MatrixTerm, PassContext
from sfnode.training.task.candidates import CandidateBatch

LOGITS_MAX = 1 << 24  # at a time, 64 MiB in fp32: a large vocabulary is processed in parts
# Weights of a 16-bit head that are widened at a time: on the CPU 8 MiB in fp32, which is up to five times as quick as
# all at once; on a card, where each part costs the start of some kernels, 64 MiB.
WIDENED_MAX = {"cpu": 1 << 21}
_WIDENED_ON_CARDS_MAX = 1 << 24

Words = Tensor | slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Holds losses and predictions of N examples.

    Attributes:
        loss: [N] in the loss dtype. Label words and choices: cross entropy over the candidates' scores; a candidate's
            score is the mean log-likelihood of its tokens. Completion: minus the mean log-likelihood of its tokens.
        prediction: int64[N], the candidate with the largest score; 0 for a completion.
        right: [N], 1 where that is the label, else 0. Completion: the share of its tokens that are the likeliest.
    """

    loss: Tensor
    prediction: Tensor
    right: Tensor


class OutputHead:
    """Computes logits: the output embedding with its term in the current pass (tied or trained head), then scaling."""

    def __init__(self, linear: nn.Linear, name: str, context: PassContext, scale: LogitScale) -> None:
        self._linear = linear
        self._name = name
        self._context = context
        self._scale = scale

    @property
    def vocabulary(self) -> int:
        """Return the number of tokens that have a logit."""
        return self._linear.weight.shape[0]

    def mixed(self, hidden_AH: Tensor) -> Tensor | None:
        """Return h M_g^T, [A, r], of hidden states in contiguous groups of equal size; None without a term."""
        term = self._term()
        if term is None:
            return None
        h_GAr = (hidden_AH @ term.v.to(hidden_AH.dtype)).view(self._context.groups, -1, term.v.shape[1])
        return torch.bmm(h_GAr, term.m.transpose(1, 2)).flatten(0, 1)

    def logits(self, hidden_AH: Tensor, mixed_Ar: Tensor | None, words: Words) -> Tensor:
        """Return the logits of ``words`` in the dtype of the hidden states, [A, words]."""
        dtype = hidden_AH.dtype
        head_bias = cast("Tensor | None", self._linear.bias)
        biases = None if head_bias is None else head_bias[words].to(dtype)
        weight = self._linear.weight[words]
        if weight.dtype == dtype:
            logits = nn.functional.linear(hidden_AH, weight, biases)
        else:
            logits = hidden_AH.new_empty(len(hidden_AH), len(weight))
            for part, wide in _widened(weight, dtype):
                logits[:, part] = nn.functional.linear(hidden_AH, wide, None if biases is None else biases[part])
        term = self._term()
        if term is not None and mixed_Ar is not None:
            logits += mixed_Ar @ term.u[words].to(dtype).t()
        return self._scale.of(logits)

    def of_stream(self, words: Words, side: Tensor) -> Tensor:
        """Return how logits of ``words`` move with a side of the hidden state, [H, r] or a diagonal [H]: [words, r]."""
        weight = self._linear.weight[words]
        found = side.new_empty(len(weight), side.shape[-1])
        for part, wide in _widened(weight, side.dtype):
            found[part] = wide * side if side.ndim == 1 else wide @ side
        return found.mul_(self._scale.factor)

    def _term(self) -> MatrixTerm | None:
        term = self._context.terms.get(self._name)
        return term if isinstance(term, MatrixTerm) else None


def _widened(weight: Tensor, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
    """Yield which rows of a weight, and these in ``dtype``: some after the other unless they are of that dtype."""
    entries = weight.numel() if weight.dtype == dtype else WIDENED_MAX.get(weight.device.type, _WIDENED_ON_CARDS_MAX)
    size = max(1, entries // weight.shape[1])
    for start in range(0, len(weight), size):
        part = slice(start, start + size)
        yield part, weight[part].to(dtype)


def score_candidates(hidden_RTH: Tensor, head: OutputHead, rows: CandidateBatch, dtype: torch.dtype) -> Scores:
    """Score candidates of any length."""
    likelihood_P, likeliest_P, _ = likelihoods(head, hidden_RTH.flatten(0, 1), rows, dtype)
    mean_S = candidate_means(likelihood_P, rows)
    if rows.options == 1:
        right_N = candidate_means((likelihood_P >= likeliest_P).to(dtype), rows)
        return Scores(loss=-mean_S, prediction=torch.zeros_like(rows.labels), right=right_N)
    return score_words(candidate_scores(mean_S, rows), rows.labels)


def candidate_scores(mean_S: Tensor, rows: CandidateBatch) -> Tensor:
    """Return the scores of each example's candidates, [N, C], from the mean log-likelihood of each."""
    scores = mean_S.new_full((len(rows.labels) * rows.options,), -torch.inf)  # -inf: the example has fewer candidates
    return scores.index_put((rows.places,), mean_S).view(-1, rows.options)


def candidate_residuals(
    hidden_RTH: Tensor, head: OutputHead, rows: CandidateBatch, side_Hr: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradient of each example's loss by ``side_Hr`` at each position that counts, [P, r]; the losses, [N].

    It is what a move of the hidden state along the columns of the side would do to the loss, to first order.
    """
    likelihood_P, _, lacking_Pr = likelihoods(head, hidden_RTH.flatten(0, 1), rows, side_Hr.dtype, side_Hr)
    mean_S = candidate_means(likelihood_P, rows)
    share_S = torch.ones_like(mean_S)  # by how much the loss falls when a candidate's mean log-likelihood rises
    if rows.options == 1:
        loss_N = -mean_S
    else:
        scores_NC = candidate_scores(mean_S, rows)
        loss_N = nn.functional.cross_entropy(scores_NC, rows.labels, reduction="none")
        wanted_NC = nn.functional.one_hot(rows.labels, rows.options).to(scores_NC) - scores_NC.softmax(dim=1)
        share_S = wanted_NC.flatten()[rows.places]
    return lacking_Pr * (share_S / rows.lengths)[rows.owner][:, None], loss_N


def score_words(scores_NC: Tensor, labels_N: Tensor) -> Scores:
    """Return losses and predictions of examples by the scores of their candidates, such as logits of label words."""
    prediction_N = scores_NC.argmax(dim=1)
    loss_N = nn.functional.cross_entropy(scores_NC, labels_N, reduction="none")
    return Scores(loss=loss_N, prediction=prediction_N, right=(prediction_N == labels_N).to(scores_NC.dtype))


def likelihoods(
    head: OutputHead, hidden_AH: Tensor, rows: CandidateBatch, dtype: torch.dtype, side: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-likelihoods of targets and of the likeliest tokens, [P] each, a part of the vocabulary at a time.

    Third comes what the likely tokens have more of a ``side`` (`of_stream`) than the targets, [P, r]; [P, 0] without.
    """
    mixed_Ar = head.mixed(hidden_AH.to(dtype))
    mixed_Pr = None if mixed_Ar is None else mixed_Ar[rows.positions]
    hidden_PH, targets_P = hidden_AH[rows.positions].to(dtype), rows.targets
    size = max(1, LOGITS_MAX // max(1, len(hidden_PH)))
    target_P = hidden_PH.new_zeros(len(hidden_PH))
    totals: list[Tensor] = []
    largest: list[Tensor] = []
    means: list[Tensor] = []
    for start in range(0, head.vocabulary, size):
        words = slice(start, start + size)
        logits_PV = head.logits(hidden_PH, mixed_Pr, words)
        local_P = targets_P - start
        is_here_P = (local_P >= 0) & (local_P < logits_PV.shape[1])
        found_P = logits_PV.gather(1, local_P.clamp(0, logits_PV.shape[1] - 1)[:, None])[:, 0]
        target_P = torch.where(is_here_P, found_P, target_P)
        totals.append(logits_PV.logsumexp(dim=1))
        largest.append(logits_PV.amax(dim=1))
        if side is not None:
            means.append(logits_PV.softmax(dim=1) @ head.of_stream(words, side))
    # The normaliser over the vocabulary, from those of its parts
    total_P = torch.stack(totals).logsumexp(dim=0)
    lacking_Pr = hidden_PH.new_zeros(len(hidden_PH), 0)
    if side is not None:
        shares = torch.stack(totals).softmax(dim=0)[..., None]
        lacking_Pr = (torch.stack(means) * shares).sum(dim=0) - head.of_stream(targets_P, side)
    return target_P - total_P, torch.stack(largest).amax(dim=0) - total_P, lacking_Pr


def candidate_means(value_P: Tensor, rows: CandidateBatch) -> Tensor:
    """Return the mean over the predicted tokens of each candidate, [S], summed in the same order everywhere."""
    value_SK = value_P.new_zeros(len(rows.lengths), int(rows.lengths.max())).index_put((rows.owner, rows.turn), value_P)
    mean_S: Tensor = value_SK.sum(dim=1) / rows.lengths
    return mean_S


def group_objectives(objective: Objective, scores: Scores, labels_N: Tensor, groups: int) -> Tensor:
    """Return the objective of N examples in ``groups`` contiguous groups of equal size, fp64[G] on the CPU.

    It is the mean loss, or one minus a metric of the predictions. A metric has no gradient, but its difference between
    two points of weight space can be measured as that of a loss can.

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
