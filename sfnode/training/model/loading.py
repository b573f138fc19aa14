"""From a folder to a model in memory. Perturbing it is `perturbed`'s business.

Safetensors only and no code from the model's repository: nothing that is downloaded is ever executed. What else lies in
the folder is not seen (`model_view`).
The files are read tensor by tensor: beside the model there is never more in memory than what is just being read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from protocol.errors import OperatorError, first_line
from sfnode.model_files import CONFIG_FILE, INDEX_FILE, read_config, tokenizer_files, weight_files
from sfnode.training.model.as_read import AsRead
from sfnode.training.model.model_view import PARTS_MAX, only_these
from sfnode.worker_protocol import FLOATS, PRECISIONS

DEVICES: Final = ("auto", "cpu", "cuda", "mps")


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
    folder: Path, device: torch.device, dtype: torch.dtype, as_read: AsRead | None = None
) -> PreTrainedModel:
    """The causal language model in ``folder``: evaluation mode, no gradients, every weight from the files.

    Args:
        folder: as `weight_files` wants it.
        device: where the model goes when it is complete.
        dtype: of all weights but those that ``as_read`` changes.
        as_read: what becomes of some of them when they have been read.

    Raises:
        OperatorError: an architecture that transformers does not know, a damaged file, or a tensor that is missing.
    """
    quiet: Any = transformers_logging  # its functions carry no types
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()
    with only_these(folder, (CONFIG_FILE, *weight_files(folder))) as view:
        model, info = _load_weights(view, folder, dtype, as_read)
    for name, found, wanted in sorted(info["mismatched_keys"]):
        raise OperatorError(f"{folder}: the tensor {name} has shape {[*found]}, config.json's model {[*wanted]}")
    if missing := sorted(info["missing_keys"]):
        # transformers would go on with random weights in their place
        raise OperatorError(f"{folder}: the weights lack {len(missing)} tensors of config.json's model: {missing[0]}")
    model.name_or_path = model.config.name_or_path = str(folder)
    result: PreTrainedModel = model.to(device).eval().requires_grad_(False)
    return result


def _load_weights(
    view: Path, folder: Path, dtype: torch.dtype, as_read: AsRead | None
) -> tuple[Any, Mapping[str, Any]]:
    """The model in ``view``, which shows files of ``folder``, and what transformers says of the loading."""
    with _named_errors(view, folder, as_read), ExitStack() as files:
        empty: Any = skeleton(view)
        loaded: tuple[Any, Mapping[str, Any]] = empty.from_pretrained(
            None,
            config=empty.config,
            state_dict=_unread(view, files),
            dtype=dtype,
            quantization_config=as_read,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are listed, where otherwise only their number would be told
        )
    return loaded


@contextmanager
def _named_errors(view: Path, folder: Path, as_read: AsRead | None = None) -> Iterator[None]:
    """OperatorError for what transformers raises within the block."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, ImportError, RuntimeError, SafetensorError) as error:
        cause = (as_read and as_read.fault) or error
        if isinstance(cause, torch.OutOfMemoryError | OperatorError):
            raise cause from None
        reason = first_line(cause).replace(str(view), str(folder))
        raise OperatorError(f"{folder} cannot be loaded as a causal language model: {reason}") from cause


def empty_model(folder: Path) -> PreTrainedModel:
    """`skeleton`, of a folder of which nothing is known yet; OperatorError where it is no causal language model's."""
    with only_these(folder, (CONFIG_FILE,)) as view, _named_errors(view, folder):
        return skeleton(view)


def skeleton(folder: Path) -> PreTrainedModel:
    """The layers of the model in ``folder`` without weights, as its config.json has them.

    OperatorError where these are more than any model's.
    """
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    with torch.device("meta"), _counted(folder):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)  # type: ignore[no-untyped-call]
    assert isinstance(model, PreTrainedModel)
    return model


@contextmanager
def _counted(folder: Path) -> Iterator[None]:
    """OperatorError in the block as soon as it has made more than `PARTS_MAX` layers and parts of layers."""
    count = 0

    def count_one(_module: nn.Module, _name: str, _part: nn.Module | None) -> None:
        nonlocal count
        count += 1
        if count > PARTS_MAX:
            raise OperatorError(f"{folder}: config.json asks for more than {PARTS_MAX} layers and parts of layers")

    hook = register_module_module_registration_hook(count_one)
    try:
        yield
    finally:
        hook.remove()


def _unread(view: Path, files: ExitStack) -> dict[str, object]:
    """The tensors of the weight files by name, each read when it is indexed; ``files`` closes what is opened here.

    They are read, not mapped as transformers would: a mapping counts as memory of the process until the last tensor is
    there, and where no dtype changes it would be the model itself, which a change of the file then changes.
    """
    found: dict[str, object] = {}
    for name in weight_files(view):
        if name != INDEX_FILE:
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
    with only_these(folder, (CONFIG_FILE, *tokenizer_files(folder))) as view:
        try:
            result: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                view, trust_remote_code=False, local_files_only=True
            )
        except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
            reason = first_line(error).replace(str(view), str(folder))
            raise OperatorError(f"{folder}: the tokenizer cannot be loaded: {reason}") from error
    result.name_or_path = str(folder)
    return result
