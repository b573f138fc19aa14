"""What the members could have if they gave all their rows to one party: LoRA with back-propagation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final

import torch

from benchmarks.learn.plain import measure, train_back
from benchmarks.learn.problems import SMOLLM2, Folders, Task, load, read
from benchmarks.learn.recipes import LORA, REAL_RECIPES
from benchmarks.learn.trials import BackPropagation
from sfnode.training.task import Example

_PASSES: Final = 3  # as many rows as the run passes forward, drawn with replacement


def pooled_lora(folders: Folders, task: Task, examples: Sequence[Example], seed: int) -> dict[str, dict[str, object]]:
    """Train SmolLM2 in fp32 on ``examples`` with AdamW, and return what the test rows say of each learning rate."""
    data = replace(read(folders, SMOLLM2, task, is_test=True), examples=tuple(examples))
    recipe = REAL_RECIPES[LORA]
    assert isinstance(recipe, BackPropagation)
    steps = _PASSES * len(examples) // recipe.rows
    found = {}
    for rate in recipe.rates:
        model = load(folders, SMOLLM2)
        torch.nn.Module.to(model, torch.float32)
        for _ in zip(range(steps + 1), train_back(recipe, model, data, rate, seed), strict=False):
            pass
        found[f"{rate:g}"] = asdict(measure(model, data, task.test_rows))
    return found
