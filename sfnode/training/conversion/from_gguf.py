"""Convert a GGUF file to a model folder, by transformers' own reader."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from protocol.errors import OperatorError, first_line
from sfnode.model_files import CONFIG_FILE, model_folder as files, read_config
from sfnode.training.conversion.gguf_header import check_header
from sfnode.training.conversion.weight_writer import narrowest, write_json_file, write_weights
from sfnode.training.model import check_configs, loading
from sfnode.training.resource_limits import allow

_FLOAT_BYTES = 4  # of a weight in memory: fp32
_HELD_TWICE = 2  # one tensor while it is copied; all of them where experts are gathered
_TOKENIZER_CONFIG = "tokenizer_config.json"
_OF_THE_PLACE = ("is_local", "local_files_only", "name_or_path")  # fields that say where it was made


def convert_gguf(source: Path, out: Path) -> None:
    """Write the model in the file ``source`` into ``out``. Weights that 16 bits do not hold exactly become fp32.

    A config.json or a tokenizer that is already in ``out`` takes precedence over the file's.

    Takes 4 bytes of memory for each weight, or 8 where experts are gathered. OperatorError.
    """
    file_bytes, weight_bytes = source.stat().st_size, _FLOAT_BYTES * check_header(source)
    allow(memory=file_bytes + _HELD_TWICE * weight_bytes, file=max(weight_bytes, file_bytes) + (1 << 20))
    loading.silence_transformers()
    read: Any = load_gguf_checkpoint  # carries no types
    try:
        if not (out / CONFIG_FILE).is_file():
            # Only the fields of the file: those that transformers adds would change the file with its next release.
            config = {key: value for key, value in read(source)["config"].items() if not key.startswith("_")}
            write_json_file(out / CONFIG_FILE, config)
            check_configs(out)
            write_json_file(out / CONFIG_FILE, {**config, "architectures": [type(loading.empty_model(out)).__name__]})
        check_configs(out)
        if not files.tokenizer_files(out):
            tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, local_files_only=True)
            tokenizer.save_pretrained(out)
            fields = read_config(out / _TOKENIZER_CONFIG).items()
            kept = {key: value for key, value in fields if key not in _OF_THE_PLACE}
            write_json_file(out / _TOKENIZER_CONFIG, kept)
        tensors = read(source, return_tensors=True, model_to_load=loading.empty_model(out))["tensors"]
        write_weights(out, {name: narrowest(tensor) for name, tensor in tensors.items()})
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, NotImplementedError, RuntimeError) as error:
        raise OperatorError(f"{source} cannot be read as a model: {first_line(error)}") from error
