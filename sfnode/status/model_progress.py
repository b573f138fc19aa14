"""How far the model is on its way into the worker: found, fetched, loaded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ModelStage(StrEnum):
    """What is being done with the model."""

    FINDING = "finding"  # on this disk, at the hub or in a package; perhaps converted
    FETCHING = "fetching"  # from the neighbours
    LOADING = "loading"  # into the worker


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProgress:
    """One moment of it.

    Attributes:
        text: for people.
        done_bytes, total_bytes: of this stage; 0 where that is not known.
        givers: neighbours that are giving pieces now.
        bytes_per_s: that come from them.
    """

    stage: str
    text: str
    done_bytes: int = 0
    total_bytes: int = 0
    givers: int = 0
    bytes_per_s: int = 0


def described_bytes(done: int, total: int) -> str:
    """Two sizes in one unit for people: "120 of 270 MB", "1.2 of 2.6 GB"."""
    if total >= 1_000_000_000:
        return f"{done / 1e9:.1f} of {total / 1e9:.1f} GB"
    if total >= 1_000_000:
        return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
    return f"{done / 1e3:.0f} of {total / 1e3:.0f} kB"
