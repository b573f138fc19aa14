"""Vectors of losses (SPEC 5.2, 5.6): from log-likelihoods of tokens to objectives, and from these to gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import torch

from protocol.errors import NumericError
from protocol.run.manifest import checked
from protocol.run.method import Method
from protocol.run.task import Objective
from protocol.subspace.drawn_examples import example_indices
from sfnode.training.estimator import group_blocks, projected_gradients
from sfnode.training.model import LogitScale
from sfnode.training.model.perturbed import PassContext
from sfnode.training.task import Example, OutputHead, Scores, TaskData, batch_of, scoring
from sfnode.training.task.candidates import CandidateBatch
from tests.support.manifests import manifest_data
from tests.vectors.gradient_cases import gradients
from tests.vectors.notation import Case, Document, case, document, float_text, key_text, twelve_digits
from tests.vectors.subspace_cases import SEED

Row: TypeAlias = tuple[int, list[list[float]]]  # the right candidate; log-likelihoods of each candidate's tokens

_CPU = torch.device("cpu")
_PROMPT, _TOKEN = (0,), 1


def losses() -> Document:
    """losses.json"""
    cases = [*_objectives(), *_metrics(), *_completions(), *_gradients(), *_blocks(), *gradients()]
    return document("From log-likelihoods to objectives and gradients: SPEC 5.2, 5.6", cases)


# --- objectives


def _scores(rows: Sequence[Row], blocks: int) -> tuple[Scores, torch.Tensor]:
    """What the reference makes of these log-likelihoods. Its head has two tokens, of which the second is asked for."""
    data = TaskData(label_tokens=())
    examples = [
        Example(tokens=_PROMPT, label=label, candidates=tuple((_TOKEN,) * len(each) for each in candidates))
        for label, candidates in rows
    ]
    batch = batch_of(data, examples, blocks, _CPU)
    assert isinstance(batch, CandidateBatch)
    hidden = torch.zeros(*batch.tokens.shape, 2, dtype=torch.float64)
    told = [value for _, candidates in rows for each in candidates for value in each]
    both = [[math.log1p(-math.exp(value)), value] for value in told]
    hidden.view(-1, 2)[batch.positions] = torch.tensor(both, dtype=torch.float64)
    linear = torch.nn.Linear(2, 2, bias=False, dtype=torch.float64)
    with torch.inference_mode():
        linear.weight.copy_(torch.eye(2))
        head = OutputHead(linear, "head", PassContext(), LogitScale())
        return scoring.score_candidates(hidden, head, batch, torch.float64), batch.labels


def _objective(name: str, rows: Sequence[Row], objective: Objective = Objective.LOSS, blocks: int = 1) -> Case:
    scores, labels = _scores(rows, blocks)
    try:
        values: list[float] | None = twelve_digits(scoring.group_objectives(objective, scores, labels, blocks).tolist())
    except NumericError:
        values = None
    listed = [
        {"label": label, "log_likelihoods": [[float_text(value) for value in each] for each in candidates]}
        for label, candidates in rows
    ]
    kind = "completion" if all(len(candidates) == 1 for _, candidates in rows) else "candidates"
    given = {"kind": kind, "objective": objective.value, "blocks": blocks, "rows": listed}
    found: dict[str, object] = {"values": values and [float_text(value) for value in values]}
    if kind == "candidates":
        found["predictions"] = scores.prediction.tolist()
    return case(name, "objective", given, found | {"shown": [repr(value) for value in values or ()]})


_NEVER = [-1e308, -1e308]  # their sum is minus infinity
_ROWS: list[Row] = [
    (0, [[-0.5], [-1.25]]),
    (1, [[-0.25], [-3.0]]),
    (1, [[-2.0], [-0.125]]),
    (0, [[-4.0], [-0.75]]),
]
_LONG: list[Row] = [
    (1, [[-0.5, -0.25, -1.0], [-0.75]]),
    (0, [[-2.0, -0.5], [-1.5, -1.0, -0.25, -0.125]]),
]
_THREE: list[Row] = [
    (0, [[-0.5], [-1.0], [-2.0]]),
    (1, [[-0.5], [-1.0], [-2.0]]),
    (2, [[-3.0], [-1.0], [-0.5]]),
    (2, [[-3.0], [-0.25], [-0.5]]),
    (2, [[-3.0], [-1.0], [-0.5]]),
    (0, [[-0.125], [-1.0], [-0.5]]),
]


def _objectives() -> Iterator[Case]:
    yield _objective("loss: two candidates of one token", _ROWS)
    yield _objective("loss: two blocks", _ROWS, blocks=2)
    yield _objective("loss: four blocks", _ROWS, blocks=4)
    yield _objective("loss: the mean over a candidate's tokens", _LONG)
    yield _objective("loss: three candidates", _THREE)
    fewer: list[Row] = [(0, [[-0.5], [-1.0], [-2.0]]), (1, [[-0.5], [-1.0]])]
    yield _objective("loss: rows with different numbers of candidates", fewer)
    yield _objective("loss: a candidate that cannot be", [(0, [[-0.5], _NEVER])])
    yield _objective("loss: the right candidate cannot be", [(1, [[-0.5], _NEVER]), (0, [[-0.5], [-1.0]])])


def _metrics() -> Iterator[Case]:
    for objective in (Objective.ACCURACY, Objective.F1):
        name = objective.value
        yield _objective(f"{name}: half of four are right", _ROWS, objective)
        yield _objective(f"{name}: two blocks", _ROWS, objective, blocks=2)
        yield _objective(f"{name}: by the mean, not the sum, of the tokens", _LONG, objective)
        yield _objective(f"{name}: three labels", _THREE, objective)
        yield _objective(f"{name}: three labels in two blocks", _THREE, objective, blocks=2)
        yield _objective(f"{name}: all right, one label", [_ROWS[0], _THREE[0]], objective)
        yield _objective(f"{name}: all wrong", [_ROWS[1], _ROWS[3]], objective)
        yield _objective(f"{name}: a loss that is not finite", [(1, [[-0.5], _NEVER])], objective)


def _completions() -> Iterator[Case]:
    rows: list[Row] = [(0, [[-0.5, -0.25, -1.0]]), (0, [[-2.0]]), (0, [[-0.125, -0.5]]), (0, [[-1.0]])]
    yield _objective("completion: the mean over rows of the mean over tokens", rows)
    yield _objective("completion: two blocks", rows, blocks=2)
    yield _objective("completion: a token that cannot be", [*rows[:3], (0, [_NEVER])])


# --- projected gradients


def _method(**changes: int) -> Method:
    data = manifest_data(**changes)
    data["task"]["batch_rows"] = 24
    return checked(data).method


def _gradients() -> Iterator[Case]:
    for name, method, objectives in (
        ("one direction, two sides", _method(), [0.75, 0.5]),
        ("three directions, two sides", _method(directions=3), [0.75, 0.5, 1.0, 0.5, 0.75, 1.0]),
        ("one side, one block", _method(directions=3, shares=3, sides=1), [0.75, 0.5, 1.0, 0.625]),
        ("one side, three blocks", _method(directions=6, shares=2, sides=1), [1.0, 2, 3, 4, 5, 6, 0.5, 0.25, 0.125]),
        ("epsilon = 1", _method(epsilon_exp=0), [3.0, 1.0]),
        ("epsilon = 2^-30", _method(epsilon_exp=-30), [0.5, 0.5 + 2.0**-40]),
        ("equal objectives", _method(directions=2), [1.5, 1.5, 1.5, 1.5]),
    ):
        found = projected_gradients(method, torch.tensor(objectives, dtype=torch.float64))
        given = {"sides": method.sides, "directions": method.directions, "shares": method.shares}
        given |= {"epsilon_exp": method.epsilon_exp}
        told = {"objectives": [float_text(value) for value in objectives]}
        gradients = {"projected_gradients": [float_text(g) for g in found], "shown": [repr(g) for g in found]}
        yield case(f"gradients: {name}", "projected_gradients", given | told, gradients)


def _blocks() -> Iterator[Case]:
    for directions, shares, sides in ((1, 1, 2), (4, 1, 2), (4, 2, 2), (4, 4, 1), (6, 2, 1)):
        data = manifest_data(directions=directions, shares=shares, sides=sides, local_steps=2)
        data["task"]["batch_rows"] = 12
        manifest = checked(data)
        for local_step in (0, 1):
            rows = example_indices(manifest, SEED, local_step, 1_000)
            blocks = rows.reshape(manifest.method.blocks, -1)[group_blocks(manifest.method)[:directions]]
            given = {"seed": key_text(SEED), "batch_rows": 12, "directions": directions, "shares": shares}
            given |= {"local_step": local_step, "dataset_rows": 1_000}
            name = f"blocks: D = {directions}, shares = {shares}, local step {local_step}"
            yield case(name, "blocks", given, {"rows": np.array(blocks).tolist()})
