"""Whether a run of the laboratory finds what the committed tables say: accuracies at the end, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TOLERANCE: Final = 0.03  # of an accuracy: twice the standard error of 500 rows, rounded down


def agreement(committed: Mapping[str, float], found: Mapping[str, float]) -> list[str]:
    """Lines for people: how many rows agree, and each that does not, with both figures.

    Args:
        committed: accuracy at the end by name of the row, mean of the seeds; rows that were not measured are skipped.
        found: the same, of this run.
    """
    common = [name for name in found if name in committed]
    apart = [name for name in common if abs(found[name] - committed[name]) > TOLERANCE]
    head = f"{len(common) - len(apart)} of {len(common)} rows within {100 * TOLERANCE:.0f} points of the committed ones"
    rows = [f"  {name}: {100 * committed[name]:.1f} % committed, {100 * found[name]:.1f} % now" for name in apart]
    return [head, *rows]
