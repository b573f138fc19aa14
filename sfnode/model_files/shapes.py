"""Compares the shapes of the tensors in a model's folder with those of a run, in a second and without loading it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from protocol.errors import OperatorError
from protocol.run import TensorSpec
from sfnode.model_files.folder import weight_files

_LENGTH: Final = struct.Struct("<Q")  # of the header that a safetensors file begins with
_HEADER_BYTES_MAX: Final = 4 << 20  # 30,000 tensors; this runs in the node, and parsed JSON takes 20 times its length


def check_shapes(folder: Path, tensors: Sequence[TensorSpec], model: str) -> None:
    """Raise OperatorError if a tensor of the run has another shape in ``folder``, which is then another model.

    Equal shapes do not prove that it is the right model: the worker compares the weights. The worker also reports files
    that cannot be read, which are skipped here.
    """
    found: dict[str, list[int]] = {}
    with suppress(OperatorError, OSError, ValueError, struct.error, RecursionError):
        found = {name: shape for path in weight_files(folder) for name, shape in _shapes(folder / path)}
    for tensor in tensors:
        wanted = [tensor.rows, tensor.cols] if tensor.cols else [tensor.rows]
        if tensor.name in found and found[tensor.name] != wanted:
            raise OperatorError(
                f"--model {folder} is not the run's model {model}: its {tensor.name} has the shape "
                f"{found[tensor.name]}, and the run's has {wanted}. Use the run's model"
            )


def _shapes(path: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield the names and shapes of the tensors of one file. OSError, ValueError, struct.error."""
    if path.suffix != ".safetensors":
        return
    with path.open("rb") as file:
        (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
        if length > _HEADER_BYTES_MAX:
            raise ValueError("no safetensors header, or one for the worker alone")
        header = json.loads(file.read(length))
    for name, entry in header.items() if isinstance(header, Mapping) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("shape"), list):
            yield name, entry["shape"]
