"""What torch can compute on here, as a process that has torch tells one that has not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaDevice:
    """One graphics card.

    Attributes:
        free, total: bytes of its memory.
        bf16: whether it computes in bf16 without detours.
    """

    name: str
    free: int
    total: int
    bf16: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """This machine as torch sees it.

    Attributes:
        torch: its version.
        threads: that it would compute with.
        mps: whether there is an Apple GPU.
    """

    torch: str
    threads: int
    cuda: tuple[CudaDevice, ...]
    mps: bool
