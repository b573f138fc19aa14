"""An operator's options for where to compute. No click, no torch, no network: training reads them, too."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """Says where the forward passes run, and in which number format.

    Attributes:
        device: "auto", "cpu", "cuda" or "mps".
        dtype: of the weights: "fp32", "bf16", "fp16", "int8", "int8-fp32" or "int4".
        device_memory: MiB that the weights may take on the device, while the rest wait elsewhere; None: no limit.
    """

    device: str = "auto"
    dtype: str = "fp32"
    device_memory: int | None = None
