"""Time the exact derivation of weights from W0 and coefficients, against a plain fp32 merge."""

from __future__ import annotations

from statistics import median
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.sample_runs import weights_of
from benchmarks.shapes import shape_tensors
from protocol.run import Manifest, TensorSpec
from protocol.state import CoefficientLayout, view_exp
from protocol.subspace import Bases
from sfnode.training.bench import peak_memory, synthetic_models, timing
from sfnode.training.devices import choose_device
from sfnode.training.model import fold_weights, loading

REPEATS: Final = 5
CORE_SCALE: Final = 1_021  # sums of about 2^25 units: fp32 must round them, as it must late in a run


def bench_view(
    shape: str, *, epochs: int = 1, dtype: str = "fp32", device: str = "auto", repeats: int = REPEATS
) -> dict[str, object]:
    """Time the view of one transformer layer's tensors (all layers are equal), scaled to the model by weights.

    Returns:
        seconds: median for the whole model, with ``epochs`` epochs that have coefficients in every tensor; it includes
            the generation of random bases, as each view does. seconds_of_naive: W0 - 2^k (U C) V^T in fp32.
        ratio_to_naive, gflop_per_second: counting 2 r (m n + r m) per matrix and epoch.
        scratch_bytes: peak on top of W0 and the result, of one layer; naive_differs: share of fp32 weights that the
            plain merge gets wrong in the last bits.
    """
    where = choose_device(device)
    every = shape_tensors(shape)
    tensors = every[: _per_layer(every)]
    manifest = synthetic_models.bench_manifest(tensors)
    bases, base = Bases(manifest), _base(tensors, loading.compute_dtype(dtype), where)
    cores = {epoch: CORE_SCALE * synthetic_models.some_coefficients(manifest, epoch) for epoch in range(epochs)}
    scratch = _scratch_bytes(bases, cores, base, where)
    actions = {
        "view": lambda: fold_weights(bases, cores, base),
        "naive": lambda: naive_merge(bases, cores, base),
    }
    with torch.inference_mode():
        times = timing.timed_in_turn(actions, where, repeats)
        exact, plain = actions["view"](), actions["naive"]()
    times_all = weights_of(every) / weights_of(tensors)
    return {
        "shape": shape,
        "weights": weights_of(every),
        "epochs": epochs,
        "dtype": dtype,
        "device": where.type,
        "threads": torch.get_num_threads(),
        "seconds": median(times["view"]) * times_all,
        "seconds_of_naive": median(times["naive"]) * times_all,
        "ratio_to_naive": median(times["view"]) / median(times["naive"]),
        "ratios": {"to_naive": timing.paired_ratio(times["view"], times["naive"])},
        "spread": {name: timing.relative_spread(found) for name, found in times.items()},
        "gflop_per_second": _flops(manifest) * epochs / median(times["view"]) / 1e9,
        "scratch_bytes": scratch,
        "naive_differs": _share_that_differs(exact, plain),
        "measured_on": f"{len(tensors)} tensors of one layer, scaled by {times_all:.0f}",
    }


def naive_merge(bases: Bases, epochs: dict[int, NDArray[np.int64]], base: dict[str, Tensor]) -> dict[str, Tensor]:
    """Merge in fp32 as a first attempt would do it: every product and sum rounds."""
    layout, result = CoefficientLayout(bases.manifest), {}
    for index, tensor in enumerate(bases.manifest.tensors):
        weight = base[tensor.name].to(torch.float32, copy=True)
        for epoch, flat in epochs.items():
            found = bases.of(epoch, index)
            assert found.v is not None
            core, u, v = (
                torch.from_numpy(part.astype(np.float32)).to(weight.device)
                for part in (layout.tensor(flat, index), found.u, found.v)
            )
            weight -= 2.0 ** view_exp(bases.manifest, index) * (u @ core @ v.t())
        result[tensor.name] = weight.to(base[tensor.name].dtype)
    return result


def _per_layer(tensors: tuple[TensorSpec, ...]) -> int:
    """Return how many of the first tensors belong to the first layer: up to where the sequence of shapes repeats."""
    shapes = [(tensor.rows, tensor.cols) for tensor in tensors]
    return next(size for size in range(1, len(shapes) + 1) if shapes == shapes[:size] * (len(shapes) // size))


def _base(tensors: tuple[TensorSpec, ...], dtype: torch.dtype, device: torch.device) -> dict[str, Tensor]:
    generator = torch.Generator(device=device).manual_seed(0)
    return {
        tensor.name: torch.empty(tensor.rows, tensor.cols, dtype=dtype, device=device).normal_(
            std=0.02, generator=generator
        )
        for tensor in tensors
    }


def _scratch_bytes(
    bases: Bases, cores: dict[int, NDArray[np.int64]], base: dict[str, Tensor], device: torch.device
) -> int | None:
    with torch.inference_mode():
        fold_weights(bases, cores, base)  # what torch keeps from its first product is not scratch
        peak_memory.reset_peak(device)
        before = torch.cuda.memory_allocated(device) if device.type == "cuda" else peak_memory.process_bytes()
        fold_weights(bases, cores, base)
        peak = peak_memory.peak_bytes(device)
    if before is None or peak is None:
        return None
    return max(0, peak - before - sum(weight.nbytes for weight in base.values()))


def _flops(manifest: Manifest) -> int:
    rank = manifest.method.rank
    return sum(2 * rank * (tensor.rows * tensor.cols + rank * tensor.rows) for tensor in manifest.tensors)


def _share_that_differs(exact: dict[str, Tensor], plain: dict[str, Tensor]) -> float:
    different = sum(int((exact[name] != plain[name]).sum()) for name in exact)
    return different / sum(weight.numel() for weight in exact.values())
