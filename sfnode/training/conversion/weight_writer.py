"""Write tensors into safetensors files: equal tensors give equal bytes."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file

from sfnode.model_files import INDEX_FILE, SINGLE_FILE, TOTAL_FILE

_SHARD_BYTES = 1 << 30  # one shard is in memory at a time


def write_weights(folder: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write one file, or several with an index. Tensors may share memory, or lie in files: each is read once.

    The total goes into a file next to ``folder`` first, for those who show the progress.
    """
    total = sum(tensor.nbytes for tensor in tensors.values())
    (folder.parent / TOTAL_FILE).write_text(str(total), "ascii")
    shards = _shards({name: tensors[name].nbytes for name in sorted(tensors)})
    if len(shards) == 1:
        _write_shard(folder / SINGLE_FILE, {name: tensors[name] for name in shards[0]})
        return
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        _write_shard(folder / file, {name: tensors[name] for name in names})
        weight_map |= dict.fromkeys(names, file)
    write_json_file(folder / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": weight_map})


def write_json_file(path: Path, content: Mapping[str, object]) -> None:
    """Write a JSON object with sorted keys."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", "utf-8")


def narrowest(values: torch.Tensor) -> torch.Tensor:
    """Return the same fp32 values in 16 bits each, if such a format holds all of them exactly."""
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal((narrow := values.to(dtype)).float(), values):
            return narrow
    return values


def _shards(sizes: Mapping[str, int]) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    filled = 0
    for name, size in sizes.items():
        if shards[-1] and filled + size > _SHARD_BYTES:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += size
    return shards


def _write_shard(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    # clones, because the library refuses tensors that share memory, as tied ones do
    save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})
    with path.open("rb") as file:
        os.fsync(file.fileno())
