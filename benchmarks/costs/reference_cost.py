"""Compare a step with what a user would run instead on the same rows, by time and by peak memory."""

from __future__ import annotations

import copy
from typing import Final

import torch

from benchmarks.costs import references
from sfnode.children.child_program import Program
from sfnode.training.bench import BenchBasis, peak_memory, synthetic_models, timing
from sfnode.training.devices import choose_device
from sfnode.training.model import loading, trainable_tensors

REPEATS: Final = 3
_RATIOS: Final = {"mezo": "mezo", "mezo_same_tensors": "mezo_same_tensors", "backprop": "adamw", "lora": "lora"}


def bench_references(
    shape: str, *, size: tuple[int, int], dtype: str, basis: BenchBasis, repeats: int = REPEATS, device: str = "auto"
) -> dict[str, object]:
    """Time a step and all references in one process, in turn; ``size``: rows on each side, and tokens of a row.

    Returns:
        ratio_to_mezo: MeZO's step in place on all parameters / step; ratio_to_mezo_same_tensors: on the tensors that
            the step trains; ratio_to_backprop: AdamW on all parameters; ratio_to_lora: AdamW on rank-8 adapters.
        memory_of_mezo, memory_of_backprop, memory_of_lora: peak of the reference / the step's, in a first epoch.
    """
    where = choose_device(device)
    model, data = (
        synthetic_models.random_model(shape, where, loading.compute_dtype(dtype)),
        synthetic_models.random_data(*size),
    )
    scratch, plain = copy.deepcopy(model), synthetic_models.shared_copy(model)
    bases = synthetic_models.bench_bases(trainable_tensors(model), basis, size=size)
    actions = {
        "mezo": references.mezo(scratch, data),
        "mezo_same_tensors": references.mezo(scratch, data, [tensor.name for tensor in bases.manifest.tensors]),
        "adamw": references.adamw(scratch, data),
        "lora": references.lora(plain, data),
        "step": synthetic_models.first_step(model, bases, data),
    }
    times = timing.timed_in_turn(actions, where, repeats)
    peak = _peaks((shape, *map(str, size), dtype, where.type))
    return {
        **synthetic_models.setting(shape, size, dtype, basis, where),
        **timing.compared(times, {f"to_{name}": (reference, "step") for name, reference in _RATIOS.items()}),
        **{f"memory_of_{name}": peak[_RATIOS[name]] / peak["step"] for name in ("mezo", "backprop", "lora") if peak},
        "peak_bytes": peak,
    }


def _peaks(setting: tuple[str, ...]) -> dict[str, int]:
    programs = {name: Program(module=references.__name__, arguments=(name, *setting)) for name in references.MEASURED}
    step = peak_memory.peaks(setting, (peak_memory.Alternative.STEP,))
    return step | peak_memory.median_peaks(programs, torch.device(setting[-1]))
