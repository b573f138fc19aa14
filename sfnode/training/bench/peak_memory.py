"""Measure peak memory, each figure in a process of its own so that none sees another's leftovers.

On a CPU, the figure of a step or of forward passes is the largest resident memory since the model was made, less what
Python and torch held before it: weights, activations, and the libraries' scratch. On CUDA it is the allocated memory.
The processes run this module, which prints a mapping as JSON.
"""

import gc
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from statistics import median

import torch
from transformers import PreTrainedModel

from protocol.errors import OperatorError
from sfnode.children.child_program import Program
from sfnode.training.allocator import keep_freed_memory, trim
from sfnode.training.bench import synthetic_models
from sfnode.training.bench.synthetic_models import Action, BenchBasis
from sfnode.training.bench.timing import wait_for
from sfnode.training.devices import choose_device
from sfnode.training.model import loading, trainable_tensors
from sfnode.training.task import TaskData, row_batch

_RUNS = 2  # the second has what the first one keeps: moments, bases, caches
_PROCESSES = 3  # the layout of the heap differs by a tenth between them
_SECONDS_MAX = 3_600
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): sets VmHWM to the resident memory of now


class Alternative(StrEnum):
    """What runs in the process."""

    FORWARD = "forward"  # of both sides' rows
    FORWARD_ONCE = "forward_once"
    STEP_DENSE = "step_dense"
    STEP = "step"  # in the run's first epoch
    STEP_LATER = "step_later"  # with an epoch folded into copies of the trained weights


def peaks(setting: Sequence[str], alternatives: Sequence[Alternative]) -> dict[str, int]:
    """Return the peak bytes of ``alternatives``; ``setting``: shape, rows, tokens, dtype and device, as text."""
    programs = {each.value: Program(module=__name__, arguments=(each, *setting)) for each in alternatives}
    return median_peaks(programs, torch.device(setting[-1]))


def median_peaks(programs: Mapping[str, Program], device: torch.device) -> dict[str, int]:
    """Run each program, which must call `print_peak`, a few times; return medians. Empty where memory is unknown."""
    if peak_bytes(device) is None:
        return {}
    runs = {name: [printed_by(program)["peak"] for _ in range(_PROCESSES)] for name, program in programs.items()}
    return {name: int(median(found)) for name, found in runs.items()}


def print_peak(make: Callable[[PreTrainedModel, TaskData], Action], setting: Sequence[str]) -> None:
    """Print the peak bytes of the action that ``make`` returns, in a fresh process that does nothing else."""
    keep_freed_memory()
    shape, rows, tokens, dtype, device = setting
    where = choose_device(device)
    before = 0 if where.type == "cuda" else process_bytes() or 0
    model = synthetic_models.random_model(shape, where, loading.compute_dtype(dtype))
    action = make(model, synthetic_models.random_data(int(rows), int(tokens)))
    reset_peak(where)
    for _ in range(_RUNS):
        action()
    wait_for(where)
    sys.stdout.write(json.dumps({"peak": (peak_bytes(where) or 0) - before}))


def process_bytes() -> int | None:
    """Return the resident memory of this process now; None where the system does not report it."""
    return _status("VmRSS")


def reset_peak(device: torch.device) -> None:
    """Let `peak_bytes` count from here. Returns free memory to the system first."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    elif _CLEAR.exists():
        trim()
        _CLEAR.write_text(_RESET_PEAK)


def peak_bytes(device: torch.device) -> int | None:
    """Return the most memory since `reset_peak`: allocated on a CUDA device, else resident here; None: unknown."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _status("VmHWM")


def _status(field: str) -> int | None:
    lines = _STATUS.read_text("ascii").splitlines() if _STATUS.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), None)


def printed_by(program: Program) -> dict[str, int]:
    """Run a program to its end, and return the mapping that it prints. OperatorError: it fails."""
    done = program.run(_SECONDS_MAX)
    if done.returncode != 0:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise OperatorError(f"peak memory of {program.arguments[0]}: the process ended with {done.returncode}: {last}")
    found: dict[str, int] = json.loads(done.stdout)
    return found


def _action(alternative: Alternative, model: PreTrainedModel, data: TaskData) -> Action:
    if alternative in (Alternative.FORWARD, Alternative.FORWARD_ONCE):
        sides = 1 if alternative is Alternative.FORWARD_ONCE else 2
        return synthetic_models.forward(model, row_batch(data.examples, 0, model.device), sides=sides)
    size = len(data.examples), len(data.examples[0].tokens)
    kind = BenchBasis.DENSE if alternative is Alternative.STEP_DENSE else BenchBasis.RANDOM
    bases = synthetic_models.bench_bases(trainable_tensors(model), kind, size=size)
    return synthetic_models.first_step(model, bases, data, epoch=int(alternative is not Alternative.STEP))


if __name__ == "__main__":
    print_peak(partial(_action, Alternative(sys.argv[1])), sys.argv[2:])
