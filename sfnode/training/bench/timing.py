"""Measure seconds and bytes: alternatives timed in turn, medians with their spread, peak memory of this process."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import torch

from sfnode.training.allocator import trim

_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")
_RESET_PEAK: Final = "5"  # proc(5): sets VmHWM to the resident memory of now

Action = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one action, in the order of its runs."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Return the median, which is the reported value."""
        return median(self.values)

    @property
    def spread(self) -> float:
        """Return the width of the middle half of the runs, as a share of the median."""
        if len(self.values) < 2:
            return 0.0
        low, _, high = quantiles(self.values, n=4, method="inclusive")
        return (high - low) / self.median


def timed_in_turn(actions: Mapping[str, Action], device: torch.device, repeats: int) -> dict[str, Times]:
    """Time each action ``repeats`` times after one untimed run, in turn, so that a slow minute affects all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(repeats + 1):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            wait_for(device)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: Times(tuple(values)) for name, values in seconds.items()}


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def paired_ratio(over: Times, under: Times) -> dict[str, float]:
    """Return the ratio of medians, and the quartiles of the ratios of runs that were neighbours in time."""
    pairs = [one / other for one, other in zip(over.values, under.values, strict=True)]
    low, _, high = quantiles(pairs, n=4, method="inclusive") if len(pairs) > 1 else (pairs[0], pairs[0], pairs[0])
    return {"ratio": over.median / under.median, "lower_quartile": low, "upper_quartile": high}


def process_bytes() -> int | None:
    """Return the resident memory of this process now; None where the system does not report it."""
    return _status("VmRSS")


def reset_peak(device: torch.device) -> None:
    """Let `peak_bytes` count from here. Returns free memory to the system first."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return
    if sys.platform == "linux":
        trim()
        _CLEAR.write_text(_RESET_PEAK)


def peak_bytes(device: torch.device) -> int | None:
    """Return the most memory since `reset_peak`: allocated on a CUDA device, else resident here; None: unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _status("VmHWM")


def _status(field: str) -> int | None:
    if not _STATUS.exists():
        return None
    lines: Sequence[str] = _STATUS.read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))
