"""The files of a model in a folder: config.json, safetensors with their index, and those that say how it is used."""

import codecs
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import OperatorError
from protocol.run import is_plain_file_name
from sfnode.storage import disk

CONFIG_FILE = "config.json"
ADAPTER_FILE = "adapter_config.json"
SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
GGUF = ".gguf"
PICKLE_FILE = "pytorch_model.bin"
PICKLE_INDEX_FILE = "pytorch_model.bin.index.json"
QUANTISED_FIELD = "quantization_config"
DECODED = ("mxfp4", "fp8", "mxfp8")  # formats of quantised weights that `conversion` turns into 16 bits
_JSON_BYTES_MAX = 32 << 20  # an index of 300,000 tensors; in memory it takes up to 20 times as much
# What the tokenizers of transformers are loaded from: `vocab_files_names` of their classes, and what all of them read
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_FILES = (
    TOKENIZER_FILE,
    *(
        "tokenizer_config.json tokenizer.model spiece.model vocab.json vocab.txt merges.txt special_tokens_map.json "
        "added_tokens.json sentencepiece.bpe.model sentencepiece.model spm.model spm_char.model source.spm target.spm "
        "target_vocab.json vocab-src.json vocab-tgt.json prophetnet.tokenizer bpe.codes byte_maps.json dict.txt "
        "emoji.json entity_vocab.json normalizer.json word_pronunciation.json word_shape.json"
    ).split(),
)
GENERATION_FILE = "generation_config.json"
# Files that say how programs use a model. They travel and are exported, but no token and no weight depends on them.
USAGE_FILES = (
    GENERATION_FILE,
    "chat_template.jinja",
    "chat_template.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    "tekken.json",  # the same tokenizer for Mistral's own library
)
DEFINITION_FILES = (CONFIG_FILE, *TOKENIZER_FILES, *USAGE_FILES)
# Further chat templates are files of this folder. A run names each with a point for the slash: `FOLDER.NAME.jinja`.
_TEMPLATES = "additional_chat_templates"
_TEMPLATE = re.compile(rf"{_TEMPLATES}[./]([^/\\:\0]+\.jinja)")
_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UNLOADED = (".onnx", ".pth", ".pt", ".ckpt", ".h5", ".msgpack", ".npz", ".tflite", ".mlmodel", ".ggml")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """Locates a model on this disk.

    Attributes:
        path: folder with config.json, safetensors and the tokenizer's files.
        id: as in ModelSpec: "embedded:NAME", "local:FOLDER NAME" or a hub id.
        revision: hub commit, empty otherwise.
    """

    path: Path
    id: str
    revision: str


def weight_files(folder: Path) -> tuple[str, ...]:
    """Return the names of the safetensors files, their index first if there is one; OperatorError if one is missing."""
    if not (folder / CONFIG_FILE).is_file():
        raise _no_model(folder)
    is_sharded = not (folder / SINGLE_FILE).is_file() and (folder / INDEX_FILE).is_file()  # as transformers chooses
    names = (INDEX_FILE, *shards_of(folder / INDEX_FILE)) if is_sharded else (SINGLE_FILE,)
    for name in names:
        if not (folder / name).is_file():
            hint = _without_weights(folder) if name == SINGLE_FILE else "copy it"
            raise OperatorError(f"{folder / name} {_fault_of(folder / name)}; {hint}")
        disk.check_is_content(folder / name)
    return names


def _without_weights(folder: Path) -> str:
    """Return what to do about a folder that has neither the one file of weights nor an index of several."""
    if (folder / SINGLE_FILE).is_symlink():
        return "mend the link, or put the file there"
    match sorted(path.name for path in folder.glob("*.safetensors") if not path.name.startswith("adapter")):
        case []:
            return _instead(folder, "only safetensors are read. If its download was broken off, fetch it again")
        case [one]:
            return f"there is {one}: if it holds the whole model, call it {SINGLE_FILE}"
        case several:
            return f"there are {', '.join(several[:3])}, and no {INDEX_FILE}, which says what is in them: copy it"


