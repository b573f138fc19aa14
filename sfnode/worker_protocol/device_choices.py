"""Where a worker computes and in which number format: what there is to choose, and what a machine can do. No torch."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """Holds an operator's choice of where the forward passes run, and in which number format.

    Attributes:
        device: "auto", "cpu", "cuda" or "mps".
        dtype: of the weights; one of PRECISIONS.
        device_memory: MiB that the weights may take on the device, while the rest wait elsewhere; None: no limit.
    """

    device: str = "auto"
    dtype: str = "fp32"
    device_memory: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Describes one choice of ``--dtype``.

    Attributes:
        compute: torch's name for the dtype of the activations, and of every weight that is not quantised.
        compute_bytes: of one such number.
        linear_bytes: of one weight of a linear layer, with its share of the scales if it is quantised.
    """

    compute: str
    compute_bytes: float
    linear_bytes: float

    @property
    def is_quantised(self) -> bool:
        """Return whether the weights of linear layers take fewer bits than the activations."""
        return self.linear_bytes < self.compute_bytes


PRECISIONS: Final = {
    "fp32": Precision(compute="float32", compute_bytes=4.0, linear_bytes=4.0),
    "bf16": Precision(compute="bfloat16", compute_bytes=2.0, linear_bytes=2.0),
    "fp16": Precision(compute="float16", compute_bytes=2.0, linear_bytes=2.0),
    "int8": Precision(compute="bfloat16", compute_bytes=2.0, linear_bytes=1.01),
    "int8-fp32": Precision(compute="float32", compute_bytes=4.0, linear_bytes=1.01),
    "int4": Precision(compute="bfloat16", compute_bytes=2.0, linear_bytes=0.625),
}
FLOATS: Final = tuple(name for name, precision in PRECISIONS.items() if not precision.is_quantised)


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
    """Describes this machine as torch sees it; a process with torch sends it to one without.

    Attributes:
        torch: its version.
        threads: with which it would compute.
        mps: whether there is an Apple GPU.
    """

    torch: str
    threads: int
    cuda: tuple[CudaDevice, ...]
    mps: bool
