"""A model quantised as a whole once it is in memory: what reading it weight by weight must equal."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from sfnode.training.model.quantised import QuantisedLinear, _chosen_layers, quantised_weight


def quantise_weights(model: PreTrainedModel, precision: str) -> None:
    """Quantise every suitable linear layer of ``model`` except the head, in place, on the CPU."""
    for layer in _chosen_layers(precision, model).values():
        layer.weight = quantised_weight(precision, torch.device("cpu"), layer.weight)
        vars(layer)["sfnode_correction"] = None
        layer.__class__ = QuantisedLinear
