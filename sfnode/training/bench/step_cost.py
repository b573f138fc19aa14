"""``sfnode bench step``: compare one estimate with other uses of the same examples."""

from __future__ import annotations

import copy
from typing import Final

import torch

from sfnode.training.bench import references
from sfnode.training.bench.memory import peaks
from sfnode.training.bench.subjects import (
    BenchBasis,
    bench_bases,
    random_data,
    random_model,
    shared_copy,
    some_coefficients,
)
from sfnode.training.bench.timing import Times, paired_ratio, timed_in_turn
from sfnode.training.estimator import Estimator
from sfnode.training.model import loading, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import row_batch

REPEATS: Final = 9
SLOW_REPEATS: Final = 3  # of references that take several times as long
COMPARED: Final = {
    "step": "one estimate: both signs of all directions, rows examples a side, linear layers, an epoch under way "
    "and an earlier one; head and loss included",
    "forward": "the unmodified model over the same 2 x rows rows in one pass, without its head",
    "full_forward": "the same with logits at every token",
    "mezo": "MeZO's in-place step on all parameters as published: two passes over rows examples, four over the weights",
    "mezo_same_tensors": "the same on the tensors that the step trains",
    "adamw": "forward, backward, AdamW of all parameters on rows examples (half of the step's rows)",
    "lora": "forward, backward, AdamW of rank-8 adapters on queries and values, on rows examples",
    "peak_memory": "per alternative in a process of its own: weights, activations and all else beyond Python and torch",
}


def bench_step(
    shape: str,
    *,
    size: tuple[int, int],
    dtype: str,
    basis: BenchBasis = BenchBasis.RANDOM,
    repeats: int = REPEATS,
    device: str = "auto",
) -> dict[str, object]:
    """Time one step (both signs) and all references of `COMPARED`, in one process, in turn.

    ``size``: rows on each side, and tokens of a row.

    Returns:
        ratio_to_forward: step / forward; ratio_to_full_forward: step / full_forward.
        ratio_to_mezo, ratio_to_mezo_same_tensors, ratio_to_backprop, ratio_to_lora: reference / step.
        peak_memory_ratio: step / forward, in a run's first epoch; peak_memory_ratio_later with an epoch folded;
        peak_memory_ratio_later_published: the same epoch with a published basis, where nothing is folded.
        memory_of_backprop: AdamW's peak / the step's.
        All are ratios of medians. `ratios` has the quartiles of neighbouring runs, `seconds` has medians, and `spread`
        has the middle half's width as a share of the median.
    """
    where = loading.choose_device(device)
    model = random_model(shape, where, loading.choose_dtype(dtype))
    bases = bench_bases(trainable_tensors(model), basis, size=size)
    manifest, plain, scratch, data = bases.manifest, shared_copy(model), copy.deepcopy(model), random_data(*size)
    examples, words = row_batch(data.examples, 0, where), data.label_tokens
    session = Estimator(SharedModel(model), bases, data)
    for epoch in (0, 1):
        session.set_coefficients(epoch, some_coefficients(manifest, epoch))
    quick = {
        "step": lambda: session.estimate(1, manifest.method.epoch_steps),  # the first of epoch 1
        "forward": references.forward_twice(plain, examples),
    }
    slow = {
        "mezo": references.mezo(scratch, examples, words),
        "mezo_same_tensors": references.mezo(scratch, examples, words, [tensor.name for tensor in manifest.tensors]),
        "adamw": references.adamw(scratch, examples, words),
        "lora": references.lora(plain, examples, words),
        "full_forward": references.forward_twice(plain, examples, has_head=True),
        "step": quick["step"],
    }
    times = timed_in_turn(quick, where, repeats)
    slow_times = timed_in_turn(slow, where, min(repeats, SLOW_REPEATS))
    return {
        "shape": shape,
        "rows": size[0],
        "tokens": size[1],
        "dtype": dtype,
        "basis": basis.value,
        "device": where.type,
        "threads": torch.get_num_threads(),
        "trained_parameters": sum(tensor.rows * max(1, tensor.cols) for tensor in manifest.tensors),
        **_ratios(times, slow_times),
        **_memory(peaks(shape, size, dtype, where.type)),
        "compared": COMPARED,
    }


def _ratios(times: dict[str, Times], slow: dict[str, Times]) -> dict[str, object]:
    """Return all ratios; a slow reference is compared with the steps that took turns with it."""
    ratios = {
        "to_forward": paired_ratio(times["step"], times["forward"]),
        "to_full_forward": paired_ratio(slow["step"], slow["full_forward"]),
        "to_mezo": paired_ratio(slow["mezo"], slow["step"]),
        "to_mezo_same_tensors": paired_ratio(slow["mezo_same_tensors"], slow["step"]),
        "to_backprop": paired_ratio(slow["adamw"], slow["step"]),
        "to_lora": paired_ratio(slow["lora"], slow["step"]),
    }
    every = slow | times
    return {
        **{f"ratio_{name}": found["ratio"] for name, found in ratios.items()},
        "ratios": ratios,
        "seconds": {name: found.median for name, found in every.items()},
        "seconds_shortest": {name: min(found.values) for name, found in every.items()},
        "spread": {name: found.spread for name, found in every.items()},
    }


def _memory(peak: dict[str, int]) -> dict[str, object]:
    if not peak:
        return {"peak_memory_ratio": None, "peak_bytes": {}}
    return {
        "peak_memory_ratio": peak["step"] / peak["forward"],
        "peak_memory_ratio_later": peak["step_later"] / peak["forward"],
        "peak_memory_ratio_later_published": peak["step_later_published"] / peak["forward"],
        "memory_of_backprop": peak["adamw"] / peak["step"],
        "memory_of_lora": peak["lora"] / peak["step"],
        "memory_of_mezo": peak["mezo"] / peak["step"],
        "peak_bytes": peak,
    }
