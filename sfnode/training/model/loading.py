"""Load a model from a folder into memory. Perturbing it belongs to `perturbed`.

Only safetensors are read, and no code from the model's repository: nothing downloaded is ever executed. Other files of
the folder stay hidden (`safe_model_files`).
Files are read tensor by tensor: memory holds the model and the tensor that is being read, nothing else.
"""

from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.modules.module import register_module_module_registration_hook
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from protocol.errors import OperatorError, first_line
from sfnode.model_files import CONFIG_FILE, INDEX_FILE, model_folder as model_files, read_config, weight_files
from sfnode.training.model.change_while_loading import AsRead
from sfnode.training.model.load_errors import named_errors
from sfnode.training.model.safe_model_files import PARTS_MAX, only_these
from sfnode.worker_protocol import PRECISIONS

_WHOLE = ("I", "U")  # safetensors' names of number formats without a fraction
_WITH_WORDS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")  # endings of models that predict words
_NO_MODEL = "cannot be loaded as a causal language model"


def positions_of(folder: Path) -> int | None:
    """Return the longest prompt in tokens that the model's config allows; None when it names no limit."""
    config = read_config(folder / CONFIG_FILE)
    named = (config.get(key) for key in ("max_position_embeddings", "n_positions"))
    return next((value for value in named if isinstance(value, int) and value > 0), None)


def check_positions(folder: Path, max_tokens: int) -> None:
    """Raise OperatorError when prompts of ``max_tokens`` tokens are longer than the model can take."""
    positions = positions_of(folder)
    if positions is not None and max_tokens > positions:
        raise OperatorError(
            f"prompts of up to {max_tokens} tokens are too long for the model {folder.name}, which takes {positions}: "
            f"make the run with --max-tokens {positions} or fewer"
        )


def compute_dtype(precision: str) -> torch.dtype:
    """Return the dtype of activations and of all weights that are not quantised, in one of PRECISIONS."""
    dtype: torch.dtype = getattr(torch, PRECISIONS[precision].compute)
    return dtype


def silence_transformers() -> None:
    """Let transformers print errors only."""
    quiet: Any = transformers_logging  # its functions carry no types
    quiet.set_verbosity_error()
    quiet.disable_progress_bar()


def load_causal_lm(
    folder: Path, device: torch.device, dtype: torch.dtype, as_read: AsRead | None = None
) -> PreTrainedModel:
    """Load the causal language model in ``folder``: evaluation mode, no gradients, every weight from the files.

    It goes to ``device`` when it is complete. All weights are of ``dtype`` except those that ``as_read`` changes right
    after they are read.

    OperatorError: an architecture that transformers does not know, a damaged file, or a tensor that is missing.
    """
    silence_transformers()
    names = (CONFIG_FILE, *weight_files(folder))
    doing = f"{folder} {_NO_MODEL}"
    with only_these(folder, names) as view, named_errors(doing, view, folder, as_read), ExitStack() as files:
        empty: Any = _skeleton(view)
        model, info = empty.from_pretrained(
            None,
            config=empty.config,
            state_dict=_unread(view, files),
            dtype=dtype,
            quantization_config=as_read,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the report then lists them; otherwise the error has only their number
        )
    for name, found, wanted in sorted(info["mismatched_keys"]):
        raise OperatorError(f"{folder}: the tensor {name} has shape {[*found]}, config.json's model {[*wanted]}")
    if missing := sorted(info["missing_keys"]):
        # transformers would continue with random weights in their place
        other = sorted(info["unexpected_keys"])
        beside = f", and have {len(other)} that it does not know: {other[0]}" if other else ""
        advice = "Fetch their files again, or the config.json that belongs to them"
        saved_as = [each for each in model.config.architectures or () if not each.endswith(_WITH_WORDS)]
        if saved_as:
            advice = f"It was saved as {saved_as[0]}: take the causal language model that it was made from"
        raise OperatorError(
            f"{folder}: the weights lack {len(missing)} tensors of config.json's model: {missing[0]}{beside}. {advice}"
        )
    model.name_or_path = model.config.name_or_path = str(folder)
    result: PreTrainedModel = model.to(device).eval().requires_grad_(False)
    return result


def empty_model(folder: Path) -> PreTrainedModel:
    """Return the layers that config.json in ``folder`` describes, without weights (on the meta device).

    OperatorError where it is not a causal language model's.
    """
    with only_these(folder, (CONFIG_FILE,)) as view, named_errors(f"{folder} {_NO_MODEL}", view, folder):
        return _skeleton(view)


def _skeleton(folder: Path) -> PreTrainedModel:
    """Build the layers; OperatorError where there are more than `PARTS_MAX` layers and parts of layers."""
    doing = f"{folder} {_NO_MODEL}: {CONFIG_FILE}"
    with torch.device("meta"), named_errors(doing, folder, folder), _counted(folder):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        for part in (config, config.get_text_config()):  # what a pass returns is ours to say
            part.output_attentions = part.output_hidden_states = False
            part.return_dict = True
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    assert isinstance(model, PreTrainedModel)
    return model