def _fault_of(path: Path) -> str:
    """Return in words why there is no file at a path."""
    if path.is_symlink():
        return "is a link that leads to no file"
    return "is a folder, and must be a file" if path.is_dir() else "is missing"


def _no_model(folder: Path) -> OperatorError:
    """Return an error that says what a folder without config.json is, and what to do."""
    return OperatorError(f"{folder / CONFIG_FILE} {_fault_of(folder / CONFIG_FILE)}: {_instead(folder)}")


def _instead(folder: Path, otherwise: str = "") -> str:
    if (folder / ADAPTER_FILE).is_file():
        return f"{folder} holds an adapter alone: merge it into its model with PEFT's merge_and_unload, and save that"
    below = sorted(path.parent for way in ("*", "snapshots/*") for path in folder.glob(f"{way}/{CONFIG_FILE}"))
    ggufs = sorted(path for path in folder.glob(f"*{GGUF}"))
    if found := (below or ggufs)[:3]:
        return f"{folder} is not a model folder; give what is in it: {' or '.join(map(str, found))}"
    if others := sorted(path.name for path in folder.glob("*") if path.suffix in _UNLOADED):
        return f"{others[0]} is not loaded: take the model with its {CONFIG_FILE} and safetensors"
    return otherwise or f"{folder} is not a model folder"


def shards_of(index: Path, ending: str = ".safetensors") -> tuple[str, ...]:
    """Return the files that an index names, each once; OperatorError unless they are plain names with this ending."""
    try:
        named = sorted(set(json.loads(_bounded_text(index))["weight_map"].values()), key=str)
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError):
        raise OperatorError(f"{index} is not an index of {ending[1:]} files: fetch it again") from None
    for name in named:
        if not isinstance(name, str) or not is_plain_file_name(name) or not name.endswith(ending):
            raise OperatorError(
                f"{index} names {name!r}, which is not a {ending[1:]} file of this folder: convert the model"
            )
    return tuple(named)


def has_safetensors(folder: Path) -> bool:
    """Return whether the folder has safetensors, which then are what is loaded from it."""
    return (folder / SINGLE_FILE).is_file() or (folder / INDEX_FILE).is_file()


def has_all_weights(folder: Path) -> bool:
    """Return whether no file of weights is missing, as it is where a download was broken off."""
    with suppress(OperatorError):
        return bool(weight_files(folder) if has_safetensors(folder) else pickle_files(folder) or gguf_file(folder))
    return False


def is_decodable(folder: Path) -> bool:
    """Return whether config.json in ``folder`` says that the weights are quantised in a format of `DECODED`."""
    found: object = None
    with suppress(OperatorError):  # loading the folder reports it
        found = read_config(folder / CONFIG_FILE).get(QUANTISED_FIELD)
    return isinstance(found, dict) and found.get("quant_method") in DECODED


def pickle_files(folder: Path) -> tuple[str, ...]:
    """Return the files of `torch.save`, their index first if there is one; OperatorError if one is missing."""
    names: tuple[str, ...] = (PICKLE_FILE,) if (folder / PICKLE_FILE).is_file() else ()
    if not names and (folder / PICKLE_INDEX_FILE).is_file():  # as transformers chooses
        names = (PICKLE_INDEX_FILE, *shards_of(folder / PICKLE_INDEX_FILE, ".bin"))
    for name in names:
        if not (folder / name).is_file():
            raise OperatorError(f"{folder / name} is missing; copy it")
        disk.check_is_content(folder / name)
    return names


def gguf_file(folder: Path) -> Path | None:
    """Return the only GGUF file of a folder; None if there is none, or more than one."""
    found = [path for path in folder.iterdir() if path.suffix == GGUF]
    return found[0] if len(found) == 1 else None


def tokenizer_files(folder: Path) -> tuple[str, ...]:
    """Return those of `TOKENIZER_FILES` that exist in the folder. OperatorError: one is no text, or a pointer to it."""
    return _existing(folder, TOKENIZER_FILES)


