"""An operator's choices for training on this machine, which a node also sends to its worker; what there is to choose.

No torch.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

AUTO = "auto"
_SMALL_BYTES = 64 << 20  # of weights as the run's owner holds them; half of it is not worth any rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """Holds an operator's choice of where the forward passes run, and in which number format.

    Attributes:
        device: "auto", "cpu", "cuda" or "mps".
        dtype: of the weights; one of PRECISIONS, or AUTO (`precision`).
        device_memory: MiB that the weights may take on the device, while the rest wait elsewhere; None: no limit.
    """

    device: str = "auto"
    dtype: str = AUTO
    device_memory: int | None = None

    def precision(self, weight_bytes: int) -> str:
        """Return the one of PRECISIONS that ``dtype`` means: AUTO is bf16, and fp32 for a small model.

        How fast a processor computes in bf16 does not matter: the worker multiplies in fp32 where that is faster.
        """
        if self.dtype != AUTO:
            return self.dtype
        return "fp32" if weight_bytes < _SMALL_BYTES else "bf16"


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


PRECISIONS = {
    "fp32": Precision(compute="float32", compute_bytes=4.0, linear_bytes=4.0),
    "bf16": Precision(compute="bfloat16", compute_bytes=2.0, linear_bytes=2.0),
    "fp16": Precision(compute="float16", compute_bytes=2.0, linear_bytes=2.0),
    "int8": Precision(compute="bfloat16", compute_bytes=2.0, linear_bytes=1.01),
    "int8-fp32": Precision(compute="float32", compute_bytes=4.0, linear_bytes=1.01),
    "int4": Precision(compute="bfloat16", compute_bytes=2.0, linear_bytes=0.625),
}
FLOATS = tuple(name for name, precision in PRECISIONS.items() if not precision.is_quantised)


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
class ProductSpeed:
    """Holds how fast the processor multiplies a layer's inputs with weights of one of PRECISIONS.

    Attributes:
        gflops: 10^9 operations a second as the numbers are held; in_fp32: with both factors widened just before.
        is_widened: whether a worker takes the second way.
    """

    dtype: str
    gflops: float
    in_fp32: float | None
    is_widened: bool

    def __str__(self) -> str:
        """Return the speed in words: "bf16 13 (in fp32 87, taken)"."""
        other = "" if self.in_fp32 is None else f" (in fp32 {self.in_fp32:.0f}{', taken' if self.is_widened else ''})"
        return f"{self.dtype} {self.gflops:.0f}{other}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceReport:
    """Describes this machine as torch sees it; a process with torch sends it to one without.

    Attributes:
        torch: its version.
        threads: with which it would compute.
        mps: whether there is an Apple GPU.
        speeds: of the processor; empty where there is a card to compute on.
    """

    torch: str
    threads: int
    cuda: tuple[CudaDevice, ...]
    mps: bool
    speeds: tuple[ProductSpeed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseConfig:
    """Holds how much noise goes into a dense message.

    Attributes:
        multiplier: standard deviation of the noise in a message's sum, in lengths to which a row is clipped.
        epsilon_max: measure nothing that would exceed it; None: no limit.
    """

    multiplier: float
    epsilon_max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """Holds an operator's choices for training on this machine.

    Attributes:
        model: folder of the model, ``embedded:NAME``, or a hub id (then the manifest's revision is used); None while
            only neighbours have it.
        data: file of rows to train on; None for a session that only evaluates.
        eval_data: file of rows to evaluate on, or None.
        threads, worker_socket: of the worker to start, None being `default_threads`, or of one that runs already;
            no session needs them.
        noise: of the messages; None: none.
        private_reward: a command that says how good answers are, in place of the run's rule; None: the rule does.
        basis: file of the basis of a run with a dense core; else None.
    """

    model: str | None
    data: Path | None
    eval_data: Path | None = None
    devices: DeviceOptions = field(default_factory=DeviceOptions)
    threads: int | None = None
    worker_socket: Path | None = None
    noise: NoiseConfig | None = None
    private_reward: str | None = None
    basis: Path | None = None

    @staticmethod
    def default_threads() -> int:
        """Return all cores but one, which the network needs: without a spare core a step is 15 times slower."""
        return max(1, (os.cpu_count() or 1) - 1)
