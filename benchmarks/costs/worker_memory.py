"""Measure the memory that a training process takes, loading a model and training it, beside the plan of `doctor`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch

from benchmarks.shapes import shape_tensors
from protocol.errors import OperatorError
from sfnode.children.child_program import Program
from sfnode.doctor import plan_memory
from sfnode.training.allocator import giving_back_freed_memory
from sfnode.training.bench import BenchBasis, peak_memory, synthetic_models
from sfnode.training.estimator import Estimator
from sfnode.training.shared_model import load_shared

_STEPS: Final = 2  # of an epoch: the second has what the first one keeps
_CPU: Final = torch.device("cpu")


def bench_memory(shape: str, *, size: tuple[int, int], dtype: str, basis: BenchBasis) -> dict[str, object]:
    """Compare the peaks of a worker with their plan; ``size``: rows and tokens. `without_program`: less libraries."""
    manifest = synthetic_models.bench_bases(shape_tensors(shape), basis, size=size).manifest
    with random_files(shape) as folder:
        plan = plan_memory(manifest, folder, dtype)
        found = worker_peaks(folder, shape, size, dtype, basis)
    planned, program = {"load_peak": plan.load_peak, "training_peak": plan.training_peak}, found["program"]
    return {
        **synthetic_models.setting(shape, size, dtype, basis, _CPU),
        "program": program,
        "planned": planned,
        "measured": {name: found[name] for name in planned},
        "ratio": {name: peak / found[name] for name, peak in planned.items()},
        "ratio_without_program": {name: (peak - program) / (found[name] - program) for name, peak in planned.items()},
    }


@contextmanager
def random_files(shape: str) -> Iterator[Path]:
    """Make a folder with a model of the given shape, in fp16 like most published ones: config.json and safetensors."""
    with TemporaryDirectory(prefix="sfnode-bench-") as folder:
        with giving_back_freed_memory():  # the process to be measured may need the room
            synthetic_models.random_model(shape, _CPU, torch.float16).save_pretrained(folder)
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
    if peak_memory.process_bytes() is None:
        raise OperatorError("this system does not say what memory a process takes: run it on Linux")
    return peak_memory.printed_by(
        Program(module=__name__, arguments=(shape, *map(str, size), dtype, basis, str(folder)))
    )


def _print_worker_peaks(shape: str, rows: str, tokens: str, dtype: str, basis: str, folder: str) -> None:
    program, size = peak_memory.process_bytes(), (int(rows), int(tokens))
    peak_memory.reset_peak(_CPU)
    shared = load_shared(dtype, Path(folder), _CPU)
    load_peak, loaded = peak_memory.peak_bytes(_CPU), peak_memory.process_bytes()
    peak_memory.reset_peak(_CPU)
    bases = synthetic_models.bench_bases(shape_tensors(shape), BenchBasis(basis), size=size)
    session = Estimator(shared, bases, synthetic_models.random_data(*size))
    epoch_steps = bases.manifest.method.epoch_steps
    for epoch in (0, 1):  # in the second, the first is closed, and the bases of both are kept
        for step in range(_STEPS):
            session.estimate(seed=1 + step, step=epoch * epoch_steps + step)
        session.set_coefficients(epoch, synthetic_models.some_coefficients(bases.manifest, epoch))
    found = {
        "program": program,
        "load_peak": load_peak,
        "loaded": loaded,
        "training_peak": peak_memory.peak_bytes(_CPU),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    _print_worker_peaks(*sys.argv[1:])
