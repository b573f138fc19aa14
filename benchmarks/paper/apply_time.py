"""What it costs to take in n updates: integers summed, against directions drawn anew and added to every weight.

The paper's figure 5. Needs the shapes of the tensors and no weights. CPU seconds of one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import torch

from benchmarks.costs.references import perturb
from benchmarks.measures import Stopwatch
from benchmarks.sample_runs import verified_envelopes, weights_of
from benchmarks.shapes import shape_tensors
from protocol.run import CoreKind, Manifest
from protocol.state import Coefficients
from protocol.subspace import Bases
from sfnode.training.bench import synthetic_models
from sfnode.training.model import fold_weights

COUNTS: Final = (1, 10, 100, 1_000, 10_000)
PAPER: Final = "the paper's: rank 32, one canonical direction"
SEVERAL: Final = "rank 1, 8 Rademacher directions"
REBUILT_WEIGHTS: Final = 1 << 24  # so many weights are drawn and written; the rest is a product


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyTime:
    """One method on one shape.

    Attributes:
        weights: of the trained tensors.
        seconds: to sum so many updates into empty coefficients, by their number.
        rebuilt_seconds: to draw one update's directions anew and add them to all weights, as a replay of MeZO does.
        fold_seconds: to derive the fp32 weights once from the coefficients, whatever their number of updates.
    """

    shape: str
    method: str
    tensors: int
    weights: int
    seconds: dict[int, float]
    rebuilt_seconds: float
    fold_seconds: float

    def ratio(self, updates: int) -> float:
        """How many times as long it takes to rebuild ``updates`` updates as to sum them and fold the sum once."""
        return updates * self.rebuilt_seconds / (self.seconds[updates] + self.fold_seconds)


def apply_times(shape: str, *, counts: Sequence[int] = COUNTS, repeats: int = 5) -> list[ApplyTime]:
    """Both methods on a shape of `sfnode bench`."""
    tensors = shape_tensors(shape)
    manifests = {
        PAPER: synthetic_models.bench_manifest(tensors, directions=1),
        SEVERAL: synthetic_models.bench_manifest(tensors, core=CoreKind.RADEMACHER, rank=1),
    }
    return [_measured(shape, name, manifest, counts, repeats) for name, manifest in manifests.items()]


def cpu_seconds(actions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of each action, all in turn after one untimed run, in one thread of torch."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rounds = [_once(actions) for _ in range(repeats + 1)][1:]
    finally:
        torch.set_num_threads(threads)
    return {name: median(seconds[name] for seconds in rounds) for name in actions}


def _once(actions: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    watch = Stopwatch()
    for name, action in actions.items():
        with watch.part(name):
            action()
    return watch.seconds


def _measured(shape: str, name: str, manifest: Manifest, counts: Sequence[int], repeats: int) -> ApplyTime:
    weights = weights_of(manifest.tensors)
    sample = torch.zeros(min(weights, REBUILT_WEIGHTS))
    envelopes = verified_envelopes(manifest, max(counts))
    actions: dict[str, Callable[[], object]] = {
        str(count): lambda count=count: Coefficients(manifest).add(envelopes[:count])  # type: ignore[misc]
        for count in counts
    }
    actions["rebuild"] = lambda: perturb([sample], 1, 1e-9)
    actions["fold"] = _folding(manifest, synthetic_models.SHAPES[shape].num_hidden_layers)
    with torch.inference_mode():
        found = cpu_seconds(actions, repeats)
    return ApplyTime(
        shape=shape,
        method=name,
        tensors=len(manifest.tensors),
        weights=weights,
        seconds={count: found[str(count)] for count in counts},
        rebuilt_seconds=found["rebuild"] * manifest.method.directions * weights / len(sample),
        fold_seconds=found["fold"] * synthetic_models.SHAPES[shape].num_hidden_layers,
    )


def _folding(manifest: Manifest, layers: int) -> Callable[[], object]:
    """Derives the weights of the first of ``layers`` layers, which are all alike, with random bases drawn anew."""
    method = manifest.method
    tensors = manifest.tensors[: len(manifest.tensors) // layers]
    one = synthetic_models.bench_manifest(tensors, directions=method.directions, core=method.core, rank=method.rank)
    base = {tensor.name: torch.zeros(tensor.rows, tensor.cols) for tensor in tensors}
    return lambda: fold_weights(Bases(one), {0: synthetic_models.some_coefficients(one, 0)}, base)
