"""Look at examples by one forward pass each: the inputs of some layers, and what the stream's end does to the scores.

Shapes: N examples, R rows of them, of which each candidate counts as one, P tokens that are looked at, L labels,
C candidates, H width of the stream, I inputs of a layer, V vocabulary.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from protocol.errors import OperatorError
from protocol.run import TensorSpec
from protocol.subspace import words
from sfnode.training.dense_estimate import last_places
from sfnode.training.estimator import EVALUATION_TOKENS
from sfnode.training.model import attach
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import CandidateBatch, Example, RowBatch, TaskData, chunks_of, scoring

_TOKENS_MAX = 2_048  # to look at
_INPUT_BYTES_MAX = 512 << 20  # of all layers
_BEFORE = 4  # tokens of a prompt, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the passes show, in fp32 on the CPU.

    Attributes:
        inputs: of each layer at the tokens that are looked at, [P, I].
        first: of each layer, the mean input at the first tokens of rows, where these are not looked at, fp64[I].
        before: of each layer, its inputs at some more tokens that come before those looked at, [B, I]. None but for
            completions.
        row: of each token, int64[P]. weight: of each token in its row, [P]; one in all.
        example: of each row, int64[R].
        logits: of the label words, [N, L]; none with candidates.
        likely: of each row, how likely the model thinks its candidate among those of its example, [R]; else ones.
        excess: at each token, by how much a move of the stream's end raises the logits of the likely words above that
            of one word, [P, H], for a stream of size one: the candidate's word, or, in the model's own answers, one
            drawn as it thinks. Empty with label words.
        spread: the second moment over all words in place of the drawn one, [H, H] fp64. Empty but for completions, and
            for them half of it is the candidates' own words'.
        size: of the stream's end, mean standard deviation.
    """

    inputs: list[Tensor]
    first: list[Tensor]
    before: list[Tensor]
    row: Tensor
    weight: Tensor
    example: Tensor
    logits: Tensor
    likely: Tensor
    excess: Tensor
    spread: Tensor
    size: float


