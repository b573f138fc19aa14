"""What a forward pass leaves out: results at the model's end of tokens that nobody reads."""

from __future__ import annotations

from typing import Final

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from sfnode.training.model.layer_probe import layers_read_at_last, probe_tokens
from sfnode.training.model.perturbed import PassContext
from sfnode.training.model.tensor_groups import TensorGroup, attach, trainable_tensors
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import RowBatch
from tests.training.tiny_architectures import tiny_model

LAST_BLOCK: Final = {  # its linear layers but for those that make keys and values
    "opt": {"self_attn.q_proj", "self_attn.out_proj", "fc1", "fc2"},
    "gpt2": {"attn.c_proj", "mlp.c_fc", "mlp.c_proj"},  # fused with the queries
    "llama": {"self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"},
    "gpt-neox": {"attention.dense", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"},
    "phi": {"self_attn.q_proj", "self_attn.dense", "mlp.fc1", "mlp.fc2"},
}


def names_of(model: PreTrainedModel, modules: frozenset[nn.Module]) -> set[str]:
    return {name for name, module in model.named_modules() if module in modules}


@pytest.mark.parametrize("name", LAST_BLOCK)
def test_layers_read_at_last__of_a_model__are_the_last_blocks_but_for_keys_and_values(name: str) -> None:
    model = tiny_model(name)
    found = names_of(model, layers_read_at_last(model))
    assert {each.partition(".1.")[2] for each in found} == LAST_BLOCK[name]


def test_layers_read_at_last__of_a_block_whose_values_are_zero__leave_out_what_shows_no_effect() -> None:
    """Keys have no effect there today; a run that trains the values gives them one."""
    model = tiny_model("llama")
    values = model.get_submodule("model.layers.1.self_attn.v_proj")
    assert isinstance(values, nn.Linear)
    with torch.no_grad():
        values.weight.zero_()
        values.bias.zero_()
    found = names_of(model, layers_read_at_last(model))
    assert found == {f"model.layers.1.{each}" for each in LAST_BLOCK["llama"] if "q_proj" not in each}


def test_label_logits__of_some_rows__compute_the_end_of_the_model_at_one_token_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model("opt")
    shared = SharedModel(model)
    attach(model, trainable_tensors(model, [TensorGroup.LINEAR]), shared.pass_context)
    tokens = probe_tokens(model, 4, 6)
    rows = RowBatch(tokens=tokens, last=torch.tensor([5, 2, 0, 4]), labels=torch.zeros(4, dtype=torch.int64))
    seen: dict[str, int] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and hasattr(module, "own"):
            monkeypatch.setattr(module, "own", counting(module.own, name, seen))
    at_last = shared.label_logits(rows, (3, 4))
    assert seen["model.decoder.layers.1.fc1"] == seen["model.decoder.layers.1.self_attn.q_proj"] == len(tokens)
    assert seen["model.decoder.layers.1.self_attn.k_proj"] == seen["model.decoder.layers.0.fc1"] == tokens.numel()

    shared.pass_context.read_at_last = frozenset()
    everywhere = shared.label_logits(rows, (3, 4))
    assert seen["model.decoder.layers.1.fc1"] == tokens.numel()
    assert torch.allclose(at_last, everywhere, rtol=1e-12, atol=0)


def counting(own: object, name: str, seen: dict[str, int]) -> object:
    def called(x: Tensor) -> Tensor:
        seen[name] = x.numel() // x.shape[-1]
        assert callable(own)
        result: Tensor = own(x)
        return result

    return called


def test_batch__after_reading__computes_every_token_again() -> None:
    batch = PassContext()
    with batch.reading(torch.tensor([2, 0]), 6):
        assert batch.read_N is not None
        assert batch.read_N.tolist() == [2, 3]
        with batch.one_token_a_row(batch.read_N):
            assert batch.tokens == 2
        assert batch.tokens == 6
    assert batch.read_N is None


def test_checks_of_a_loaded_model__all_of_them__pass_equally_many_tokens() -> None:
    """Two sizes of batches were two sets of kernels, 3 MB each in bf16, which a worker kept for good."""
    model, sizes = tiny_model("llama"), set[int]()
    embedding = model.get_input_embeddings()
    embedding.register_forward_pre_hook(lambda _module, inputs: sizes.add(inputs[0].numel()))
    trainable_tensors(model)
    SharedModel(model)
    assert len(sizes) == 1
