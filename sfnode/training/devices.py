"""Choose what torch computes on, and measure it; run as a program, print what there is here, as one line of JSON.

The program is for `sfnode doctor`, which can end it when a driver hangs, and survives when a driver crashes.
"""

import json
import sys
from collections.abc import Iterator

import torch
from torch import nn

from protocol.errors import OperatorError
from protocol.schema import to_plain
from sfnode.training.model import loading, quantised, wide_products
from sfnode.worker_protocol import PRECISIONS, CudaDevice, DeviceReport, ProductSpeed

_CPU = torch.device("cpu")
_ROWS = 256  # tokens: 16 short examples
_OUTPUTS, _INPUTS = 1_536, 576  # SmolLM2-135M's widest layer
_OPERATIONS = 2 * _ROWS * _OUTPUTS * _INPUTS
DEVICES = ("auto", "cpu", "cuda", "mps")


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``; "auto" takes CUDA if it is there, else the CPU. OperatorError if absent."""
    if name not in DEVICES:
        raise OperatorError(f"device {name!r}: allowed are {', '.join(DEVICES)}")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if (name == "cuda" and not torch.cuda.is_available()) or (name == "mps" and not torch.backends.mps.is_available()):
        raise OperatorError(f"device {name!r}: this machine or this build of torch has none; use --device cpu or auto")
    return torch.device(name)


def move_to(device: str, model: nn.Module) -> None:
    """Move a model to the device called so. OperatorError as of `choose_device`."""
    model.to(choose_device(device))


def describe_devices() -> DeviceReport:
    """Return the devices that torch finds; asking it may load drivers. Without a card it measures the processor."""
    cards = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        free, total = torch.cuda.mem_get_info(index)
        name, bf16 = torch.cuda.get_device_name(index), torch.cuda.is_bf16_supported()
        cards.append(CudaDevice(name=name, free=free, total=total, bf16=bf16))
    return DeviceReport(
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        cuda=tuple(cards),
        mps=bool(torch.backends.mps.is_available()),
        speeds=() if cards else tuple(product_speeds()),
    )


def product_speeds() -> Iterator[ProductSpeed]:
    """Yield the speeds of all formats that this installation has, in the order of PRECISIONS. Takes a second or two.

    They are those of a layer of 576 inputs and 1,536 outputs that meets 256 tokens.
    """
    for name, precision in PRECISIONS.items():
        dtype = loading.compute_dtype(name)
        weight = torch.ones(_OUTPUTS, _INPUTS, dtype=dtype)
        try:
            held = quantised.quantised_weight(name, _CPU, weight) if precision.is_quantised else weight
        except OperatorError:  # torchao is not installed
            continue
        as_held, in_fp32 = wide_products.product_seconds(_ROWS, held)
        is_faster = wide_products.rows_to_widen(dtype, _CPU.type, torch.get_num_threads()) is not None
        yield ProductSpeed(
            dtype=name,
            gflops=_OPERATIONS / as_held / 1e9,
            in_fp32=None if in_fp32 is None else _OPERATIONS / in_fp32 / 1e9,
            is_widened=is_faster and in_fp32 is not None,
        )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(to_plain(describe_devices(), as_rows=False)) + "\n")
