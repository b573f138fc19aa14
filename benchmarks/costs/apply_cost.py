"""Time the way from verified updates to the next pass's terms, against dense weight updates.

Needs only the shapes of the tensors, no weights: the cost does not depend on them.
"""

from __future__ import annotations

from statistics import median
from typing import Final, cast

import torch
from torch import Tensor

from benchmarks.costs.references import perturb
from benchmarks.sample_runs import verified_envelopes, weights_of
from benchmarks.shapes import shape_tensors
from protocol.run import CoreKind, Manifest
from protocol.state import Coefficients
from protocol.subspace import Bases, direction_factors
from sfnode.training.bench import synthetic_models, timing
from sfnode.training.devices import choose_device
from sfnode.training.estimator import live_terms
from sfnode.training.shared_model import SharedModel

REPEATS: Final = 9
DENSE_UPDATES: Final = 3  # measured; the figure for all updates is a product
DENSE_WEIGHTS: Final = 1 << 24  # at most this many are written to; the figure for all weights is a product


class NoModel:
    """Stands in for the shared model of `live_terms`, with empty bases, which are passed on and not computed with."""

    dtype = loss_dtype = torch.float32

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def bases(self, bases: Bases, epoch: int) -> tuple[tuple[Tensor, Tensor], ...]:
        """Return one pair per tensor."""
        return ((torch.empty(2, 1), torch.empty(1, 1)),) * len(bases.manifest.tensors)


def bench_apply(shape: str, *, updates: int, device: str = "auto", repeats: int = REPEATS) -> dict[str, object]:
    """Time ``updates`` updates of one canonical direction each, and of 8 Rademacher directions each.

    Returns:
        seconds, ratio_to_dense: of the canonical ones; seconds is the median time to sum them into the coefficients
            and to make the next pass's terms; dense is MeZO's in-place update of the same tensors, one normal number
            per weight and update.
        rademacher_8: the same figures, dense with 8 numbers per weight and update.
    """
    where = choose_device(device)
    tensors = shape_tensors(shape)
    canonical = synthetic_models.bench_manifest(tensors, directions=1)
    rademacher = synthetic_models.bench_manifest(tensors, core=CoreKind.RADEMACHER)
    dense = _dense_seconds(weights_of(tensors), where)
    return {
        "shape": shape,
        "tensors": len(tensors),
        "weights": weights_of(tensors),
        "updates": updates,
        "device": where.type,
        "threads": torch.get_num_threads(),
        **_figures(canonical, updates, dense, _apply_times(canonical, updates, where, repeats)),
        "rademacher_8": _figures(rademacher, updates, dense, _apply_times(rademacher, updates, where, repeats)),
        "dense_is": f"MeZO's in-place update, measured on {DENSE_WEIGHTS} weights (all, if fewer) and {DENSE_UPDATES} "
        "updates, scaled by weights, updates and directions",
    }


def _apply_times(manifest: Manifest, updates: int, device: torch.device, repeats: int) -> dict[str, list[float]]:
    shared, bases = cast(SharedModel, NoModel(device)), Bases(manifest)
    envelopes, factors = verified_envelopes(manifest, updates), direction_factors(manifest, 1)
    summed = Coefficients(manifest)
    summed.add(envelopes)

    def add() -> None:
        Coefficients(manifest).add(envelopes)

    def terms() -> None:
        live_terms(shared, bases, 0, summed.flat(0), factors)

    def both() -> None:
        fresh = Coefficients(manifest)
        fresh.add(envelopes)
        live_terms(shared, bases, 0, fresh.flat(0), factors)

    with torch.inference_mode():
        return timing.timed_in_turn({"both": both, "add": add, "terms": terms}, device, repeats)


def _dense_seconds(weights: int, device: torch.device) -> float:
    """Return the seconds of one dense update with one direction."""
    sample = min(weights, DENSE_WEIGHTS)
    parameters = [torch.zeros(sample, device=device)]

    def run() -> None:
        for seed in range(DENSE_UPDATES):
            perturb(parameters, seed, 1e-9)

    with torch.inference_mode():
        found = median(timing.timed_in_turn({"dense": run}, device, 3)["dense"])
    return found / DENSE_UPDATES * weights / sample


def _figures(manifest: Manifest, updates: int, dense_once: float, times: dict[str, list[float]]) -> dict[str, object]:
    seconds, directions = median(times["both"]), manifest.method.directions
    dense = dense_once * directions * updates
    return {
        "directions": directions,
        "seconds": seconds,
        "seconds_min": min(times["both"]),
        "seconds_max": max(times["both"]),
        "seconds_of_sum": median(times["add"]),
        "seconds_of_terms": median(times["terms"]),
        "microseconds_per_update": 1e6 * seconds / updates,
        "dense_seconds": dense,
        "ratio_to_dense": dense / seconds,
    }
