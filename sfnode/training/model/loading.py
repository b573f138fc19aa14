"""From a model reference to a folder, its hashes, and a model in memory. Perturbing it is `perturbed`'s business.

Safetensors only and no code from the model's repository: nothing that is downloaded is ever executed. What is loaded
is made of the files that a manifest names, with their hashes; what else lies in the folder is not seen (`model_view`).
The files are read tensor by tensor: beside the model there is never more in memory than what is just being read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging
from transformers.utils.hub import cached_file

from protocol.errors import OperatorError
from protocol.run import FileHash, ModelSpec, is_plain_file_name
from sfnode import demo
from sfnode.training.model.model_view import CONFIG_FILE, check_configs, only_these, read_config
from sfnode.training.model.quantiser import AsRead
from sfnode.worker_protocol import FLOATS, PRECISIONS

EMBEDDED: Final = "embedded:"
DEVICES: Final = ("auto", "cpu", "cuda", "mps")
SINGLE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
TOKENIZER_FILES: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
)
_HASH_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """A model on this disk.

    Attributes:
        path: folder with config.json, safetensors and the tokenizer's files.
        id: as in ModelSpec: "embedded:NAME", "local:FOLDER NAME" or a hub id.
        revision: hub commit, empty otherwise.
    """

    path: Path
    id: str
    revision: str


def resolve_model(reference: str, revision: str = "") -> ModelFolder:
    """The folder of ``reference``: ``embedded:NAME``, a local folder, or a hub id (downloaded when not yet cached).

    Raises:
        OperatorError: there is no such folder or hub model, or it lacks a file.
    """
    if reference.startswith(EMBEDDED):
        return ModelFolder(path=demo.model_folder(reference.removeprefix(EMBEDDED)), id=reference, revision="")
    path = Path(reference).expanduser()
    if path.is_dir():
        return ModelFolder(path=path.resolve(), id=f"local:{path.resolve().name}", revision="")
    if reference.startswith((".", "/", "~")) or path.exists() or reference.count("/") != 1:
        raise OperatorError(
            f"model {reference!r}: no such folder; give a folder with config.json and *.safetensors, "
            "'embedded:NAME', or a Hugging Face id such as facebook/opt-125m"
        )
    return _resolve_hub(reference, revision)


def _resolve_hub(reference: str, revision: str) -> ModelFolder:
    config = _hub_file(reference, CONFIG_FILE, revision)
    if config is None:
        raise OperatorError(
            f"model {reference!r}: no config.json: the hub cannot be reached and nothing is cached, or it is not a "
            "transformers model; check the id and the connection, or give a local folder"
        )
    folder = config.parent
    index = _hub_file(reference, INDEX_FILE, revision)
    wanted = (SINGLE_FILE,) if index is None else _shards(index)
    for name in (*wanted, *TOKENIZER_FILES):
        _hub_file(reference, name, revision)
    return ModelFolder(path=folder, id=reference, revision=folder.name)  # a cached snapshot's folder is its commit


def _hub_file(reference: str, name: str, revision: str) -> Path | None:
    """A file of a hub repository in the local cache; None when the repository has no such file."""
    try:
        found = cached_file(reference, name, revision=revision or "main", _raise_exceptions_for_missing_entries=False)
    except (OSError, ValueError) as error:
        raise OperatorError(
            f"model {reference!r}: {name} cannot be fetched from the hub: {_first_line(error)}; check the id, the "
            "revision and the connection, or give a local folder"
        ) from None
    return None if found is None else Path(found)


def describe_model(folder: ModelFolder) -> ModelSpec:
    """Hash everything that defines the model: config, safetensors (with their index), tokenizer. Reads all of it."""
    tokenizer = _tokenizer_files(folder.path)
    if not tokenizer:
        raise OperatorError(f"{folder.path} holds no tokenizer ({', '.join(TOKENIZER_FILES[:3])} ...): copy it there")
    return ModelSpec(
        id=folder.id,
        revision=folder.revision,
        weights=tuple(hash_file(folder.path, name) for name in weight_files(folder.path)),
        tokenizer=tuple(hash_file(folder.path, name) for name in tokenizer),
    )


def check_model(folder: Path, spec: ModelSpec) -> None:
    """OperatorError unless what would be loaded from ``folder`` is what ``spec`` names, with that very content.

    Files of other kinds may lie there: they are not loaded.
    """
    for expected in (*spec.weights, *spec.tokenizer):
        if not (folder / expected.name).is_file():
            raise OperatorError(
                f"{folder / expected.name} is missing, but the run's model {spec.id} has it; use the run's model"
            )
        found = hash_file(folder, expected.name)
        if found != expected:
            raise OperatorError(
                f"{folder / expected.name} is not the run's file: SHA-256 {found.sha256[:16]}..., the run of "
                f"{spec.id} needs {expected.sha256[:16]}...; use the run's model (revision {spec.revision or 'none'})"
            )
    check_configs(folder)
    _check_nothing_else(folder, spec)


def _check_nothing_else(folder: Path, spec: ModelSpec) -> None:
    """OperatorError when a file would be loaded that ``spec`` does not name, or one that it names would not."""
    named = {expected.name for expected in (*spec.weights, *spec.tokenizer)}
    for name in (*weight_files(folder), *_tokenizer_files(folder)):
        if name not in named:
            raise OperatorError(
                f"{folder / name} is not a file of the run's model {spec.id}, but would be loaded with it: remove it"
            )
    for expected in spec.tokenizer:
        if expected.name not in TOKENIZER_FILES:
            raise OperatorError(
                f"the run's model {spec.id} has a tokenizer file {expected.name}, which this sfnode does not load: "
                "install the release that the run was made with"
            )


def positions_of(folder: Path) -> int | None:
    """Longest prompt in tokens that the model can take, as its config says; None when it says nothing."""
    try:
        config = read_config(folder / CONFIG_FILE)
    except FileNotFoundError:
        raise OperatorError(f"{folder / CONFIG_FILE} is missing: {folder} is not a model folder") from None
    named = (config.get(key) for key in ("max_position_embeddings", "n_positions"))
    return next((value for value in named if isinstance(value, int)), None)


def check_positions(folder: Path, max_tokens: int) -> None:
    """OperatorError when prompts of ``max_tokens`` tokens are longer than the model can take."""
    positions = positions_of(folder)
    if positions is not None and max_tokens > positions:
        raise OperatorError(
            f"prompts of up to {max_tokens} tokens are too long for the model {folder.name}, which takes {positions}: "
            f"make the run with --max-tokens {positions} or fewer"
        )


def hash_file(folder: Path, name: str) -> FileHash:
    """Name and SHA-256 of ``folder / name``."""
    hasher = hashlib.sha256()
    with (folder / name).open("rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            hasher.update(chunk)
    return FileHash(name=name, sha256=hasher.hexdigest())


def weight_files(folder: Path) -> tuple[str, ...]:
    """config.json, then the safetensors files (after their index, if several); OperatorError if one is missing."""
    if not (folder / CONFIG_FILE).is_file():
        raise OperatorError(f"{folder / CONFIG_FILE} is missing: {folder} is not a model folder")
    if (folder / INDEX_FILE).is_file():
        names = (CONFIG_FILE, INDEX_FILE, *_shards(folder / INDEX_FILE))
    else:
        names = (CONFIG_FILE, SINGLE_FILE)
    for name in names:
        if not (folder / name).is_file():
            hint = "only safetensors are read, never pickles: convert the model" if name == SINGLE_FILE else "copy it"
            raise OperatorError(f"{folder / name} is missing; {hint}")
    return names


def _shards(index: Path) -> tuple[str, ...]:
    """The files that an index names, each once; OperatorError unless they are safetensors beside it."""
    try:
        named = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()), key=str)
    except (ValueError, RecursionError, KeyError, AttributeError, TypeError):
        raise OperatorError(f"{index} is not an index of safetensors files: fetch it again") from None
    for name in named:
        if not isinstance(name, str) or not is_plain_file_name(name) or not name.endswith(".safetensors"):
            raise OperatorError(
                f"{index} names {name!r}, which is not a safetensors file of this folder: convert the model"
            )
    return tuple(named)


def _tokenizer_files(folder: Path) -> tuple[str, ...]:
    return tuple(name for name in TOKENIZER_FILES if (folder / name).is_file())


def choose_device(name: str) -> torch.device:
    """The device called ``name``; "auto" takes CUDA, else the CPU. OperatorError when it is not there."""
    if name not in DEVICES:
        raise OperatorError(f"device {name!r}: allowed are {', '.join(DEVICES)}")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if (name == "cuda" and not torch.cuda.is_available()) or (name == "mps" and not torch.backends.mps.is_available()):
        raise OperatorError(f"device {name!r}: this machine or this build of torch has none; use --device cpu or auto")
    return torch.device(name)


def choose_dtype(name: str) -> torch.dtype:
    """The dtype called ``name``; OperatorError for any other name."""
    if name not in FLOATS:
        raise OperatorError(f"dtype {name!r}: allowed are {', '.join(FLOATS)}")
    return compute_dtype(name)


def compute_dtype(precision: str) -> torch.dtype:
    """The dtype of activations, and of all weights that are not quantised, in one of PRECISIONS."""
    dtype: torch.dtype = getattr(torch, PRECISIONS[precision].compute)
    return dtype


def load_causal_lm(
    folder: Path, device: torch.device, dtype: torch.dtype, quantising: AsRead | None = None
) -> PreTrainedModel:
    """The causal language model in ``folder``: evaluation mode, no gradients, every weight from the files.

    Args:
        folder: as `weight_files` wants it.
        device: where the model goes when it is complete.
        dtype: of all weights but those that ``quantising`` changes.
        quantising: what becomes of some of them when they have been read.

    Raises:
        OperatorError: an architecture that transformers does not know, a damaged file, or a tensor that is missing.
    """
    quiet: Any = transformers_logging  # its functions carry no types
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    with only_these(folder, weight_files(folder)) as view:
        model, info = _load_weights(view, folder, dtype, quantising)
    if missing := sorted(info["missing_keys"]):
        # transformers would go on with random weights in their place
        raise OperatorError(f"{folder}: the weights lack {len(missing)} tensors of config.json's model: {missing[0]}")
    model.name_or_path = model.config.name_or_path = str(folder)
    result: PreTrainedModel = model.to(device).eval().requires_grad_(False)
    return result


def _load_weights(
    view: Path, folder: Path, dtype: torch.dtype, quantising: AsRead | None
) -> tuple[Any, Mapping[str, Any]]:
    """The model in ``view``, which shows files of ``folder``, and what transformers says of the loading."""
    try:
        empty: Any = skeleton(view)
        with ExitStack() as files:
            loaded: tuple[Any, Mapping[str, Any]] = empty.from_pretrained(
                None,
                config=empty.config,
                state_dict=_unread(view, files),
                dtype=dtype,
                quantization_config=quantising,
                local_files_only=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, TypeError, ImportError, RuntimeError, SafetensorError) as error:
        cause = (quantising and quantising.fault) or error
        if isinstance(cause, torch.OutOfMemoryError):
            raise cause from None
        reason = _first_line(cause).replace(str(view), str(folder))
        raise OperatorError(f"{folder} cannot be loaded as a causal language model: {reason}") from cause
    return loaded


def skeleton(folder: Path) -> PreTrainedModel:
    """The layers of the model in ``folder`` without weights, as its config.json has them."""
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    assert isinstance(model, PreTrainedModel)
    return model


def _unread(view: Path, files: ExitStack) -> dict[str, object]:
    """The tensors of the weight files by name, each read when it is indexed; ``files`` closes what is opened here.

    They are read, not mapped as transformers would: a mapping counts as memory of the process until the last tensor is
    there, and where no dtype changes it would be the model itself, which a change of the file then changes.
    """
    found: dict[str, object] = {}
    for name in weight_files(view):
        if name.endswith(".safetensors"):
            opened: Any = files.enter_context(safe_open(view / name, "pt", backend="pread"))
            found |= {key: opened.get_slice(key) for key in opened.keys()}  # noqa: SIM118  # a file, no mapping
    return found


def output_embedding(model: PreTrainedModel) -> nn.Linear:
    """The head: from hidden states to logits. OperatorError when the model has none."""
    head: object = cast(Any, model).get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise OperatorError(f"{type(model).__name__} has no linear output embedding: not a causal language model")
    return head


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitScale:
    """What some models do with the head's output: ``cap * tanh(factor * logits / cap)``; no cap where ``cap`` is 0.

    Sources: Gemma 2 (arXiv 2408.00118, section 2) caps, Cohere and Granite multiply.
    """

    factor: float = 1.0
    cap: float = 0.0

    def of(self, logits: Tensor) -> Tensor:
        """The scaled and capped logits."""
        scaled = logits if self.factor == 1.0 else logits * self.factor
        return (scaled / self.cap).tanh() * self.cap if self.cap else scaled


def logit_scale(model: PreTrainedModel) -> LogitScale:
    """As the model's configuration says. A guess from names: check it against the model (`session.check_head`)."""
    config: Any = model.config.get_text_config()
    cap = getattr(config, "final_logit_softcapping", None) or getattr(config, "logits_soft_cap", None)
    factor = getattr(config, "logit_scale", None) or 1.0
    divisor = getattr(config, "logits_scaling", None) or 1.0
    return LogitScale(factor=float(factor) / float(divisor), cap=float(cap or 0.0))


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in ``folder``; OperatorError when it cannot be read."""
    with only_these(folder, (CONFIG_FILE, *_tokenizer_files(folder))) as view:
        try:
            result: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                view, trust_remote_code=False, local_files_only=True
            )
        except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
            reason = _first_line(error).replace(str(view), str(folder))
            raise OperatorError(f"{folder}: the tokenizer cannot be loaded: {reason}") from error
    result.name_or_path = str(folder)
    return result


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