def files_beside(folder: Path) -> tuple[str, ...]:
    """Return the tokenizer's files and those that say how the model is used. OperatorError: as above.

    `place_of` says where each lies.
    """
    nested = (f"{_TEMPLATES}.{path.name}" for path in (folder / _TEMPLATES).glob("*.jinja"))
    templates = {*nested, *(path.name for path in folder.glob(f"{_TEMPLATES}.*.jinja"))}
    return _existing(folder, (*TOKENIZER_FILES, *USAGE_FILES, *filter(is_definition, sorted(templates))))


def is_definition(path: str) -> bool:
    """Return whether a run may name this file among a model's small ones; further templates also by their path."""
    return path in DEFINITION_FILES or _TEMPLATE.fullmatch(path) is not None


def place_of(folder: Path, name: str) -> Path:
    """Return where the file of this name lies: among the other templates, or in the folder itself, as when fetched."""
    found = _TEMPLATE.fullmatch(name)
    nested = folder / _TEMPLATES / found[1] if found else None
    return nested if nested is not None and nested.is_file() else folder / name


def copy_beside(folder: Path, out: Path) -> None:
    """Copy `files_beside` as transformers expects them. OSError, OperatorError."""
    for name in files_beside(folder):
        found = _TEMPLATE.fullmatch(name)
        path = out / _TEMPLATES / found[1] if found else out / name
        path.parent.mkdir(exist_ok=True)
        shutil.copyfile(place_of(folder, name), path)


def _existing(folder: Path, names: Iterable[str]) -> tuple[str, ...]:
    found = tuple(name for name in names if place_of(folder, name).is_file())
    for name in found:
        _check_content(place_of(folder, name))
    return found


def _check_content(path: Path) -> None:
    """Refuse what is in a file's place, and JSON with a mark of its encoding, which transformers does not read."""
    disk.check_is_content(path)
    beginning = b""
    with suppress(OSError), path.open("rb") as file:  # reading it reports that
        beginning = file.read(4) if path.suffix == ".json" else b""
    if beginning.startswith(_MARKS):
        kind = "UTF-8 with a byte order mark" if beginning.startswith(codecs.BOM_UTF8) else "UTF-16"
        raise OperatorError(
            f"{path} is written in {kind}, which transformers does not read: save it as plain UTF-8 (Windows: 'UTF-8 "
            "without BOM'), or fetch it again"
        )


def read_config(path: Path) -> Mapping[str, object]:
    """Return a transformers configuration, a JSON object. OperatorError if there is none, or it is not one."""
    fault = ""
    try:
        config = json.loads(_bounded_text(path))
        if isinstance(config, dict):
            return config
        fault = f": it holds a {type(config).__name__}, not an object"
    except FileNotFoundError:
        if path.name != CONFIG_FILE:
            raise OperatorError(f"{path} is missing: fetch the model again") from None
        raise _no_model(path.parent) from None
    except json.JSONDecodeError as error:
        fault = f": {error.msg} at line {error.lineno}, column {error.colno}"
    except UnicodeDecodeError as error:
        fault = f": byte {error.start} is no UTF-8"
    except (ValueError, RecursionError):
        pass  # too long, or nested too deeply
    except OSError as error:
        raise OperatorError(f"{path} cannot be read: {disk.describe_os_error(error)}") from None
    raise OperatorError(f"{path} is not a valid JSON file{fault}. Mend it, or fetch the model again")


def _bounded_text(path: Path) -> str:
    """Read a text of at most _JSON_BYTES_MAX. OSError; ValueError if it is longer or not UTF-8."""
    _check_content(path)
    with path.open("rb") as file:
        data = file.read(_JSON_BYTES_MAX + 1)
    if len(data) > _JSON_BYTES_MAX:
        raise ValueError(f"{path} is longer than {_JSON_BYTES_MAX} bytes")
    return data.decode("utf-8")
