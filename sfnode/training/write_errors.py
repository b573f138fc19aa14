"""Explain in words why weights could not be written."""

import os
import re

from safetensors import SafetensorError

from sfnode.storage import disk


def describe_write_error(error: OSError | SafetensorError) -> str:
    """Return what to show the operator. Safetensors puts the number of an operating system's error into its text."""
    if isinstance(error, SafetensorError):
        number = re.search(r"os error (\d+)", str(error))
        return disk.describe_os_error(OSError(int(number[1]), os.strerror(int(number[1])))) if number else str(error)
    return disk.describe_os_error(error)
