"""Which layers write to the residual stream: only these can have a dense core."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from protocol.run.manifest import TensorKind
from sfnode.training.calibration.residual_writers import moving_tensors, writers_of
from sfnode.training.model.tensor_groups import trainable_tensors
from sfnode.training.shared_model import SharedModel
from tests.architectures.tiny_configs import tiny_config
from tests.architectures.verdict import loaded
from tests.support.tiny_models import lively, tiny_gpt2, tiny_llama, tiny_opt


def test_writers_of__attention_whose_queries_have_the_streams_width__output_projection_alone() -> None:
    for model, names in (
        (tiny_opt(), ("self_attn.out_proj", "fc2")),
        (tiny_gpt2(), ("attn.c_proj", "mlp.c_proj")),
        (tiny_llama(), ("self_attn.o_proj", "mlp.down_proj")),
    ):
        found = writers_of(SharedModel(model), trainable_tensors(model))
        assert [each.name.removesuffix(".weight").endswith(names) for each in found] == [True] * 4


def test_writers_of__weights_stored_as_inputs_by_outputs__are_transposed_ones() -> None:
    for model, kind in ((tiny_gpt2(), TensorKind.TRANSPOSED), (tiny_llama(), TensorKind.MATRIX)):
        assert {each.kind for each in writers_of(SharedModel(model), trainable_tensors(model))} == {kind}


def test_writers_of__layers_that_are_not_trained__are_left_out() -> None:
    model = tiny_opt()
    trained = [each for each in trainable_tensors(model) if "layers.1" in each.name]
    found = writers_of(SharedModel(model), trained)
    names = [f"model.decoder.layers.1.{name}.weight" for name in ("self_attn.out_proj", "fc2")]
    assert [each.name for each in found] == names


def test_writers_of__gate_of_the_streams_width_after_the_output_projection__is_none() -> None:
    names, wide = written(loaded("afmoe"))
    assert {name.split(".", 3)[3] for name in names} == {
        "self_attn.o_proj", "mlp.down_proj", "mlp.shared_experts.down_proj",
    }  # fmt: skip
    assert "model.layers.3.self_attn.gate_proj" in wide


def test_writers_of__values_alone_in_their_module__are_none() -> None:
    config = tiny_config("bert-generation")
    config.update({"is_decoder": True})
    make: Any = AutoModelForCausalLM  # carries no types
    names, wide = written(lively(make.from_config(config)))
    assert len(names) == 2 * config.num_hidden_layers and all(name.endswith("output.dense") for name in names)
    assert "bert.encoder.layer.3.attention.self.value" in wide


def written(model: PreTrainedModel) -> tuple[list[str], list[str]]:
    """The layers that write to the stream, and all that have its width."""
    tensors, shared = trainable_tensors(model), SharedModel(model)
    wide = [tensor for tensor in tensors if tensor.rows == shared.head.weight.shape[1]]
    found = writers_of(shared, tensors)
    names, of_width = ([tensor.name.removesuffix(".weight") for tensor in each] for each in (found, wide))
    return names, of_width


@pytest.mark.parametrize(
    ("blocks", "has_label_words", "expected"),
    [
        (30, True, [*range(11, 30, 2)]),
        (30, False, [*range(20, 30)]),
        (12, True, [5, 7, 9, 11]),
        (11, True, [7, 8, 9, 10]),
        (1, True, [0]),
    ],
)
def test_moving_tensors__label_words_in_a_deep_model__are_spread_over_the_last_two_thirds(
    blocks: int, has_label_words: bool, expected: list[int]
) -> None:
    """The middle of SmolLM2's 30 blocks says most on SST-2 and TREC, the last third on AG News."""
    shape = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2}
    shared = SharedModel(lively(LlamaForCausalLM(LlamaConfig(num_hidden_layers=blocks, **shape))))
    found = moving_tensors(writers_of(shared, trainable_tensors(shared.model)), has_label_words=has_label_words)
    assert sorted({int(tensor.name.split(".")[2]) for tensor in found}) == expected
    assert len(found) == max(1, round(2 * blocks / 3))
