"""Would the curvature along a step's directions say how long the step should be, and what does it cost to know it?

    python -m benchmarks.learn.curvature

Both sides of a direction give its slope; a third pass over the same examples, between them, its curvature. Measured for
messages as a run's authors make them, at the model alone and at the start, on examples that the start is not made from.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import mean, stdev

import click
import numpy as np
import torch
from torch import Tensor

from benchmarks.learn.problems import REAL_TASKS, SMOLLM2, Folders, ModelChoice, Task, load, read
from benchmarks.learn.recipes import forward
from benchmarks.learn.spaces import bases_of, calibrated, suggested_rate, tensors_of
from benchmarks.learn.trials import NetworkTrial
from benchmarks.measures import report
from protocol.state import CoefficientLayout
from protocol.subspace import Bases, direction_factors, example_indices
from sfnode.training.estimator import live_terms
from sfnode.training.model import MatrixTerm, Term, attach, quantised
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import TaskData, batch_of

_SHARED = Path(__file__).resolve().parents[3] / "shared"
_SURE = 0.5  # of the mean curvature, that its standard error may be
_PASSES = 3  # plus, minus, between


@dataclass(frozen=True, slots=True, kw_only=True)
class Curvature:
    """Along the directions of some messages. Losses are as they change over epsilon, lengths in those of a message.

    Attributes:
        state: where it was measured.
        slope: root mean square, of what one side changes.
        curvature, error: mean over all directions, of what both sides change; and its standard error, by messages.
        spread: standard deviation over the directions, in means.
        below_zero: share of the directions along which no length is best.
        rows_to_know: of messages with a third pass, until the mean's standard error is half of it.
        signal: what a direction's examples have in common, as a share of its slope's mean square.
        own_length: median of |slope / curvature| of single directions.
        best_length: common to all directions; what other examples gain, by the parabola along each, is largest at it.
    """

    state: str
    slope: float
    curvature: float
    error: float
    spread: float
    below_zero: float
    rows_to_know: float
    signal: float
    own_length: float
    best_length: float


@torch.inference_mode()
def losses(shared: SharedModel, bases: Bases, data: TaskData, seed: int) -> Tensor:
    """Plus, minus and between of a message's directions, each on E examples of its own: fp64[3, D, E]."""
    manifest, factors = bases.manifest, direction_factors(bases.manifest, seed, 0)
    groups, still = _PASSES * len(factors.a), np.zeros(CoefficientLayout(manifest).size, dtype=np.int64)
    chosen = example_indices(manifest, seed, 0, len(data.evaluation_examples)).tolist() * _PASSES
    rows = batch_of(data, [data.evaluation_examples[index] for index in chosen], groups, shared.device)
    terms = {name: _with_between(term) for name, term in live_terms(shared, bases, 0, still, factors).items()}
    started = quantised.closed_weights(bases, {}, shared.switch.base, shared.switch.placed)
    with shared.switch.using(started), shared.pass_context.carrying(terms, groups, rows.tokens.numel()):
        found = shared.scores(rows, data.label_tokens).loss
    return found.double().cpu().view(_PASSES, len(factors.a), -1)


def _with_between(term: Term) -> Term:
    """With a group for each direction that adds nothing, in the same pass: rounding is common to all."""
    assert isinstance(term, MatrixTerm)
    return replace(term, m=torch.cat([term.m, torch.zeros_like(term.m[: len(term.m) // 2])]))


def described(state: str, losses_MSDE: Tensor, message_length: float) -> Curvature:
    """What M messages' `losses` say. ``message_length``: of a step along one direction, in epsilons."""
    plus, minus, between = losses_MSDE.unbind(dim=1)
    slope_MDE, h_MD = (plus - minus) / 2, (plus + minus - 2 * between).mean(dim=2)
    slope_MD, examples = slope_MDE.mean(dim=2), slope_MDE.shape[2]
    square = float(slope_MD.square().mean())
    signal = float((examples * slope_MD).square().mean() - slope_MDE.square().sum(dim=2).mean())
    signal /= examples * (examples - 1)  # the mean product of two examples' slopes
    of_messages: list[float] = h_MD.mean(dim=1).tolist()
    average, apart = mean(of_messages), stdev(of_messages)
    return Curvature(
        state=state,
        slope=square**0.5,
        curvature=average,
        error=apart / len(of_messages) ** 0.5,
        spread=float(h_MD.std()) / abs(average),
        below_zero=float((h_MD <= 0).double().mean()),
        rows_to_know=(apart / (_SURE * average)) ** 2 * losses_MSDE[0].numel(),
        signal=signal / square,
        own_length=float((slope_MD / h_MD).abs().median()) / message_length,
        best_length=square**0.5 * signal / float((slope_MD.square() * h_MD).mean()) / message_length,
    )


def measure(
    folders: Folders, model: ModelChoice, task: Task, messages: int, recipe: NetworkTrial | None = None
) -> list[Curvature]:
    """At the model alone and at the start. ``recipe``: None: what `sfnode init` makes."""
    shared, data = SharedModel(load(folders, model)), read(folders, model, task, is_test=False)
    recipe = recipe or forward(200)  # steps: no figure depends on them
    tensors = tensors_of(recipe, shared)
    found = calibrated(recipe, data, shared, tensors, 0)
    assert found is not None
    attach(shared.model, tensors, shared.pass_context)
    results: list[Curvature] = []
    for state, each in {"the model alone": replace(found, start=None), "the start": found}.items():
        bases = bases_of(recipe, task, tensors, each, None)
        measured = torch.stack([losses(shared, bases, data, seed) for seed in range(messages)])
        length = suggested_rate(found) / recipe.directions / bases.manifest.epsilon
        results.append(described(state, measured, length))
    return results


@click.command()
@click.option("--data", type=click.Path(path_type=Path), default=_SHARED / "data", help="Folder of sst2.")
@click.option("--dtype", default=SMOLLM2.dtype, show_default=True, help="Of the model's weights.")
@click.option("--messages", default=32, show_default=True, help="How many, at each place.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def main(data: Path, dtype: str, messages: int, as_json: bool) -> None:
    """Slopes and curvatures along the directions of a run of SmolLM2-135M on SST-2; a few minutes of one core."""
    folders, model = Folders(data=data, models=Path()), replace(SMOLLM2, dtype=dtype)
    results = [asdict(each) for each in measure(folders, model, REAL_TASKS["sst2"], messages)]
    names = [field.name for field in fields(Curvature)][1:]
    lines = [" ".join([name, *(f"{each[name]:.3g}" for each in results)]) for name in names]
    report(results, as_json=as_json, lines=[", ".join(each["state"] for each in results), *lines])


if __name__ == "__main__":
    main()
