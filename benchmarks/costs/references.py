"""Make what a user would run instead of a step: MeZO in place, AdamW and LoRA with back-propagation.

All of them work on all rows of the data in each step. Those that write to weights share one scratch copy of the model,
whose values mean nothing; only their time and memory count. As a program, this prints the peak memory of one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from sfnode.training.bench import peak_memory, synthetic_models
from sfnode.training.model import loading
from sfnode.training.task import RowBatch, TaskData, row_batch

LORA_RANK: Final = 8
LORA_SCALE: Final = 2.0  # lora_alpha 16 / rank 8
LORA_LAYERS: Final = ("q_proj", "v_proj")  # as in its paper (Hu et al., arXiv 2106.09685, section 5)
_LEARNING_RATE: Final = 1e-6
_EPSILON: Final = 1e-3  # MeZO's


def label_loss(model: PreTrainedModel, rows: RowBatch, label_tokens: tuple[int, ...]) -> Tensor:
    """Return the mean cross entropy over the label words after each prompt; head at the last token only, in fp32."""
    hidden_NTH: Tensor = model.base_model(input_ids=rows.tokens, use_cache=False).last_hidden_state
    hidden_NH = hidden_NTH[torch.arange(len(hidden_NTH), device=hidden_NTH.device), rows.last].float()
    head = loading.output_embedding(model).weight[list(label_tokens)].float()
    return functional.cross_entropy(functional.linear(hidden_NH, head), rows.labels)


def perturb(parameters: Sequence[Tensor], seed: int, scale: float) -> None:
    """Add scale * z(seed) to the parameters in place, tensor by tensor."""
    generator = torch.Generator(device=parameters[0].device).manual_seed(seed)
    for parameter in parameters:
        z = torch.empty_like(parameter).normal_(generator=generator)
        parameter.add_(z, alpha=scale)


def mezo_step(
    parameters: Sequence[Tensor], loss: Callable[[], Tensor], seed: int, epsilon: float, learning_rate: float
) -> float:
    """Take one in-place step of MeZO as its paper has it (Malladi et al., arXiv 2305.17333).

    Two forward passes, and four passes over the weights, with z drawn anew in each. Returns the projected gradient.
    """
    perturb(parameters, seed, epsilon)
    plus = float(loss())
    perturb(parameters, seed, -2 * epsilon)
    minus = float(loss())
    perturb(parameters, seed, epsilon)
    projected = (plus - minus) / (2 * epsilon)
    perturb(parameters, seed, -learning_rate * projected)
    return projected


def mezo(scratch: PreTrainedModel, data: TaskData, names: Iterable[str] | None = None) -> synthetic_models.Action:
    """Return MeZO's step in place: two passes over the rows. On all parameters as published, or on ``names``."""
    chosen = list(scratch.parameters()) if names is None else [scratch.get_parameter(name) for name in names]
    rows = _rows(scratch, data)

    @torch.inference_mode()
    def run() -> None:
        mezo_step(chosen, lambda: label_loss(scratch, rows, data.label_tokens), 1, _EPSILON, _LEARNING_RATE)

    return run


def adamw(scratch: PreTrainedModel, data: TaskData) -> synthetic_models.Action:
    """Return a step of AdamW on all parameters, with back-propagation (moments in their dtype, gradients dropped)."""
    parameters, rows = list(scratch.parameters()), _rows(scratch, data)
    optimiser = torch.optim.AdamW(parameters, lr=_LEARNING_RATE)

    def run() -> None:
        for parameter in parameters:
            parameter.requires_grad_(True)
        _train(optimiser, label_loss(scratch, rows, data.label_tokens))
        for parameter in parameters:
            parameter.requires_grad_(False)

    return run


class LoraLinear(nn.Module):
    """A frozen linear layer plus a trained low-rank product."""

    def __init__(self, base: nn.Linear, generator: torch.Generator) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(base.weight.new_empty(LORA_RANK, base.in_features))
        self.up = nn.Parameter(base.weight.new_zeros(base.out_features, LORA_RANK))
        with torch.no_grad():
            self.down.normal_(std=0.02, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Return W x + scale B A x."""
        thin = functional.linear(x, self.down)
        y: Tensor = self.base(x) + functional.linear(thin, self.up) * LORA_SCALE
        return y


def lora(model: PreTrainedModel, data: TaskData) -> synthetic_models.Action:
    """Return a step of AdamW on rank-8 adapters of queries and values, with back-propagation; the base is unchanged."""
    adapted, rows = synthetic_models.shared_copy(model), _rows(model, data)
    generator = torch.Generator(device=rows.tokens.device).manual_seed(0)
    trained: list[nn.Parameter] = []
    for parent in list(adapted.modules()):
        for name, layer in list(parent.named_children()):
            if name in LORA_LAYERS and isinstance(layer, nn.Linear):
                added = LoraLinear(layer, generator)
                setattr(parent, name, added)
                trained += [added.down, added.up]
    optimiser = torch.optim.AdamW(trained, lr=_LEARNING_RATE)
    return lambda: _train(optimiser, label_loss(adapted, rows, data.label_tokens))


def _train(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad(set_to_none=True)
    torch.autograd.backward(loss)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def _rows(model: PreTrainedModel, data: TaskData) -> RowBatch:
    return row_batch(data.examples, 0, model.device)


MEASURED: Final[dict[str, Callable[[PreTrainedModel, TaskData], synthetic_models.Action]]] = {
    "mezo": mezo,
    "adamw": adamw,
    "lora": lora,
}

if __name__ == "__main__":
    peak_memory.print_peak(MEASURED[sys.argv[1]], sys.argv[2:])
