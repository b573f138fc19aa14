"""Draw a curve in one line of text, and keep a curve short."""

import math
from collections.abc import Sequence
from typing import TypeVar

_BARS, _ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=*#"
_Point = TypeVar("_Point")


def sparkline(values: Sequence[float], width: int, *, is_ascii: bool = False) -> str:
    """Return the finite ``values`` as a curve of at most ``width`` (two or more) characters, scaled to their range."""
    shown = thinned([value for value in values if math.isfinite(value)], width)
    bars = _ASCII_BARS if is_ascii else _BARS
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    return "".join(bars[round((value - low) * scale)] for value in shown)


def thinned(points: Sequence[_Point], count_max: int) -> tuple[_Point, ...]:
    """Return at most ``count_max`` (two or more) of the points, evenly spaced, with the first and the last."""
    if len(points) <= count_max:
        return tuple(points)
    last = len(points) - 1
    return tuple(points[number * last // (count_max - 1)] for number in range(count_max))
