"""Time actions in turn, and compare them: medians, with their spread."""

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np
import torch

_QUARTILES = (0.25, 0.75)


def timed_in_turn(
    actions: Mapping[str, Callable[[], object]], device: torch.device, repeats: int
) -> dict[str, list[float]]:
    """Time each action ``repeats`` times after one untimed run, in turn, so that a slow minute affects all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(repeats + 1):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            wait_for(device)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def relative_spread(seconds: Sequence[float]) -> float:
    """Return the width of the middle half of the runs, as a share of the median; 0 where that is 0."""
    low, high = np.quantile(seconds, _QUARTILES)
    return float(high - low) / (median(seconds) or np.inf)


def paired_ratio(over: Sequence[float], under: Sequence[float]) -> dict[str, float]:
    """Return the ratio of medians, and the quartiles of the ratios of runs that were neighbours in time."""
    low, high = np.quantile(np.divide(over, under), _QUARTILES)
    return {"ratio": median(over) / median(under), "lower_quartile": float(low), "upper_quartile": float(high)}


def compared(times: Mapping[str, Sequence[float]], pairs: Mapping[str, tuple[str, str]]) -> dict[str, object]:
    """Return the ratio of the first to the second of each of ``pairs``; `seconds` has medians of all ``times``."""
    ratios = {name: paired_ratio(times[over], times[under]) for name, (over, under) in pairs.items()}
    return {
        **{f"ratio_{name}": found["ratio"] for name, found in ratios.items()},
        "ratios": ratios,
        "seconds": {name: median(found) for name, found in times.items()},
        "spread": {name: relative_spread(found) for name, found in times.items()},
    }
