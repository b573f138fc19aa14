"""Measure what a worker takes while it loads a model from files, and while it trains, in a process of its own.

``python -m sfnode.training.bench.worker_memory FOLDER SHAPE ROWS TOKENS DTYPE BASIS`` prints `WorkerPeaks` as JSON.
`random_files` makes the folder, and `worker_peaks` runs the program. Counts resident memory, as a user sees it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch

from protocol.errors import OperatorError
from protocol.subspace import Bases
from sfnode.children.program import Program
from sfnode.training.allocator import giving_back_freed_memory
from sfnode.training.bench.subjects import (
    BenchBasis,
    bench_bases,
    random_data,
    random_model,
    shape_tensors,
    some_coefficients,
)
from sfnode.training.bench.timing import peak_bytes, process_bytes, reset_peak
from sfnode.training.estimator import Estimator
from sfnode.training.shared_model import load_shared

_CPU: Final = torch.device("cpu")
_EPOCHS: Final = 2  # of the run: in the last one the first is closed, and the bases of both are kept
_STEPS: Final = 2  # of an epoch: the second has what the first one leaves
_SECONDS_MAX: Final = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPeaks:
    """Resident bytes.

    Attributes:
        program: Python, torch and transformers, before a model.
        load_peak: the most while the model was loaded; program included.
        loaded: when it had been loaded.
        training_peak: the most during steps of the first epoch, and of the second with the first one closed.
    """

    program: int
    load_peak: int
    loaded: int
    training_peak: int


@contextmanager
def random_files(shape: str) -> Iterator[Path]:
    """Make a folder with a model of the given shape, in fp16 like most published ones: config.json and safetensors."""
    with TemporaryDirectory(prefix="sfnode-bench-") as folder:
        with giving_back_freed_memory():  # the process to be measured may need the room
            random_model(shape, _CPU, torch.float16).save_pretrained(folder)
        yield Path(folder)


def worker_peaks(
    folder: Path, shape: str, size: tuple[int, int], dtype: str, basis: BenchBasis = BenchBasis.RANDOM
) -> WorkerPeaks:
    """Load the model in ``folder``, of ``shape``, in a new process, and train with ``size`` = (rows, tokens)."""
    if process_bytes() is None:
        raise OperatorError("this system does not say what memory a process takes: run it on Linux")
    arguments = (str(folder), shape, *map(str, size), dtype, basis.value)
    done = Program(module=__name__, arguments=arguments).run(_SECONDS_MAX)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise OperatorError(f"the process that was to be measured ended with {done.returncode}: {last}")
    return WorkerPeaks(**json.loads(done.stdout))


def run_of(shape: str, size: tuple[int, int], basis: BenchBasis = BenchBasis.RANDOM) -> Bases:
    """Return a run that trains the linear layers of ``shape`` in two epochs; ``size``: rows and tokens of a batch."""
    rows, tokens = size
    return bench_bases(shape_tensors(shape), basis, rows=rows, tokens=tokens, epochs=_EPOCHS)


def measure(folder: Path, bases: Bases, dtype: str) -> WorkerPeaks:
    """Measure the peaks of this process, which must be fresh."""
    program = _resident()
    reset_peak(_CPU)
    shared = load_shared(dtype, folder, _CPU)
    load_peak, loaded = _peak(), _resident()
    reset_peak(_CPU)
    manifest = bases.manifest
    session = Estimator(shared, bases, random_data(manifest.task.batch_rows, manifest.task.max_tokens))
    for epoch in range(_EPOCHS):
        for step in range(_STEPS):
            session.estimate(seed=1 + step, step=epoch * manifest.method.epoch_steps + step)
        session.set_coefficients(epoch, some_coefficients(manifest, epoch))
    return WorkerPeaks(program=program, load_peak=load_peak, loaded=loaded, training_peak=_peak())


def _resident() -> int:
    found = process_bytes()
    assert found is not None, "asked for in `worker_peaks`"
    return found


def _peak() -> int:
    found = peak_bytes(_CPU)
    assert found is not None, "asked for in `worker_peaks`"
    return found


if __name__ == "__main__":
    _folder, _shape, _rows, _tokens, _dtype, _basis = sys.argv[1:]
    _found = measure(Path(_folder), run_of(_shape, (int(_rows), int(_tokens)), BenchBasis(_basis)), _dtype)
    sys.stdout.write(json.dumps(asdict(_found)) + "\n")
