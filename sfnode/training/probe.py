"""One small forward pass that shows how a model uses its layers: which of them see every token, and which it skips.

A layer's own low-rank term is added when the layer is called, to the tokens that it is called with. A model may use a
layer's weight without calling it (Mamba's time steps), or call it with some of the tokens (experts, pooling). What was
not seen here would be trained wrongly, and nothing would say so: so it is refused, by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

_ROWS: Final = 3  # odd, and other than the tokens: a transposed shape is not mistaken
_TOKENS: Final = 5
Shape: TypeAlias = tuple[int, ...]


def probe_tokens(model: PreTrainedModel, rows: int, tokens: int) -> Tensor:
    """int64[rows, tokens] of ids that the model knows, no two rows alike, on its device."""
    vocabulary: int = model.config.get_text_config().vocab_size
    return (torch.arange(rows * tokens, device=model.device).view(rows, tokens) * 7 + 3) % vocabulary


@torch.inference_mode()
def faults_of_use(model: PreTrainedModel, modules: Iterable[nn.Module]) -> dict[int, str]:
    """Why the model's use of a module forbids to train it, by the module's id; those used as they should be are absent.

    Runs ``model`` once over a few tokens.
    """
    wanted = {id(module): module for module in modules}
    seen: dict[int, list[Shape]] = {key: [] for key in wanted}

    def note(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        shown = output if isinstance(module, nn.Embedding) else (inputs or (None,))[0]  # an embedding may take masks
        seen[id(module)].append(tuple(shown.shape) if isinstance(shown, Tensor) else ())

    handles = [module.register_forward_hook(note) for module in wanted.values()]
    try:
        model(input_ids=probe_tokens(model, _ROWS, _TOKENS), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    faults = {key: _fault(wanted[key], shapes) for key, shapes in seen.items()}
    return {key: fault for key, fault in faults.items() if fault}


def _fault(module: nn.Module, shapes: list[Shape]) -> str:
    """What is wrong with these uses; empty when nothing is."""
    if not shapes:
        return f"the model uses the weight of its layer ({type(module).__name__}) without calling it, or not at all"
    if () in shapes:
        return f"the model calls its layer ({type(module).__name__}) in a way that is not supported"
    for shape in shapes:
        if not _is_whole_batch(shape, may_be_shared=isinstance(module, nn.Embedding)):
            return f"its layer sees a tensor of shape {shape} where the batch has {_ROWS} x {_TOKENS} tokens " + (
                "(experts or pooling)"
            )
    return ""


def _is_whole_batch(shape: Shape, *, may_be_shared: bool) -> bool:
    """Every token of every row is there, rows first. ``may_be_shared``: positions may come once for all rows."""
    if len(shape) == 2:
        return shape[0] == _ROWS * _TOKENS
    if may_be_shared and shape[0] == 1:
        return shape[1] == _TOKENS
    return shape[0] == _ROWS and _TOKENS in shape[1:-1]
