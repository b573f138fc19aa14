"""Print what torch can compute on here, as one line of JSON.

This is a program of its own: `sfnode doctor` can end it when a driver hangs, and survives when a driver crashes.
"""

from __future__ import annotations

import json
import sys

import torch

from protocol.schema import to_plain
from sfnode.worker_protocol import CudaDevice, DeviceReport


def describe_devices() -> DeviceReport:
    """Return the devices that torch finds; asking it may load drivers."""
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
    )


if __name__ == "__main__":
    sys.stdout.write(json.dumps(to_plain(describe_devices(), as_rows=False)) + "\n")
