"""What the network's method is compared with, on a model of its own: MeZO, and back-propagation of all or of LoRA."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from sfnode.training.model import output_embedding
from sfnode.training.task import Example, TaskData, row_batch

EPSILON = 1e-3  # MeZO's, for every task of its paper (table 15)
LORA_RANK, LORA_ALPHA = 8, 16  # of the queries' and values' projections, as in MeZO's comparison
_CHUNK_ROWS = 8  # in order of length: a batch of 16 has a third fewer padded tokens, and torch is as fast


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Accuracy 0 ... 1 and mean loss."""

    accuracy: float
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mezo:
    """Plain MeZO: all parameters, normal directions, one direction and two passes a step, a constant rate.

    Attributes:
        steps: how many; tune_steps: of each trial of a learning rate.
        rates: learning rates to choose from.
        rows: examples a side of a step.
    """

    steps: int
    tune_steps: int
    rates: tuple[float, ...]
    rows: int = 16

    @property
    def rows_each_step(self) -> int:
        """Forward rows: both sides."""
        return 2 * self.rows


@dataclass(frozen=True, slots=True, kw_only=True)
class BackPropagation:
    """AdamW, of all parameters or of a LoRA adapter; what a first-order method does with the same rows.

    Attributes: as in Mezo. Only forward rows are counted: the backward pass costs about two more of each.
    """

    steps: int
    tune_steps: int
    rates: tuple[float, ...]
    is_lora: bool
    rows: int = 16

    @property
    def rows_each_step(self) -> int:
        """Forward rows."""
        return self.rows


def train_mezo(recipe: Mezo, model: PreTrainedModel, data: TaskData, rate: float, seed: int) -> Iterator[int]:
    """Train in place; yields the forward rows spent so far, first 0, then after every step."""
    parameters = list(model.parameters())
    yield 0
    for step, batch in enumerate(_batches(data, recipe.rows, seed)):
        with torch.inference_mode():
            quick_mezo_step(parameters, partial(mean_loss, model, batch, data), seed << 32 | step, EPSILON, rate)
        yield (step + 1) * recipe.rows_each_step


def quick_mezo_step(
    parameters: Sequence[Tensor], loss: Callable[[], Tensor], seed: int, epsilon: float, learning_rate: float
) -> float:
    """`mezo_step` of `sfnode.training.bench` bit for bit, with z drawn once, not four times: half the time.

    MeZO's own way saves memory, which does not matter here.
    """
    generator = torch.Generator(device=parameters[0].device).manual_seed(seed)
    directions = [torch.empty_like(parameter).normal_(generator=generator) for parameter in parameters]

    def move(scale: float) -> None:
        for parameter, z in zip(parameters, directions, strict=True):
            parameter.add_(z, alpha=scale)

    move(epsilon)
    plus = float(loss())
    move(-2 * epsilon)
    minus = float(loss())
    move(epsilon)
    projected = (plus - minus) / (2 * epsilon)
    move(-learning_rate * projected)
    return projected


def train_back(
    recipe: BackPropagation, model: PreTrainedModel, data: TaskData, rate: float, seed: int
) -> Iterator[int]:
    """Train in place; yields the forward rows spent so far, first 0, then after every step."""
    if recipe.is_lora:
        torch.manual_seed(seed)  # the adapter's first matrix
        config = LoraConfig(r=LORA_RANK, lora_alpha=LORA_ALPHA, target_modules=["q_proj", "v_proj"])
        inject_adapter_in_model(config, model)
    else:
        model.requires_grad_(True)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    yield 0
    for step, batch in enumerate(_batches(data, recipe.rows, seed)):
        optimiser.zero_grad()
        for chunk in chunks(batch, _CHUNK_ROWS):
            torch.autograd.backward(_loss_sum(model, chunk, data) / len(batch))
        optimiser.step()
        yield (step + 1) * recipe.rows_each_step


def mean_loss(model: PreTrainedModel, examples: Sequence[Example], data: TaskData) -> Tensor:
    """Mean cross entropy over the label words."""
    losses = [_loss_sum(model, chunk, data) for chunk in chunks(examples, _CHUNK_ROWS)]
    return torch.stack(losses).sum() / len(examples)


@torch.inference_mode()
def measure(model: PreTrainedModel, data: TaskData, rows: int) -> Measured:
    """Accuracy and loss on the first ``rows`` evaluation examples."""
    examples, correct, total = data.evaluation_examples[:rows], 0, 0.0
    for chunk in chunks(examples, 4 * _CHUNK_ROWS):
        logits_NL, labels = _label_logits(model, chunk, data)
        correct += int((logits_NL.argmax(dim=1) == labels).sum())
        total += float(functional.cross_entropy(logits_NL, labels, reduction="sum"))
    return Measured(accuracy=correct / len(examples), loss=total / len(examples))


def chunks(examples: Sequence[Example], rows: int) -> list[list[Example]]:
    """In order of length, ``rows`` at a time."""
    ordered = sorted(examples, key=lambda example: len(example.tokens))
    return [ordered[start : start + rows] for start in range(0, len(ordered), rows)]


def _loss_sum(model: PreTrainedModel, examples: Sequence[Example], data: TaskData) -> Tensor:
    logits_NL, labels = _label_logits(model, examples, data)
    return functional.cross_entropy(logits_NL, labels, reduction="sum")


def _label_logits(model: PreTrainedModel, examples: Sequence[Example], data: TaskData) -> tuple[Tensor, Tensor]:
    """Logits of the label words after each prompt, [N, labels], and the labels, int64[N]. Right-padded: no mask."""
    rows = row_batch(examples, data.pad, model.device)
    hidden_NTC: Tensor = model.base_model(input_ids=rows.tokens, use_cache=False).last_hidden_state
    hidden_NC = hidden_NTC[torch.arange(len(examples)), rows.last]
    weight = output_embedding(model).weight[list(data.label_tokens)]
    return functional.linear(hidden_NC, weight), rows.labels


def _batches(data: TaskData, rows: int, seed: int) -> Iterator[list[Example]]:
    """Batches without end, drawn with replacement as a node draws them."""
    generator = np.random.default_rng(seed)
    while True:
        yield [data.examples[index] for index in generator.integers(len(data.examples), size=rows).tolist()]
