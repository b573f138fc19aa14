"""Whether weights can be quantised here; a model quantised as a whole in memory, which reading it must equal."""

from __future__ import annotations

import importlib.metadata
from typing import Final

import torch
from transformers import PreTrainedModel

from sfnode.training.model.quantised import QuantisedLinear, _chosen_layers, quantised_weight

# Asked for by name: what packages there are at all takes a quarter of a second to list.
HAS_TORCHAO: Final = any(importlib.metadata.distributions(name="torchao"))


def quantise_weights(model: PreTrainedModel, precision: str) -> None:
    """Quantise every suitable linear layer of ``model`` except the head, in place, on the CPU."""
    for layer in _chosen_layers(precision, model).values():
        layer.weight = quantised_weight(precision, torch.device("cpu"), layer.weight)
        vars(layer)["sfnode_correction"] = None
        layer.__class__ = QuantisedLinear
