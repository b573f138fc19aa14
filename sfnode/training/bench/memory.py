"""Measure peak memory, each figure in a process of its own so that none sees another's leftovers.

`peaks` measures a step and its references. On a CPU, their figure is the largest resident memory since the model was
made, less what Python and torch held before it: weights, activations, gradients, moments, and the libraries' scratch.
On CUDA it is the allocated memory. `worker_peaks` measures what a worker takes while it loads a model from files and
while it trains: resident memory, as a user sees it. Both run this module, which prints a mapping as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, assert_never

import torch
from transformers import PreTrainedModel

from protocol.errors import OperatorError
from protocol.subspace import Bases
from sfnode.children.program import Program
from sfnode.training.allocator import giving_back_freed_memory, keep_freed_memory
from sfnode.training.bench import references
from sfnode.training.bench.subjects import (
    BenchBasis,
    bench_bases,
    bench_manifest,
    published,
    random_data,
    random_model,
    shape_tensors,
    some_coefficients,
)
from sfnode.training.bench.timing import Action, peak_bytes, process_bytes, reset_peak, wait_for
from sfnode.training.estimator import Estimator
from sfnode.training.model import loading, trainable_tensors
from sfnode.training.shared_model import SharedModel, load_shared
from sfnode.training.task import row_batch

_RUNS: Final = 2  # the second has what the first one keeps: moments, bases, caches
_PROCESSES: Final = 3  # the layout of the heap differs by a tenth between them
_SECONDS_MAX: Final = 3_600
_CPU: Final = torch.device("cpu")
_WORKER: Final = "worker"


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
        name: int(median(_measured_apart(name, *settings)["peak"] for _ in range(_PROCESSES))) for name in alternatives
    }


@contextmanager
def random_files(shape: str) -> Iterator[Path]:
    """Make a folder with a model of the given shape, in fp16 like most published ones: config.json and safetensors."""
    with TemporaryDirectory(prefix="sfnode-bench-") as folder:
        with giving_back_freed_memory():  # the process to be measured may need the room
            random_model(shape, _CPU, torch.float16).save_pretrained(folder)
        yield Path(folder)


def worker_peaks(
    folder: Path, shape: str, size: tuple[int, int], dtype: str, basis: BenchBasis = BenchBasis.RANDOM
) -> dict[str, int]:
    """Load the model in ``folder``, of ``shape``, in a new process, and train with ``size`` = (rows, tokens).

    Returns:
        program: resident bytes of Python, torch and transformers, before a model.
        load_peak: the most while the model was loaded, and `loaded`: when it had been loaded; program included.
        training_peak: the most during steps of the first epoch, and of the second with the first one closed.
    """
    if process_bytes() is None:
        raise OperatorError("this system does not say what memory a process takes: run it on Linux")
    return _measured_apart(_WORKER, shape, *map(str, size), dtype, basis.value, str(folder))


def _measured_apart(name: str, *settings: str) -> dict[str, int]:
    done = Program(module=__name__, arguments=(name, *settings)).run(_SECONDS_MAX)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise OperatorError(f"peak memory of {name}: the process ended with {done.returncode}: {last}")
    found: dict[str, int] = json.loads(done.stdout)
    return found


def _measure_alternative(alternative: Alternative, shape: str, size: tuple[int, int], dtype: str, device: str) -> int:
    """Return the peak bytes of ``alternative`` in this process, which must be fresh."""
    where = loading.choose_device(device)
    before = 0 if where.type == "cuda" else process_bytes() or 0
    action = _action(alternative, random_model(shape, where, loading.choose_dtype(dtype)), size)
    reset_peak(where)
    for _ in range(_RUNS):
        action()
    wait_for(where)
    return (peak_bytes(where) or 0) - before


def _action(alternative: Alternative, model: PreTrainedModel, size: tuple[int, int]) -> Action:
    data = random_data(*size)
    rows = row_batch(data.examples, 0, model.device)
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


def _measure_worker(
    shape: str, size: tuple[int, int], dtype: str, basis: BenchBasis, folder: Path
) -> dict[str, int | None]:
    """Return the peaks of this process, which must be fresh."""
    program = process_bytes()
    reset_peak(_CPU)
    shared = load_shared(dtype, folder, _CPU)
    load_peak, loaded = peak_bytes(_CPU), process_bytes()
    reset_peak(_CPU)
    bases = bench_bases(shape_tensors(shape), basis, size=size)
    session = Estimator(shared, bases, random_data(*size))
    epoch_steps = bases.manifest.method.epoch_steps
    for epoch in (0, 1):  # in the second, the first is closed, and the bases of both are kept
        for step in range(_RUNS):
            session.estimate(seed=1 + step, step=epoch * epoch_steps + step)
        session.set_coefficients(epoch, some_coefficients(bases.manifest, epoch))
    return {"program": program, "load_peak": load_peak, "loaded": loaded, "training_peak": peak_bytes(_CPU)}


if __name__ == "__main__":
    _name, _shape, _rows, _tokens, _dtype, _where, *_folder = sys.argv[1:]
    _size = int(_rows), int(_tokens)
    if _name == _WORKER:
        _found = _measure_worker(_shape, _size, _dtype, BenchBasis(_where), Path(*_folder))
    else:
        keep_freed_memory()
        _found = {"peak": _measure_alternative(Alternative(_name), _shape, _size, _dtype, _where)}
    sys.stdout.write(json.dumps(_found) + "\n")
