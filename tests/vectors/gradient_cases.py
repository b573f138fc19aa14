"""Vectors of the gradients in dense messages (SPEC 5.6): from what a pass shows at the read tokens to their mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from sfnode.training.dense_estimate import contrasts
from sfnode.training.model import LogitScale
from sfnode.training.model.perturbed import PassContext
from sfnode.training.task import Example, OutputHead, TaskData, batch_of, scoring
from sfnode.training.task.candidates import CandidateBatch
from tests.vectors.notation import Case, case, float_text, twelve_digits

Tokens: TypeAlias = tuple[int, ...]
Row: TypeAlias = tuple[int, tuple[Tokens, ...]]  # label, candidates

_VOCABULARY, _HIDDEN, _INPUTS, _RANK = 5, 4, 3, 2
_TARGET_EXP, _V_EXP = -5, -6


@dataclass(frozen=True, kw_only=True)
class _Head:
    """The end of a made-up model: output embedding, factor of the logits, gain of the norm."""

    embedding: Tensor
    factor: float
    gain: Tensor


def gradients() -> Iterator[Case]:
    """Cases of the function ``dense_gradient``."""
    yield _words("two label words", [(0, (0.5, -0.25)), (1, (1.5, 2.0)), (1, (-3.0, 0.5))])
    yield _words("three label words", [(2, (0.5, -0.25, 1.0)), (0, (1.5, 2.0, -1.0))])
    yield _words("one row of six label words", [(4, (0.5, -0.25, 1.0, 3.0, 2.5, -0.75))])
    plain = _head(3)
    yield _candidates("a completion of one token", plain, [(0, ((2,),))])
    yield _candidates("completions of several tokens", plain, [(0, ((2, 4, 1),)), (0, ((0,),)), (0, ((3, 3),))])
    yield _candidates("choices", plain, [(1, ((2,), (4, 1))), (0, ((1, 0, 3), (2, 2)))])
    yield _candidates("different numbers of choices", plain, [(2, ((2,), (4, 1), (0, 0, 1))), (0, ((1,), (3, 2)))])
    yield _candidates("a factor of the logits", _head(4, factor=0.25), [(0, ((2, 4),)), (0, ((1,),))])
    yield _candidates("choices of a model with a factor", _head(5, factor=2.0), [(1, ((2, 4), (1,)))])


def _head(number: int, factor: float = 1.0) -> _Head:
    chance = np.random.default_rng(number)
    embedding = torch.from_numpy(chance.integers(-16, 17, (_VOCABULARY, _HIDDEN)) / 16)
    return _Head(embedding=embedding, factor=factor, gain=torch.from_numpy(chance.integers(4, 33, _HIDDEN) / 16))


def _sides(core_rows: int) -> tuple[Any, Any]:
    """The target and V, in integers."""
    chance = np.random.default_rng(core_rows)
    return chance.integers(-99, 100, (_HIDDEN, core_rows)), chance.integers(-99, 100, (_INPUTS, _RANK))


def _inputs(count: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(count).integers(-32, 33, (count, _INPUTS)) / 16)


def _words(name: str, rows: Sequence[tuple[int, tuple[float, ...]]]) -> Case:
    labels = len(rows[0][1])
    scores_NL = torch.tensor([scores for _, scores in rows], dtype=torch.float64)
    wanted_NL = torch.nn.functional.one_hot(torch.tensor([label for label, _ in rows]), labels)
    d_Nr = (scores_NL.softmax(dim=1) - wanted_NL.double()) @ contrasts(labels)
    inputs = _inputs(len(rows))
    listed = [
        {"label": label, "scores": _floats(scores_NL[number]), "input": _floats(inputs[number])}
        for number, (label, _) in enumerate(rows)
    ]
    return _case(name, {"kind": "words", "rows": listed}, d_Nr, inputs, len(rows))


def _candidates(name: str, head: _Head, rows: Sequence[Row]) -> Case:
    core_rows = 3
    examples = [Example(tokens=(0,), label=label, candidates=candidates) for label, candidates in rows]
    batch = batch_of(TaskData(label_tokens=()), examples, 1, torch.device("cpu"))
    assert isinstance(batch, CandidateBatch)
    count = len(batch.positions)
    streams = torch.from_numpy(np.random.default_rng(count).integers(-48, 49, (count, _HIDDEN)) / 16)
    hidden = torch.zeros(*batch.tokens.shape, _HIDDEN, dtype=torch.float64)
    hidden.view(-1, _HIDDEN)[batch.positions] = streams
    linear = torch.nn.Linear(_HIDDEN, _VOCABULARY, bias=False, dtype=torch.float64)
    target, _ = _sides(core_rows)
    with torch.inference_mode():
        linear.weight.copy_(head.embedding)
        output = OutputHead(linear, "head", PassContext(), LogitScale(factor=head.factor))
        side_Hr = torch.from_numpy(target).double() * 2.0**_TARGET_EXP * head.gain[:, None]
        d_Pr, _ = scoring.candidate_residuals(hidden, output, batch, side_Hr)
    inputs = _inputs(count)
    read = iter(zip(streams, inputs, strict=True))
    listed = [
        {"label": label, "candidates": [[_token(token, *next(read)) for token in each] for each in candidates]}
        for label, candidates in rows
    ]
    given: dict[str, Any] = {"kind": "completion" if batch.options == 1 else "choice", "rows": listed}
    given |= {"embedding": [_floats(row) for row in head.embedding], "factor": float_text(head.factor)}
    given |= {"gain": _floats(head.gain), "target": target.tolist(), "target_exp": _TARGET_EXP}
    return _case(name, given, d_Pr, inputs, len(rows))


def _token(token: int, stream: Tensor, inputs: Tensor) -> dict[str, Any]:
    return {"token": token, "hidden": _floats(stream), "input": _floats(inputs)}


def _case(name: str, given: dict[str, Any], d_Pr: Tensor, inputs: Tensor, rows: int) -> Case:
    _, v = _sides(d_Pr.shape[1])
    h_Pk = inputs @ torch.from_numpy(v).double() * 2.0**_V_EXP
    values = twelve_digits((d_Pr.T @ h_Pk / rows).flatten().tolist())
    assert min(map(abs, values)) > 1e-3  # correct to a share of its size: nothing cancels out
    given |= {"v": v.tolist(), "v_exp": _V_EXP}
    shown = {"gradient": [float_text(value) for value in values], "shown": [repr(value) for value in values]}
    return case(f"dense gradient: {name}", "dense_gradient", given, shown)


def _floats(values: Tensor) -> list[str]:
    return [float_text(value) for value in values.tolist()]
