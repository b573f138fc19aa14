"""The number formats of a worker: the one list behind ``--dtype``. No torch: command line and doctor read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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
