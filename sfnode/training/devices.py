"""What torch can compute on here, as one line of JSON: ``python -m sfnode.training.devices``.

A program of its own, so that `sfnode doctor` can end it when a driver hangs, and survives one that crashes.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch


def describe_devices() -> dict[str, Any]:
    """Version, threads, and of each CUDA device name, free and total bytes and whether it computes in bf16."""
    return {"torch": torch.__version__, "threads": torch.get_num_threads(), "cuda": _cuda(), "mps": _has_mps()}


def _cuda() -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
        found.append({"name": name, "free": free, "total": total, "bf16": torch.cuda.is_bf16_supported()})
    return found


def _has_mps() -> bool:
    return bool(torch.backends.mps.is_available())


if __name__ == "__main__":
    sys.stdout.write(json.dumps(describe_devices()) + "\n")
