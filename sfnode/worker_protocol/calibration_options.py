"""An owner's options for making a published basis. No click, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sfnode.worker_protocol.device_choices import DeviceOptions


class Source(StrEnum):
    """Names the source of a basis."""

    GRADIENT = "gradient"
    FORWARD = "forward"
    TRAJECTORY = "trajectory"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    """Says how the model is examined to make a basis.

    Attributes:
        data: a JSONL file or "embedded:NAME".
        source: None: forward passes alone, where the task has label words of one token each; else a short run with
            back-propagation.
        examples: how many, spread over ``data``; None: a number that suits the source.
    """

    data: str
    source: Source | None = None
    examples: int | None = None
    devices: DeviceOptions = field(default_factory=DeviceOptions)
