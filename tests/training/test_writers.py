"""Which layers write to the residual stream: only these can have a dense core."""

from __future__ import annotations

from protocol.run.manifest import TensorKind
from sfnode.training.calibration import writers_of
from sfnode.training.model.tensors import trainable_tensors
from sfnode.training.shared_model import SharedModel
from tests.support.tiny_models import tiny_gpt2, tiny_llama, tiny_opt


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
