"""Run small forward passes to see how a model uses its layers: which see every token, are skipped, or are read.

A layer's low-rank term is added when the layer is called, to the tokens of that call. Some models use a layer's weight
without calling the layer (Mamba's time steps), or call it with some of the tokens (experts, pooling). Such layers would
be trained wrongly without any error, so they are refused by name.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from protocol.errors import OperatorError, first_line

_ROWS = 3  # odd, and different from the tokens, so that no transposed shape passes
_TOKENS = 5  # as many rows in each check of a loaded model: libraries keep 3 MB of kernels for each size in 16 bits
_IN_VAIN = 3  # keys and values lie between the queries and the layers after the attention
_SAME = 0.05  # largest change, of the largest number, that counts as none: rounding, a norm's epsilon
Shape = tuple[int, ...]


def probe_tokens(model: PreTrainedModel, rows: int = _ROWS, tokens: int = _TOKENS) -> Tensor:
    """Return int64[rows, tokens] of ids in the vocabulary, different in every row, on the model's device."""
    vocabulary: int = model.config.get_text_config().vocab_size
    return (torch.arange(rows * tokens, device=model.device).view(rows, tokens) * 7 + 3) % vocabulary


def body_of(model: PreTrainedModel) -> nn.Module:
    """Return the model without its head: its `base_model`, or the part with the embedding where that is the model."""
    if model.base_model is not model:
        return cast(nn.Module, model.base_model)
    embedding = model.get_input_embeddings()
    parts = (part for part in model.children() if any(module is embedding for module in part.modules()))
    return cast(nn.Module, next(parts))


def hidden_states(model: PreTrainedModel, tokens_NT: Tensor, **further: Tensor) -> Tensor:
    """Pass token ids forward, with ``further`` arguments of the model; return what the head reads, [N, T, H]."""
    hidden_NTH: Tensor = body_of(model)(input_ids=tokens_NT, use_cache=False, **further).last_hidden_state
    return hidden_NTH


