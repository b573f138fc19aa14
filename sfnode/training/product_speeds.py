"""Measure how fast this processor multiplies in each number format: the table of `doctor` and `bench dtypes`."""

from collections.abc import Iterator
from typing import Final

import torch

from protocol.errors import OperatorError
from sfnode.training.model import loading, product_seconds, quantised, rows_to_widen
from sfnode.worker_protocol import PRECISIONS, ProductSpeed

_CPU: Final = torch.device("cpu")
_ROWS: Final = 256  # tokens: 16 short examples
_OUTPUTS, _INPUTS = 1_536, 576  # SmolLM2-135M's widest layer
_OPERATIONS: Final = 2 * _ROWS * _OUTPUTS * _INPUTS


def product_speeds() -> tuple[ProductSpeed, ...]:
    """Return the speeds of all formats that this installation has, in the order of PRECISIONS. Takes a second or two.

    They are those of a layer of 576 inputs and 1,536 outputs that meets 256 tokens.
    """
    return tuple(_speeds())


def _speeds() -> Iterator[ProductSpeed]:
    for name, precision in PRECISIONS.items():
        dtype = loading.compute_dtype(name)
        weight = torch.ones(_OUTPUTS, _INPUTS, dtype=dtype)
        try:
            held = quantised.quantised_weight(name, _CPU, weight) if precision.is_quantised else weight
        except OperatorError:  # torchao is not installed
            continue
        as_held, in_fp32 = product_seconds(_ROWS, held)
        is_widened = rows_to_widen(dtype, _CPU.type, torch.get_num_threads()) is not None
        yield ProductSpeed(
            dtype=name,
            gflops=_OPERATIONS / as_held / 1e9,
            in_fp32=None if in_fp32 is None else _OPERATIONS / in_fp32 / 1e9,
            is_widened=is_widened and in_fp32 is not None,
        )
