"""Show transformers only the files that define a model, and refuse configurations that ask for foreign code.

A folder holds more than a manifest names: an adapter, another tokenizer, code. transformers would load much of it.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from protocol.errors import OperatorError
from sfnode.model_files import CONFIG_FILE, model_folder as files, read_config
from sfnode.storage import disk

_CONFIG_FILES = (CONFIG_FILE, "tokenizer_config.json")

# Values of attn_implementation and experts_implementation that PyTorch computes by itself. All others are kernels of a
# hub, or may be taken from a hub when their package is not installed ("flash_attention_2", "sonicmoe").
_OWN_IMPLEMENTATIONS = ("eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm")
# auto_map is absent: the view hides a model's code, and transformers uses its own class where it has one.
_CODE_FIELDS = ("trust_remote_code", "use_kernels", "kernel_config")
PARTS_MAX = 1 << 17  # layers, experts and all parts of them; the largest models of 2026 have 100,000
_NUMBERS_OF_PARTS = ("layer", "block", "expert")  # in the names of fields that count such parts


@contextmanager
def only_these(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Make a folder of links to these files of ``folder`` and to nothing else; it exists as long as the block runs.

    OperatorError where a configuration in ``folder`` asks for foreign code, or no folder can be made.
    """
    check_configs(folder)
    with disk.os_errors("make a folder of links to the model's files", ". TMPDIR says where"):
        made = tempfile.TemporaryDirectory(prefix="sfnode-model-", ignore_cleanup_errors=True)
        for name in names:
            Path(made.name, name).symlink_to((folder / name).resolve())
    with made as view:
        yield Path(view)


def check_configs(folder: Path) -> None:
    """Raise OperatorError where a configuration asks for code that is not installed, too many layers, or few bits.

    Libraries build that many layers before they look at any weight.
    """
    for name in _CONFIG_FILES:
        if not (folder / name).is_file():
            continue
        for key, value in _fields(read_config(folder / name)):
            if isinstance(value, int) and value > PARTS_MAX and any(part in key for part in _NUMBERS_OF_PARTS):
                text = f"{folder / name} asks for too much ({key}: {value}, at most {PARTS_MAX})"
                raise OperatorError(f"{text}: no model has so many layers. Fetch the model again")
            if key in (files.QUANTISED_FIELD, "compression_config") and value is not None:
                how = value.get("quant_method", "") if isinstance(value, dict) else value
                raise OperatorError(
                    f"{folder / name}: the weights are quantised ({str(how or 'by bitsandbytes')[:80]}) in a way that "
                    f"is not turned back into numbers that train; {', '.join(files.DECODED)} in safetensors are. "
                    "Take the model that it was made from, in bf16, fp16 or fp32, or a GGUF file of that"
                )
            if _is_foreign(key, value):
                raise OperatorError(
                    f"{folder / name} asks for code from elsewhere ({key}: {str(value)[:80]}). sfnode runs no code "
                    "that comes with a model. Use another one; or, before making a run of it, a copy without that field"
                )


def _fields(config: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield each field of the configuration and of its nested structures; each part of a model may have one."""
    waiting: list[object] = [config]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            yield from found.items()
        if isinstance(found, dict | list):
            waiting.extend(found.values() if isinstance(found, dict) else found)


def _is_foreign(key: str, value: object) -> bool:
    if key.endswith(("_implementation", "_implementation_internal")):
        chosen = value.values() if isinstance(value, dict) else (value,)  # a dictionary has a value for each part
        return any(one is not None and one not in _OWN_IMPLEMENTATIONS for one in chosen)
    return key in _CODE_FIELDS and bool(value)
