"""Choose what torch computes on; run as a program, print what there is here, as one line of JSON.

The program is for `sfnode doctor`, which can end it when a driver hangs, and survives when a driver crashes.
"""

import json
import sys
from typing import Final

import torch

from protocol.errors import OperatorError
from protocol.schema import to_plain
from sfnode.training.product_speeds import product_speeds
from sfnode.worker_protocol import CudaDevice, DeviceReport

DEVICES: Final = ("auto", "cpu", "cuda", "mps")


def choose_device(name: str) -> torch.device:
    """Return the device called ``name``; "auto" takes CUDA if it is there, else the CPU. OperatorError if absent."""
    if name not in DEVICES:
        raise OperatorError(f"device {name!r}: allowed are {', '.join(DEVICES)}")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if (name == "cuda" and not torch.cuda.is_available()) or (name == "mps" and not torch.backends.mps.is_available()):
        raise OperatorError(f"device {name!r}: this machine or this build of torch has none; use --device cpu or auto")
    return torch.device(name)


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
        speeds=() if cards else product_speeds(),
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(to_plain(describe_devices(), as_rows=False)) + "\n")
