"""What torch can compute on here, reported by a process that has torch to one that has not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """Describes one graphics card.

    Attributes:
        free, total: bytes of its memory.
        bf16: whether it computes in bf16 natively.
    """

    name: str
    free: int
    total: int
    bf16: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """Describes this machine as torch sees it.

    Attributes:
        torch: its version.
        threads: with which it would compute.
        mps: whether there is an Apple GPU.
    """

    torch: str
    threads: int
    cuda: tuple[CudaDevice, ...]
    mps: bool
