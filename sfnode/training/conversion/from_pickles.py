"""Convert files of `torch.save` to safetensors. They are pickles; the unpickler here makes tensors and nothing else."""

import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.torch_version import TorchVersion

from protocol.errors import OperatorError, first_line
from sfnode.model_files import model_folder
from sfnode.training.conversion.weight_writer import write_weights
from sfnode.training.resource_limits import allow

_TORCH_MIN = "2.6"  # earlier versions could be made to run code despite weights_only: CVE-2025-32434
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_PICKLE_BYTES_MAX = 1 << 24  # names and shapes; 100,000 tensors take 10 MB
_GROWTH_MAX = 2  # tied tensors lie in the file once, but are written under each name
_MAPPED_AND_COPIED = 3  # the mapped files, and two copies of what is being written
_SLACK_BYTES = 1 << 20  # headers
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")


def convert_pickles(source: Path, out: Path) -> None:
    """Write the weights in ``source``, a folder with pytorch_model.bin or its shards, into ``out``, names unchanged.

    Files are mapped: memory holds only what is being written. OperatorError.
    """
    if TorchVersion(torch.__version__) < _TORCH_MIN:
        raise OperatorError(f"{source}: *.bin files are read with torch {_TORCH_MIN} or newer, not {torch.__version__}")
    files = [source / name for name in model_folder.pickle_files(source) if name.endswith(".bin")]
    total = sum(file.stat().st_size for file in files)
    allow(memory=_MAPPED_AND_COPIED * total, file=_GROWTH_MAX * total + _SLACK_BYTES)
    for file in files:
        _check_archive(file)
    tensors: dict[str, Tensor] = {}
    for file in files:
        found = _tensors_in(file)
        if twice := sorted(tensors.keys() & found.keys()):
            raise OperatorError(f"{file}: the tensor {twice[0]!r} is in another file, too")
        tensors |= found
    if sum(tensor.nbytes for tensor in tensors.values()) > _GROWTH_MAX * total + _SLACK_BYTES:
        raise OperatorError(f"{source}: its tensors are more than {_GROWTH_MAX} times what the files hold")
    try:
        write_weights(out, tensors)
    except RuntimeError as error:
        raise OperatorError(f"{source} cannot be converted: {first_line(error)}") from error


def _check_archive(file: Path) -> None:
    """Raise OperatorError unless the file is an archive of uncompressed parts, as `torch.save` writes since 1.6."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise OperatorError(
            f"{file} is not a file that torch.save has written since version 1.6 ({error}): convert the model"
        ) from None
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise OperatorError(f"{file}: its part {entry.filename!r} is packed, which torch.save never does")
        if entry.filename.endswith(".pkl") and entry.file_size > _PICKLE_BYTES_MAX:
            raise OperatorError(f"{file}: its pickle has {entry.file_size} bytes, more than {_PICKLE_BYTES_MAX}")
    if sum(entry.file_size for entry in entries) > file.stat().st_size:
        raise OperatorError(f"{file}: its parts promise more bytes than the file has")


def _tensors_in(file: Path) -> dict[str, Tensor]:
    try:
        found: object = torch.load(file, weights_only=True, mmap=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        asked = _GLOBAL.search(str(error))
        what = f"asks for {asked[1]}" if asked else "is not one of tensors alone"
        raise OperatorError(f"{file}: its pickle {what}, and code that comes with a model is not run") from None
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError) as error:
        raise OperatorError(f"{file} cannot be read: {first_line(error)}") from error
    if not isinstance(found, dict):
        raise OperatorError(f"{file} holds a {type(found).__name__}, not tensors by name")
    return {name: value for name, value in _checked(file, found).items() if value.dtype in _FLOATS}


def _checked(file: Path, found: Mapping[object, Any]) -> dict[str, Tensor]:
    """Return all tensors; OperatorError unless each of their values lies in the file.

    The caller drops those of integers: masks and counters that transformers makes itself.
    """
    tensors: dict[str, Tensor] = {}
    for name, value in found.items():
        if not isinstance(name, str):
            raise OperatorError(f"{file}: {name!r} is not the name of a tensor"[:300])
        if type(value) not in (Tensor, nn.Parameter):
            raise OperatorError(f"{file}: {name!r} is a {type(value).__name__}, not a tensor")
        tensor: Tensor = value.detach()  # without attachments
        if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
            reason = "is sparse, quantised or without values: only dense ones load"
        elif tensor.is_floating_point() and tensor.dtype not in _FLOATS:
            reason = f"is of {tensor.dtype}, which is not loaded"
        elif tensor.nbytes > tensor.untyped_storage().nbytes():
            reason = "promises more values than the file holds"
        else:
            tensors[name] = tensor
            continue
        raise OperatorError(f"{file}: the tensor {name!r} {reason}")
    return tensors
