"""Measure the peak memory of a step and its references, each in its own process so that none sees another's leftovers.

``python -m sfnode.training.bench.peak_memory NAME SHAPE ROWS TOKENS DTYPE DEVICE`` prints bytes; `peaks` runs it.
On a CPU, the figure is the largest resident memory since the model was made, less what Python and torch held before it:
weights, activations, gradients, moments, and the libraries' scratch. On CUDA it is the allocated memory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from statistics import median
from typing import Final, assert_never

import torch

from protocol.errors import OperatorError
from protocol.subspace import Bases
from sfnode.children.program import Program
from sfnode.training.allocator import keep_freed_memory
from sfnode.training.bench import references
from sfnode.training.bench.subjects import bench_manifest, published, random_data, random_model, some_coefficients
from sfnode.training.bench.timing import Action, peak_bytes, process_bytes, reset_peak, wait_for
from sfnode.training.estimator import Estimator
from sfnode.training.model import choose_device, choose_dtype, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task import row_batch

_RUNS: Final = 2  # the second has what the first one keeps: moments, bases, caches
_PROCESSES: Final = 3  # the layout of the heap differs by a tenth between them
_SECONDS_MAX: Final = 3_600


class Alternative(StrEnum):
    """What runs in the process."""

    FORWARD = "forward"
    STEP = "step"  # in the run's first epoch
    STEP_LATER = "step_later"  # with a random basis, and an epoch folded into copies of the trained weights
    STEP_LATER_PUBLISHED = "step_later_published"  # with a published basis, which all epochs share
    MEZO = "mezo"
    ADAMW = "adamw"
    LORA = "lora"


def peaks(
    shape: str,
    size: tuple[int, int],
    dtype: str,
    device: str,
    alternatives: Sequence[Alternative] = tuple(Alternative),
) -> dict[str, int]:
    """Return peak bytes of ``alternatives`` with ``size`` = (rows, tokens), medians; empty where memory is unknown."""
    if process_bytes() is None and device != "cuda":
        return {}
    settings = (shape, *map(str, size), dtype, device)
    return {
        alternative.value: int(median(_peak_of(alternative, settings) for _ in range(_PROCESSES)))
        for alternative in alternatives
    }


def _peak_of(alternative: Alternative, settings: Sequence[str]) -> int:
    done = Program(module=__name__, arguments=(alternative.value, *settings)).run(_SECONDS_MAX)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise OperatorError(f"peak memory of {alternative.value}: the process ended with {done.returncode}: {last}")
    return int(done.stdout)


def measure_alternative(alternative: Alternative, settings: Sequence[str]) -> int:
    """Return the peak bytes of ``alternative`` in this process, which must be fresh."""
    shape, rows, tokens, dtype, device = settings
    where = choose_device(device)
    before = 0 if where.type == "cuda" else process_bytes() or 0
    action = _action(alternative, shape, (int(rows), int(tokens)), choose_dtype(dtype), where)
    reset_peak(where)
    for _ in range(_RUNS):
        action()
    wait_for(where)
    return (peak_bytes(where) or 0) - before


def _action(
    alternative: Alternative, shape: str, size: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> Action:
    model = random_model(shape, device, dtype)
    data = random_data(*size)
    rows = row_batch(data.examples, 0, device)
    match alternative:
        case Alternative.FORWARD:
            return references.forward_twice(model, rows)
        case Alternative.MEZO:
            return references.mezo(model, rows, data.label_tokens)
        case Alternative.ADAMW:
            return references.adamw(model, rows, data.label_tokens)
        case Alternative.LORA:
            return references.lora(model, rows, data.label_tokens)
        case Alternative.STEP | Alternative.STEP_LATER | Alternative.STEP_LATER_PUBLISHED:
            bases = Bases(bench_manifest(trainable_tensors(model), rows=size[0], tokens=size[1]))
            if alternative is Alternative.STEP_LATER_PUBLISHED:
                bases = published(bases)
            session = Estimator(SharedModel(model), bases, data)
            epoch = int(alternative is not Alternative.STEP)
            for each in range(epoch + 1):
                session.set_coefficients(each, some_coefficients(bases.manifest, each))
            return lambda: session.estimate(1, epoch * bases.manifest.method.epoch_steps)
    assert_never(alternative)


if __name__ == "__main__":
    keep_freed_memory()
    sys.stdout.write(f"{measure_alternative(Alternative(sys.argv[1]), sys.argv[2:])}\n")
