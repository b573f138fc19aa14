"""The progress of the model into the worker: found, fetched, loaded."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ModelStage(StrEnum):
    """Names the stages of getting the model into the worker."""

    FINDING = "finding"  # on this disk, at the hub or in a package; perhaps converted
    FETCHING = "fetching"  # from the neighbours
    LOADING = "loading"  # into the worker


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProgress:
    """Holds the progress of one stage.

    Attributes:
        text: for people.
        done_bytes, total_bytes: of this stage; 0: not known.
        givers: neighbours that send pieces now.
        bytes_per_s: the rate at which pieces arrive.
    """

    stage: str
    text: str
    done_bytes: int = 0
    total_bytes: int = 0
    givers: int = 0
    bytes_per_s: int = 0