@contextmanager
def _counted(folder: Path) -> Iterator[None]:
    """Raise OperatorError as soon as the block has made more than `PARTS_MAX` layers and parts of layers."""
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
    """Return the tensors of the weight files by name, each read when it is indexed; ``files`` closes the files.

    They are read, not mapped as transformers would do. A mapping counts as memory of the process until the last tensor
    is there. If no dtype changes, the mapping would be the model itself, and a change of the file would change it.
    """
    found: dict[str, Any] = {}
    for name in weight_files(view):
        if name != INDEX_FILE:
            try:
                opened: Any = files.enter_context(safe_open(view / name, "pt", backend="pread"))
            except SafetensorError as error:
                fault = f"it is not a whole file of safetensors ({first_line(error)}): fetch it again"
                raise OperatorError(f"{view / name} cannot be loaded: {fault}") from None
            found |= {key: opened.get_slice(key) for key in opened.keys()}  # noqa: SIM118  # a file, no mapping
    for key, values in found.items():
        if key.endswith(".weight") and values.get_dtype().startswith(_WHOLE):
            raise OperatorError(
                f"{view}: {key} holds whole numbers: the weights are quantised, and nothing says how. Take the model "
                "that they were made from, in bf16, fp16 or fp32"
            )
    return found


def output_embedding(model: PreTrainedModel) -> nn.Linear:
    """Return the head, which maps hidden states to logits. OperatorError when the model has none."""
    head: object = cast(Any, model).get_output_embeddings()
    if not isinstance(head, nn.Linear):
        raise OperatorError(f"{type(model).__name__} has no linear output embedding: not a causal language model")
    return head


def token_rows(model: PreTrainedModel) -> int:
    """Return for how many tokens the model has a row, both in its embedding and in its head."""
    embedding: object = None
    with suppress(NotImplementedError, AttributeError):
        embedding = model.get_input_embeddings()
    rows = output_embedding(model).weight.shape[0]
    return min(rows, embedding.num_embeddings) if isinstance(embedding, nn.Embedding) else rows


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitScale:
    """Changes logits as some models do: ``cap * tanh(factor * logits / cap)``; no cap where ``cap`` is 0.

    Sources: Gemma 2 (arXiv 2408.00118, section 2) caps, Cohere and Granite multiply.
    """

    factor: float = 1.0
    cap: float = 0.0

    def of(self, logits: Tensor) -> Tensor:
        """Return the scaled and capped logits."""
        scaled = logits if self.factor == 1.0 else logits * self.factor
        return (scaled / self.cap).tanh() * self.cap if self.cap else scaled


def logit_scale(model: PreTrainedModel) -> LogitScale:
    """Guess the scale from the names in the model's configuration; `shared_model.check_head` checks the guess."""
    config: Any = model.config.get_text_config()
    cap = getattr(config, "final_logit_softcapping", None) or getattr(config, "logits_soft_cap", None)
    factor = getattr(config, "logit_scale", None) or 1.0
    divisor = getattr(config, "logits_scaling", None) or 1.0
    return LogitScale(factor=float(factor) / float(divisor), cap=float(cap or 0.0))


def named_stops(folder: Path, names: Container[str]) -> frozenset[int]:
    """Return the tokens that end a text by the settings for generation in ``folder``, where ``names`` has their file.

    Files that a run does not name count for nothing: they may differ from node to node.
    """
    name = model_files.GENERATION_FILE
    found = read_config(folder / name).get("eos_token_id") if name in names else None
    return frozenset(token for token in (found if isinstance(found, list) else [found]) if type(token) is int)


@contextmanager
def named_panics(where: str) -> Iterator[None]:
    """Raise OperatorError for panics of a tokenizer within the block: those of its Rust code are no `Exception`."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # nobody can import this class
            text = f"{where}: the model's tokenizer fails: {first_line(error)}. Change the text or the model"
            raise OperatorError(text) from None
        raise


def decoded(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> str:
    """Return the text of tokens that a model wrote, without special ones; OperatorError when the tokenizer panics."""
    with named_panics("an answer"):
        return str(tokenizer.decode(list(tokens), skip_special_tokens=True))


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer in ``folder``; OperatorError when it cannot be read or used."""
    doing, names = f"{folder}: the tokenizer cannot be loaded", model_files.tokenizer_files(folder)
    advice = ". Fetch its files again"
    with (
        only_these(folder, (CONFIG_FILE, *names)) as view,
        named_panics(doing),
        named_errors(doing, view, folder, advice=advice),
    ):
        with named_errors(f"{folder} {_NO_MODEL}: {CONFIG_FILE}", view, folder):  # which the tokenizer's class reads
            AutoConfig.from_pretrained(view, trust_remote_code=False, local_files_only=True)
        try:
            result: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
                view, trust_remote_code=False, local_files_only=True
            )
            result.encode("a")  # some settings are used there for the first time
        except (ValueError, ImportError):
            if model_files.TOKENIZER_FILE in names:
                raise
            found = f", and transformers cannot make one from {', '.join(names)}" if names else ""
            raise OperatorError(
                f"{doing}: {model_files.TOKENIZER_FILE} is missing{found}. Fetch it with the model"
            ) from None
    result.name_or_path = str(folder)
    return result
