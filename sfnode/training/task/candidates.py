"""Batch examples for one forward pass: prompts alone, or one row per candidate and the positions that predict it.

A pass carries groups of examples, each with a perturbation of its own (`perturbed`). The rows of a group stay next to
each other, and filler rows give all groups the same number of rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfnode.training.task.encoding import Example, RowBatch, TaskData, Tokens, row_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateBatch:
    """Holds N examples in R rows of T tokens, padded on the right; at most C candidates per example.

    A row is prompt and candidate without the last token, which is only predicted.

    Attributes:
        tokens: int64[R, T]. labels: int64[N].
        positions: int64[P], ascending places in R x T that predict a candidate's token. targets: int64[P], the tokens.
        lengths: int64[R], number of predicted tokens in a row; 1 for a filler row, which only completes its group.
        rows, places: int64[S], the rows that are not fillers, and their places in N x C.
        options: C; 1 for completions.
    """

    tokens: Tensor
    labels: Tensor
    positions: Tensor
    targets: Tensor
    lengths: Tensor
    rows: Tensor
    places: Tensor
    options: int


@dataclass(frozen=True, slots=True)
class _Row:
    """Holds a row: its tokens, index of the candidate's first token, and place in N x C (-1: a filler row)."""

    tokens: Tokens
    first: int
    place: int

    @property
    def targets(self) -> Tokens:
        return self.tokens[self.first :] if self.place >= 0 else ()


def batch_of(
    data: TaskData, examples: Sequence[Example], groups: int, device: torch.device
) -> RowBatch | CandidateBatch:
    """Batch ``examples``, which consist of ``groups`` groups of equal size, one after the other."""
    if data.label_tokens:
        return row_batch(examples, data.pad, device)
    options = max(len(example.candidates) for example in examples)
    share = len(examples) // groups
    blocks = [_rows(examples[start : start + share], start, options) for start in range(0, len(examples), share)]
    most = max(map(len, blocks))
    filling = _Row(tokens=(data.pad, data.pad), first=1, place=-1)
    rows = [row for block in blocks for row in (*block, *([filling] * (most - len(block))))]
    return _packed(rows, [example.label for example in examples], options, data.pad, device)


def _rows(examples: Sequence[Example], start: int, options: int) -> list[_Row]:
    """Return one row per candidate; the first of ``examples`` has the number ``start``."""
    return [
        # nothing predicts a row's first token: without a prompt, the candidate's first token serves as the prompt
        _Row(tokens=(*example.tokens, *candidate), first=max(1, len(example.tokens)), place=number * options + option)
        for number, example in enumerate(examples, start=start)
        for option, candidate in enumerate(example.candidates)
    ]


def _packed(
    rows: Sequence[_Row], labels: Sequence[int], options: int, pad: int, device: torch.device
) -> CandidateBatch:
    width = max(len(row.tokens) for row in rows) - 1
    positions = [
        number * width + place - 1
        for number, row in enumerate(rows)
        for place in range(row.first, row.first + len(row.targets))
    ]
    counting = [(number, row.place) for number, row in enumerate(rows) if row.place >= 0]

    def tensor(values: object) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=device)

    return CandidateBatch(
        tokens=tensor([[*row.tokens[:-1], *([pad] * (width + 1 - len(row.tokens)))] for row in rows]),
        labels=tensor(labels),
        positions=tensor(positions),
        targets=tensor([token for row in rows for token in row.targets]),
        lengths=tensor([len(row.targets) or 1 for row in rows]),
        rows=tensor([number for number, _ in counting]),
        places=tensor([place for _, place in counting]),
        options=options,
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
