"""Batches of examples whose candidates are several tokens: one row per candidate, and where its tokens are predicted.

Groups (a sign and a direction each) stay contiguous and have equal numbers of rows, as `perturbed.Batch` asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfnode.training.task.encoding import Example, RowBatch, TaskData, Tokens, row_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateBatch:
    """N examples in R rows of T tokens, padded on the right; at most C candidates to an example.

    A row is prompt and candidate without the last token, which is only predicted.

    Attributes:
        tokens: int64[R, T]. labels: int64[N].
        positions: int64[P], ascending places in R x T that predict a candidate's token. targets: int64[P], the tokens.
        lengths: int64[R], predicted tokens of a row; 1 for a row that fills up its group.
        rows, places: int64[S], the rows that count, and where in N x C they stand.
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
    """Tokens of a row, and the first of them that belongs to the candidate. ``place``: -1 where nothing is asked."""

    tokens: Tokens
    first: int
    place: int

    @property
    def targets(self) -> Tokens:
        return self.tokens[self.first :] if self.place >= 0 else ()


def batch_of(
    data: TaskData, examples: Sequence[Example], groups: int, device: torch.device
) -> RowBatch | CandidateBatch:
    """The rows of ``examples``, which are those of ``groups`` groups, one group after the other and equally many."""
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
    """One row per candidate; the first of ``examples`` has the number ``start``."""
    return [
        # nothing predicts the first token of a row: without a prompt, a candidate's own first token is its prompt
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
    """Examples by length, in chunks that have at most ``tokens_max`` tokens once padded."""
    chunks: list[list[Example]] = [[]]
    rows = 0
    for example in sorted(examples, key=lambda example: example.width):
        if chunks[-1] and (rows + example.rows) * example.width > tokens_max:
            chunks.append([])
            rows = 0
        chunks[-1].append(example)
        rows += example.rows
    return chunks
