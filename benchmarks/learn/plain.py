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

from benchmarks.learn.trials import BackPropagation, Mezo
from sfnode.training.model import loading
from sfnode.training.task import Example, TaskData, row_batch

EPSILON = 1e-3  # MeZO's, for every task of its paper (table 15)
LORA_RANK, LORA_ALPHA = 8, 16  # as in MeZO's comparison
_CHUNK_ROWS = 8  # in order of length: a batch of 16 has a third fewer padded tokens, and torch is as fast


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Accuracy 0 ... 1 and mean loss; how many messages were sent, where that is not one for each client and step."""

    accuracy: float
    loss: float
    sent: int | None = None


def train_mezo(recipe: Mezo, model: PreTrainedModel, data: TaskData, rate: float, seed: int) -> Iterator[int]:
    """Train in place; yields the forward rows spent so far, first 0, then after every step.

    The weights move in fp32, beside a model of another dtype: bf16 would round a step away.
    """
    held = list(model.parameters())
    moved = [parameter.float() for parameter in held]  # the very same where the model is fp32

    def loss_of(batch: Sequence[Example]) -> Tensor:
        _put(moved, held)
        return mean_loss(model, batch, data)

    yield 0
    for step, batch in enumerate(batches(data, recipe.rows, seed)):
        with torch.inference_mode():
            quick_mezo_step(moved, partial(loss_of, batch), seed << 20 | step, EPSILON, rate)
            _put(moved, held)
        yield (step + 1) * recipe.rows_each_step


def _put(weights: Sequence[Tensor], parameters: Sequence[Tensor]) -> None:
    for parameter, weight in zip(parameters, weights, strict=True):
        parameter.copy_(weight)


def quick_mezo_step(
    parameters: Sequence[Tensor], loss: Callable[[], Tensor], seed: int, epsilon: float, learning_rate: float
) -> float:
    """`mezo_step` of `benchmarks.costs` bit for bit, with z drawn once, not four times: half the time.

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
    """Train in place; yields the forward rows spent so far, first 0, then after every step.

    What is trained becomes fp32; what is frozen stays what it is.
    """
    if recipe.is_lora:
        torch.manual_seed(seed)  # the adapter's first matrix
        targets = recipe.lora_targets
        names = targets if isinstance(targets, str) else [*targets]
        config = LoraConfig(r=LORA_RANK, lora_alpha=LORA_ALPHA, target_modules=names)
        inject_adapter_in_model(config, model)
    else:
        model.requires_grad_(True)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in parameters:
        parameter.data = parameter.data.float()
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    yield 0
    for step, batch in enumerate(batches(data, recipe.rows, seed)):
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
    """Logits of the label words after each prompt, fp32[N, labels], and the labels, int64[N]. Right-padded: no mask."""
    rows = row_batch(examples, data.pad, model.device)
    hidden_NTC: Tensor = model.base_model(input_ids=rows.tokens, use_cache=False).last_hidden_state
    hidden_NC = hidden_NTC[torch.arange(len(examples)), rows.last].float()
    weight = loading.output_embedding(model).weight[list(data.label_tokens)].float()
    return functional.linear(hidden_NC, weight), rows.labels


def batches(data: TaskData, rows: int, seed: int) -> Iterator[list[Example]]:
    """Batches without end, drawn with replacement as a node draws them."""
    generator = np.random.default_rng(seed)
    while True:
        yield [data.examples[index] for index in generator.integers(len(data.examples), size=rows).tolist()]
