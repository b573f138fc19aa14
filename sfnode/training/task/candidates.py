"""Batch examples for one forward pass: prompts alone, or candidates after prompts and the positions that predict them.

A pass carries groups of examples, each with a perturbation of its own (`perturbed`). The rows of a group stay next to
each other, and filler rows give all groups the same number of rows.

The candidates of an example share one row where the model takes in which tokens see which (`Sight`): its prompt then
passes once. Elsewhere each candidate has a row of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfnode.training.task.encoding import Example, RowBatch, TaskData, Tokens, row_batch


@dataclass(frozen=True, slots=True)
class Sight:
    """Says what the tokens of rows see that hold several candidates: their prompt, and their own candidate so far.

    Attributes:
        places: int64[R, T], of each token in its text; 0 for padding, since rotations may depend on the largest.
        part: int64[R, T], 0 for tokens of the prompt, k for those of the k-th candidate, -1 for padding.
    """

    places: Tensor
    part: Tensor

    def mask(self, dtype: torch.dtype) -> Tensor:
        """Return what is added to the scores of attention, [R, 1, T, T]: 0 where a token sees another one."""
        width = self.part.shape[1]
        is_before_TT = torch.ones(width, width, dtype=torch.bool, device=self.part.device).tril()
        sees_RTT = is_before_TT & ((self.part[:, None, :] == 0) | (self.part[:, None, :] == self.part[:, :, None]))
        return sees_RTT.to(dtype).sub_(1).mul_(torch.finfo(dtype).max)[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateBatch:
    """Holds N examples with S candidates in R rows of T tokens, padded on the right; at most C candidates per example.

    A row is a prompt and candidates without their last tokens, which are only predicted.

    Attributes:
        tokens: int64[R, T]. labels: int64[N].
        positions: int64[P], places in R x T that predict a candidate's token. targets: int64[P], the tokens.
        owner: int64[P], the candidates that these belong to, ascending. turn: int64[P], which of their tokens it is.
        lengths: int64[S], number of predicted tokens of a candidate. places: int64[S], of the candidates in N x C.
        options: C; 1 for completions.
        sight: None where no row has tokens of several candidates.
    """

    tokens: Tensor
    labels: Tensor
    positions: Tensor
    targets: Tensor
    owner: Tensor
    turn: Tensor
    lengths: Tensor
    places: Tensor
    options: int
    sight: Sight | None


@dataclass(frozen=True, slots=True)
class _Row:
    """Holds a row: its prompt, some candidates, and their places in N x C. Without candidates it is a filler row."""

    prompt: Tokens
    candidates: tuple[Tokens, ...] = ()
    places: tuple[int, ...] = ()

    @property
    def tokens(self) -> list[int]:
        return [*self.prompt, *(token for each in self.candidates for token in each[:-1])]


def batch_of(
    data: TaskData, examples: Sequence[Example], groups: int, device: torch.device, *, is_prompt_shared: bool = False
) -> RowBatch | CandidateBatch:
    """Batch ``examples``, which consist of ``groups`` groups of equal size, one after the other."""
    if data.label_tokens:
        return row_batch(examples, data.pad, device)
    options = max(len(example.candidates) for example in examples)
    share = len(examples) // groups
    rows: list[list[_Row]] = [[] for _ in range(groups)]
    for number, example in enumerate(examples):
        places = range(number * options, number * options + len(example.candidates))
        if is_prompt_shared:
            rows[number // share].append(_Row(example.tokens, example.candidates, tuple(places)))
        else:
            alone = zip(example.candidates, places, strict=True)
            rows[number // share] += [_Row(example.tokens, (each,), (place,)) for each, place in alone]
    most, filling = max(map(len, rows)), _Row(prompt=(data.pad,))
    filled = [row for group in rows for row in (*group, *([filling] * (most - len(group))))]
    return _packed(filled, [example.label for example in examples], options, data.pad, device)


def _packed(
    rows: Sequence[_Row], labels: Sequence[int], options: int, pad: int, device: torch.device
) -> CandidateBatch:
    def tensor(values: object) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    width = max(len(row.tokens) for row in rows)
    predicted: list[tuple[int, int, int, int]] = []  # of each token that is predicted: position, target, owner, turn
    lengths: list[int] = []
    places, parts = [[0] * width for _ in rows], [[-1] * width for _ in rows]
    for number, row in enumerate(rows):
        before = len(row.prompt)  # tokens of the row before the candidate's
        places[number][:before], parts[number][:before] = range(before), [0] * before
        for part, candidate in enumerate(row.candidates, start=1):
            end = before + len(candidate) - 1
            places[number][before:end] = range(len(row.prompt), len(row.prompt) + end - before)
            parts[number][before:end] = [part] * (end - before)
            # nothing predicts a text's first token: without a prompt, the candidate's first token serves as the prompt
            first = 0 if row.prompt else 1
            seen = [len(row.prompt) - 1, *range(before, end)]
            predicted += [
                (number * width + seen[turn], candidate[turn], len(lengths), turn - first)
                for turn in range(first, len(candidate))
            ]
            lengths.append(len(candidate) - first)
            before = end
    positions, targets, owner, turn = (tensor(each) for each in zip(*predicted, strict=True))
    is_shared = any(len({*part} - {-1, 0}) > 1 for part in parts)
    return CandidateBatch(
        tokens=tensor([[*row.tokens, *([pad] * (width - len(row.tokens)))] for row in rows]),
        labels=tensor(labels),
        positions=positions,
        targets=targets,
        owner=owner,
        turn=turn,
        lengths=tensor(lengths),
        places=tensor([place for row in rows for place in row.places]),
        options=options,
        sight=Sight(places=tensor(places), part=tensor(parts)) if is_shared else None,
    )


def chunks_of(examples: Sequence[Example], tokens_max: int) -> list[list[Example]]:
    """Sort examples by length and split them into chunks of at most ``tokens_max`` tokens once padded.

    An example that exceeds the limit has a chunk of its own.
    """
    chunks: list[list[Example]] = [[]]
    rows = 0
    for example in sorted(examples, key=lambda example: example.width):
        if chunks[-1] and (rows + example.rows) * example.width > tokens_max:
            chunks.append([])
            rows = 0
        chunks[-1].append(example)
        rows += example.rows
    return chunks
