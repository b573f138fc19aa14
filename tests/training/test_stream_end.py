"""The end of the residual stream: the norm there, and models that have no such thing are refused in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, PreTrainedModel

from protocol.errors import OperatorError
from sfnode.training.model import loading
from sfnode.training.model.layer_probe import check_causal, norm_at_the_end
from sfnode.training.shared_model import SharedModel
from tests.architectures.tiny_configs import tiny_config
from tests.support.tiny_models import lively, tiny_gpt2, tiny_llama


def tiny(kind: str, **changes: Any) -> PreTrainedModel:
    config = tiny_config(kind)
    config.update(changes)
    make: Any = AutoModelForCausalLM  # carries no types
    return lively(make.from_config(config))


def test_norm_at_the_end__models_with_one__is_that_of_any_class() -> None:
    for model, name in (
        (tiny_llama(), "model.norm"),
        (tiny_gpt2(), "transformer.ln_f"),
        (tiny("cohere"), "model.norm"),  # of a class of its own
    ):
        assert norm_at_the_end(model) is model.get_submodule(name)


def test_norm_at_the_end__decoder_with_norms_after_its_layers__is_that_of_the_last_layer() -> None:
    """And not the norm after the embedding, which stands outside of the layers."""
    model = tiny("bart")
    assert norm_at_the_end(model) is model.get_submodule("model.decoder.layers.3.final_layer_norm")


def test_check_causal__model_whose_tokens_see_later_ones__is_refused() -> None:
    """Rows are padded at their ends: what a token sees would depend on the longest row of its batch."""
    check_causal(tiny("bert-generation", is_decoder=True))
    with pytest.raises(OperatorError, match="tokens see the tokens that follow them"):
        SharedModel(tiny("bert-generation", is_decoder=False))


def test_shared_model__hidden_states_of_another_width_than_the_head__are_refused() -> None:
    with pytest.raises(OperatorError, match="computes its logits in a way that is not supported"):
        SharedModel(tiny("electra", is_decoder=True, embedding_size=16))


def test_empty_model__configuration_that_lacks_a_part__is_refused(tmp_path: Path) -> None:
    """What transformers raises there is an AttributeError."""
    (tmp_path / "config.json").write_text('{"model_type": "musicgen"}', "utf-8")
    with pytest.raises(OperatorError, match="cannot be loaded as a causal language model"):
        loading.empty_model(tmp_path)
