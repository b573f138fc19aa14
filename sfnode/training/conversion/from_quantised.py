"""Turn quantised weights back into 16-bit numbers, by transformers' own operations for it. Training needs such numbers.

A format is decoded if that takes no other library and no kernel of a card (`model_folder.DECODED`).
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from protocol.errors import OperatorError, first_line
from sfnode.model_files import CONFIG_FILE, model_folder, read_config, weight_files
from sfnode.training.conversion.weight_writer import write_json_file, write_weights
from sfnode.training.model import loading
from sfnode.training.resource_limits import allow

_WIDENED_MAX = 8  # times that the decoded weights may take of the files: 2 of 8 bits, 4 of 4
_SLACK_BYTES = 1 << 24  # the header, the parts that are not weights
_HELD = 4  # times the decoded weights: the model, a shard, and what threads are just decoding
_DECODING_BYTES = 16 << 30  # of address space: indices of the largest tensor's parts
_DTYPES = {"float16": torch.float16, "float32": torch.float32}  # bfloat16 otherwise


def convert_quantised(source: Path, out: Path) -> None:
    """Write the weights in ``source`` into ``out``, decoded, and its config.json without the field that says how.

    Takes twice the memory of the decoded weights. OperatorError.
    """
    config = dict(read_config(source / CONFIG_FILE))
    how: Any = config.pop(model_folder.QUANTISED_FIELD)
    write_json_file(out / CONFIG_FILE, config)
    named: object = config.get("dtype", config.get("torch_dtype"))
    dtype = _DTYPES.get(named, torch.bfloat16) if isinstance(named, str) else torch.bfloat16
    empty, files = loading.empty_model(out), weight_files(source)
    size = sum((source / name).stat().st_size for name in files)
    whole = sum(parameter.numel() for parameter in empty.parameters()) * dtype.itemsize
    if whole > _WIDENED_MAX * size + _SLACK_BYTES:
        raise OperatorError(f"{source}: config.json describes a model that is larger than its files: fetch it again")
    allow(memory=size + _HELD * whole + _DECODING_BYTES, file=whole + size + _SLACK_BYTES)
    loading.silence_transformers()
    with tempfile.TemporaryDirectory() as made:
        view = Path(made)
        write_json_file(view / CONFIG_FILE, config | {model_folder.QUANTISED_FIELD: {**how, "dequantize": True}})
        for name in files:
            (view / name).symlink_to((source / name).resolve())
        options = {"trust_remote_code": False, "local_files_only": True, "output_loading_info": True}
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(view, dtype=dtype, **options)
        except (ValueError, LookupError, TypeError, AttributeError, ImportError, RuntimeError) as error:
            raise OperatorError(f"{source} cannot be decoded: {first_line(error)}") from error
    model, info = loaded
    if missing := sorted(info["missing_keys"]) + sorted(info["mismatched_keys"]):
        raise OperatorError(f"{source}: the weights lack {missing[0]}, or it has another shape: fetch the model again")
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():  # tied ones once
        found.setdefault(id(tensor), (name, tensor.detach()))
    write_weights(out, dict(found.values()))