class _Looking:
    """Collects what the passes show, batch by batch."""

    def __init__(self, shared: SharedModel, tensors: Sequence[TensorSpec], data: TaskData) -> None:
        self._shared, self._data = shared, data
        self._names = [tensor.name for tensor in tensors]
        inputs = sum(tensor.rows + tensor.cols for tensor in tensors)  # with the outputs: at least as many
        tokens = min(_TOKENS_MAX, _INPUT_BYTES_MAX // (4 * inputs))
        self._in_row = max(1, tokens // max(1, sum(example.rows for example in data.examples)))
        self._gain_H = shared.norm_gain()
        self._is_told = not data.draws_answers  # what is right, for completions
        self._inputs: list[list[Tensor]] = [[] for _ in tensors]  # from here: a tensor for each batch, joined by `look`
        self._before: list[list[Tensor]] = [[] for _ in tensors]
        self._rows: list[Tensor] = []
        self._weights: list[Tensor] = []
        self._examples: list[Tensor] = []
        self._logits = [torch.zeros(0, len(data.label_tokens))]
        self._likely: list[Tensor] = []
        self._excess: list[Tensor] = [torch.zeros(0, len(self._gain_H))]
        self._ends: list[Tensor] = []
        self._rows_seen, self._examples_seen, self._first_tokens = 0, 0, 0  # from here: sums over all batches
        self._first = [torch.zeros(()).double() for _ in tensors]
        self._spread = torch.zeros(len(self._gain_H), len(self._gain_H), dtype=torch.float64)
        self._likely_V = torch.zeros((), dtype=shared.loss_dtype)  # how likely each word is at all tokens looked at

    def take(self, examples: Sequence[Example]) -> None:
        """Pass some examples forward."""
        shared = self._shared
        rows = shared.batch(self._data, examples)
        tokens = rows.tokens.shape[1]
        if isinstance(rows, RowBatch):
            places_P, row_P = last_places(rows), torch.arange(len(examples))
        else:
            chosen = self._chosen(rows)
            places_P, row_P = rows.positions[chosen], rows.owner[chosen].cpu()
        ends: list[Tensor] = []
        context = shared.pass_context
        with ExitStack() as listening:
            if shared.final_norm is not None:
                hook = shared.final_norm.register_forward_pre_hook(
                    lambda _module, given: ends.append(given[0].reshape(-1, given[0].shape[-1])[places_P])
                )
                listening.enter_context(hook)
            listening.enter_context(context.carrying({}, 1, rows.tokens.numel()))
            firsts_R = torch.arange(len(rows.tokens), device=places_P.device) * tokens
            firsts_R = firsts_R[~torch.isin(firsts_R, places_P)]
            before_B = self._places_before(rows) if isinstance(rows, CandidateBatch) else firsts_R[:0]
            listening.enter_context(context.hearing(self._names, torch.cat([places_P, firsts_R, before_B])))
            if isinstance(rows, RowBatch):
                self._logits.append(shared.label_logits(rows, self._data.label_tokens).float().cpu())
            else:
                self._read(rows, shared.hidden(rows))
            inputs = context.heard(self._names)
        example_R = rows.places // rows.options if isinstance(rows, CandidateBatch) else torch.arange(len(examples))
        self._examples.append(example_R.cpu() + self._examples_seen)
        self._ends += [end.float().cpu() for end in ends]
        for layer, x in enumerate(inputs):
            looked, first, before = torch.split(x.float().cpu(), [len(places_P), len(firsts_R), len(before_B)])
            self._inputs[layer].append(looked)
            self._first[layer] = self._first[layer] + first.double().sum(dim=0)
            self._before[layer].append(before)
        self._first_tokens += len(firsts_R)
        self._rows.append(row_P + self._rows_seen)
        self._weights.append(1 / row_P.bincount()[row_P].float())
        self._rows_seen += len(example_R)
        self._examples_seen += len(examples)

    def _places_before(self, rows: CandidateBatch) -> Tensor:
        """Return some places before a completion in each row, evenly spread between its first token and that one."""
        if not self._is_told or rows.options > 1:
            return rows.positions[:0]
        width, count = rows.tokens.shape[1], min(_BEFORE, self._in_row)
        starts_R = rows.positions[rows.turn == 0]  # the first token that is looked at
        shares_B = (torch.arange(count, device=starts_R.device) + 0.5) / count
        between_RB = 1 + ((starts_R % width - 1)[:, None] * shares_B).long()
        return (starts_R // width * width)[:, None].add(between_RB)[starts_R % width > 1].flatten()

    def _chosen(self, rows: CandidateBatch) -> Tensor:
        """Return which of the positions to look at: some of each row, evenly spaced; int64[p].

        Where candidates begin alike, their first tokens tell nothing: each example begins at another one.
        """
        owner_P = rows.owner.cpu().numpy()
        length_P = rows.lengths.cpu().numpy()[owner_P]
        example_S = rows.places.cpu().numpy() // rows.options * (rows.options > 1)
        share_P = (rows.turn.cpu().numpy() + example_S[owner_P]) * self._in_row
        is_chosen = (share_P // length_P != (share_P - self._in_row) // length_P) | (length_P <= self._in_row)
        return torch.from_numpy(np.flatnonzero(is_chosen)).to(rows.tokens.device)

    def _read(self, rows: CandidateBatch, hidden_RTH: Tensor) -> None:
        shared, dtype, hidden_AH = self._shared, self._shared.loss_dtype, hidden_RTH.flatten(0, 1)
        head, chosen = shared.scored_head, self._chosen(rows)
        if rows.options > 1:
            likelihood_P, _, excess_PH = scoring.likelihoods(head, hidden_AH, rows, dtype, self._gain_H)
            scores_NC = scoring.candidate_scores(scoring.candidate_means(likelihood_P, rows), rows)
            self._likely.append(scores_NC.softmax(dim=1).flatten()[rows.places].float().cpu())
            self._excess.append(excess_PH[chosen].float().cpu())
            return
        hidden_pH = hidden_AH[rows.positions[chosen]].to(dtype)
        likely_pV = head.logits(hidden_pH, None, slice(None)).softmax(dim=1)
        weights = 1 / rows.lengths.clamp(max=self._in_row).to(dtype)[rows.owner[chosen]]
        stream_VH = head.of_stream(slice(None), self._gain_H)
        mean_pH = likely_pV @ stream_VH
        if self._is_told:  # the model will think of these words after some steps, and may hardly do so before
            word_p, weights = rows.targets[chosen], weights / 2
        else:
            drawn_p = torch.from_numpy(words(self._rows_seen, len(hidden_pH)).astype(np.float64) / 2**32).to(likely_pV)
            word_p = (likely_pV.cumsum(dim=1) < drawn_p[:, None]).sum(dim=1).clamp(max=likely_pV.shape[1] - 1)
        excess_pH = mean_pH - stream_VH[word_p]
        self._excess.append(excess_pH.float().cpu())
        self._likely_V = self._likely_V + weights @ likely_pV
        self._spread -= (mean_pH.T @ (mean_pH * weights[:, None])).cpu().double()
        if self._is_told:
            self._spread += (excess_pH.T @ (excess_pH * weights[:, None])).cpu().double()

    def look(self) -> Look:
        """Return what all passes have shown."""
        if self._likely_V.ndim:  # once for all batches: it takes V H^2 products
            stream_VH = self._shared.scored_head.of_stream(slice(None), self._gain_H)
            self._spread += (stream_VH.T @ (stream_VH * self._likely_V[:, None])).cpu().double()
        return Look(
            inputs=[torch.cat(each) for each in self._inputs],
            first=[each / max(1, self._first_tokens) for each in self._first],
            before=[torch.cat(each) for each in self._before],
            row=torch.cat(self._rows),
            weight=torch.cat(self._weights),
            example=torch.cat(self._examples),
            logits=torch.cat(self._logits),
            likely=torch.cat(self._likely) if self._likely else torch.ones(self._rows_seen),
            excess=torch.cat(self._excess),
            spread=self._spread,
            size=float(torch.cat(self._ends).std(dim=1).mean()) if self._ends else 1.0,
        )


@torch.inference_mode()
def look_at(
    shared: SharedModel, tensors: Sequence[TensorSpec], data: TaskData, on_progress: Callable[[int, int], None]
) -> Look:
    """Pass all examples forward once, by length, and listen to the layers of ``tensors``.

    OperatorError: the model gives numbers that are not finite.
    """
    attach(shared.model, tensors, shared.pass_context)
    looking, done = _Looking(shared, tensors, data), 0
    for examples in chunks_of(data.examples, EVALUATION_TOKENS // 4):  # so that progress shows
        looking.take(examples)
        done += len(examples)
        on_progress(done, len(data.examples))
    look = looking.look()
    if not all(bool(each.isfinite().all()) for each in (look.logits, look.likely, look.excess, *look.inputs)):
        raise OperatorError("the model gives numbers that are not finite on the examples; try another model")
    return look
