"""Rows for a tiny Llama to learn in `benchmarks.one_pass`: the last token says the label."""

from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedModel

from sfnode.training.task import Example
from tests.support.tiny_models import VOCABULARY
from tests.training.tiny_architectures import tiny_model

WORDS = (3, 4)
ROWS = 96


def tiny_llama() -> PreTrainedModel:
    """Return a tiny Llama in fp32."""
    made = tiny_model("llama")
    torch.nn.Module.to(made, torch.float32)
    return made


def tiny_examples() -> list[Example]:
    """Return prompts of several lengths, the same each time."""
    chance = np.random.default_rng(0)
    tokens = [tuple(chance.integers(5, VOCABULARY, size=chance.integers(3, 9)).tolist()) for _ in range(ROWS)]
    return [Example(tokens=row, label=row[-1] % 2) for row in tokens]