@torch.inference_mode()
def faults_of_use(model: PreTrainedModel, modules: Iterable[nn.Module]) -> dict[int, str]:
    """Return why the model's use of a module forbids training it, by the module's id; good modules are absent.

    Runs ``model`` once over a few tokens.
    """
    wanted = {id(module): module for module in modules}
    seen: dict[int, list[Shape]] = {key: [] for key in wanted}

    def note(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        shown = output if isinstance(module, nn.Embedding) else (inputs or (None,))[0]  # embeddings may take masks
        shape = tuple(shown.shape) if isinstance(shown, Tensor) else ()
        if isinstance(module, nn.Linear):
            is_product = isinstance(output, Tensor) and output.shape == (*shape[:-1], module.out_features)
            shape = shape if is_product else ()  # a router's choices, or one product for each part of the input
        seen[id(module)].append(shape)

    with _hooked(wanted.values(), note), _named_errors(model):
        model(input_ids=probe_tokens(model), use_cache=False)
    faults = {key: _fault(wanted[key], shapes) for key, shapes in seen.items()}
    return {key: fault for key, fault in faults.items() if fault}


@contextmanager
def _hooked(modules: Iterable[nn.Module], hook: Callable[[nn.Module, tuple[Any, ...], Any], Any]) -> Iterator[None]:
    """Call ``hook`` after each call of these modules within the block."""
    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(module.register_forward_hook(hook))
        yield


@contextmanager
def _named_errors(model: PreTrainedModel) -> Iterator[None]:
    """Raise OperatorError where a pass over a few tokens fails; running out of memory keeps its own error."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, AssertionError, RuntimeError, ImportError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise OperatorError(
            f"{type(model).__name__} cannot be run on a text's tokens alone ({first_line(error)}); choose another model"
        ) from error


def _fault(module: nn.Module, shapes: list[Shape]) -> str:
    """Describe what is wrong with these uses; empty when nothing is."""
    if not shapes:
        return f"the model uses the weight of its layer ({type(module).__name__}) without calling it, or not at all"
    if () in shapes:
        return f"the model calls its layer ({type(module).__name__}) in a way that is not supported"
    for shape in shapes:
        # Every token of every row must be there, rows first.
        if len(shape) == 2:
            is_whole = shape[0] == _ROWS * _TOKENS
        elif isinstance(module, nn.Embedding) and shape[0] == 1:  # one row for all, as for positions
            is_whole = shape[1] == _TOKENS
        else:
            is_whole = shape[0] == _ROWS and _TOKENS in shape[1:-1]
        if not is_whole:
            tokens = f"{_ROWS} x {_TOKENS} tokens (experts or pooling)"
            return f"its layer sees a tensor of shape {shape} where the batch has {tokens}"
    return ""


@torch.inference_mode()
def layers_read_at_last(model: PreTrainedModel) -> frozenset[nn.Module]:
    """Return the linear layers of which only the result at the last token reaches the last token's hidden state.

    These are the layers after the last attention, and those that make its queries. The test changes a layer's output at
    all other tokens of one row, which must not matter, and at the last token of another row, which must. It takes one
    pass over few tokens per layer, from the last layer back, until `_IN_VAIN` layers in a row fail.
    """
    tokens = probe_tokens(model)
    before_NH, called = _last_hidden(model, tokens, None)
    found: list[nn.Module] = []
    in_vain = 0
    for module in reversed(called):
        if called.count(module) > 1:
            break  # a layer used at several depths
        after_NH, _ = _last_hidden(model, tokens, module)
        if torch.equal(after_NH[0], before_NH[0]) and not torch.equal(after_NH[1], before_NH[1]):
            found.append(module)
            in_vain = 0
        else:
            in_vain += 1
        if in_vain == _IN_VAIN:
            break
    return frozenset(found)


def _last_hidden(
    model: PreTrainedModel, tokens_NT: Tensor, changed: nn.Module | None
) -> tuple[Tensor, list[nn.Module]]:
    """Return the last hidden state at the last token, [N, H], and the linear layers in the order of their calls.

    The output of ``changed`` is replaced, at all tokens but the last of row 0 and at the last token of row 1.
    """
    called: list[nn.Module] = []

    def note(module: nn.Module, _inputs: tuple[Any, ...], output: Any) -> Any:
        called.append(module)
        if module is not changed or not isinstance(output, Tensor):
            return output
        if output.numel() != tokens_NT.numel() * output.shape[-1]:
            return output  # several numbers of each token, such as one a head, have no rows to choose from
        y_NTO = output.clone().view(*tokens_NT.shape, -1)
        # arbitrary values, larger than the layer's own
        other_TO = torch.cos(torch.arange(y_NTO[0].numel(), device=output.device)).view_as(y_NTO[0])
        other_TO = (other_TO * (1 + y_NTO.abs().amax())).to(output.dtype)
        y_NTO[0, :-1], y_NTO[1, -1] = other_TO[:-1], other_TO[-1]
        return y_NTO.view_as(output)

    linear = [module for module in body_of(model).modules() if isinstance(module, nn.Linear | Conv1D)]
    with _hooked(linear, note), _named_errors(model):
        return hidden_states(model, tokens_NT)[:, -1], called


@torch.inference_mode()
def check_causal(model: PreTrainedModel) -> None:
    """Raise OperatorError where a token's hidden state depends on tokens that follow it: rows are padded at the end."""
    tokens = probe_tokens(model)
    tokens[1, :2] = tokens[0, :2]
    with _named_errors(model):
        hidden_NTH = hidden_states(model, tokens)[:, :2].float()
    if (hidden_NTH[0] - hidden_NTH[1]).abs().max() > _SAME * hidden_NTH.abs().max():
        raise OperatorError(
            f"in {type(model).__name__} with this config.json, tokens see the tokens that follow them: not a causal "
            "language model; choose another model"
        )


@torch.inference_mode()
def norm_at_the_end(model: PreTrainedModel) -> nn.Module | None:
    """Return the norm whose result the head reads; None where a model has none.

    It is the last layer with the hidden states for its result that does not change with the size of its input.
    """
    called: list[tuple[nn.Module, Tensor, Tensor]] = []

    def note(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        x = (inputs or (None,))[0]
        if isinstance(x, Tensor) and isinstance(output, Tensor) and x.shape == output.shape:
            called.append((module, x, output))

    simple = [module for module in body_of(model).modules() if next(module.children(), None) is None]
    with _hooked(simple, note), _named_errors(model):
        hidden_NTH = hidden_states(model, probe_tokens(model))
    with _named_errors(model):
        for module, x, y in reversed(called):
            is_the_end = y.numel() == hidden_NTH.numel() and torch.equal(y.view_as(hidden_NTH), hidden_NTH)
            if is_the_end and (module(2 * x) - y).abs().max() < _SAME * y.abs().max():
                return module
    return None
