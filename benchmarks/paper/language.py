"""A language model as the rivals see it: one flat vector of what is trained, each client's batches, and a judge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import Tensor
from transformers import PreTrainedModel

from benchmarks.learn.plain import LORA_ALPHA, LORA_RANK, Measured, mean_loss, measure
from sfnode.training.task import Example, TaskData

_TARGETS = ("q_proj", "v_proj")  # the paper's accounting of LoRA counts these two


class Language:
    """A `Problem` on a model of any dtype: all its weights, or a LoRA adapter of the usual size, as one fp32 vector.

    ``shards``: the places of each client's examples.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        data: TaskData,
        shards: Sequence[Sequence[int]],
        *,
        rows: int,
        seed: int,
        is_lora: bool,
    ) -> None:
        if is_lora:
            torch.manual_seed(seed)  # the adapter's first matrix
            inject_adapter_in_model(LoraConfig(r=LORA_RANK, lora_alpha=LORA_ALPHA, target_modules=[*_TARGETS]), model)
        else:
            model.requires_grad_(True)
        self._model, self._data, self._shards = model, data, shards
        self._rows, self.seed = rows, seed
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if is_lora:
            for parameter in self._trained:
                parameter.data = parameter.data.float()

    def start(self) -> Tensor:
        """Where all clients begin, fp32[p]."""
        return _flat([parameter.detach() for parameter in self._trained])

    def gradient(self, clients: Sequence[int], weights: Tensor, step: int) -> Tensor:
        """As `Problem` has it."""
        self._put(weights)
        loss = mean_loss(self._model, self._batch(clients, step), self._data)
        return _flat(torch.autograd.grad(loss, self._trained))

    @torch.inference_mode()
    def loss(self, clients: Sequence[int], weights: Tensor, step: int) -> float:
        """As `Problem` has it."""
        self._put(weights)
        return float(mean_loss(self._model, self._batch(clients, step), self._data))

    def judged(self, weights: Tensor, rows: int) -> Measured:
        """Accuracy and loss on the first ``rows`` examples that nobody trains on."""
        self._put(weights)
        return measure(self._model, self._data, rows)

    def _put(self, weights: Tensor) -> None:
        parts = torch.split(weights, [parameter.numel() for parameter in self._trained])
        for parameter, part in zip(self._trained, parts, strict=True):
            parameter.data = part.view_as(parameter).to(parameter.dtype)  # the vector's own memory where it is fp32

    def _batch(self, clients: Sequence[int], step: int) -> list[Example]:
        """Of all these clients: as many examples of each, so that their mean is that of the clients' means."""
        batch = []
        for client in clients:
            places = self._shards[client]
            chosen = np.random.default_rng([self.seed, client, step]).integers(len(places), size=self._rows)
            batch += [self._data.examples[places[each]] for each in chosen.tolist()]
        return batch


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([each.flatten().float() for each in tensors])
