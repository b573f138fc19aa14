"""Weights read tensor by tensor: the same bits as when the whole model was read first, and no second copy of it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from protocol.errors import OperatorError
from sfnode.model_files.model_folder import SINGLE_FILE
from sfnode.training.model import quantised
from sfnode.training.model.folding import is_quantised
from sfnode.training.model.loading import load_causal_lm
from sfnode.training.model.quantised import QuantisedLinear, load_in
from tests.support.quantised_models import HAS_TORCHAO, quantise_weights
from tests.training.tiny_architectures import ARCHITECTURES, tiny_model

CPU: Final = torch.device("cpu")
needs_torchao = pytest.mark.skipif(not HAS_TORCHAO, reason="torchao is not installed: pip install -e '.[quantised]'")
NOT_QUANTISED: Final = ("gpt2", "falcon", "mamba")  # layers of other classes, or of one input, which torchao refuses
LAYER: Final = "model.layers.0.mlp.up_proj.weight"  # of the tiny Llama: [24, 16]


def saved(name: str, folder: Path) -> Path:
    cast(Any, tiny_model(name)).half().save_pretrained(folder)
    return folder


def tensors_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """Tied ones under each of their names; buffers that no file holds, too."""
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}


def ties_of(model: PreTrainedModel) -> set[frozenset[str]]:
    by_tensor: dict[int, set[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        by_tensor.setdefault(id(parameter), set()).add(name)
    return {frozenset(names) for names in by_tensor.values()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_weights__read_one_by_one__model_is_the_one_that_transformers_loads(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    folder = saved(name, tmp_path)
    load: Any = AutoModelForCausalLM.from_pretrained
    expected, found = load(folder, dtype=dtype).eval(), load_causal_lm(folder, CPU, dtype)
    wanted, held = tensors_of(expected), tensors_of(found)
    assert held.keys() == wanted.keys()
    for key, tensor in wanted.items():
        assert held[key].dtype == tensor.dtype, key
        assert torch.equal(held[key], tensor), key
    assert ties_of(found) == ties_of(expected)
    assert plain_config(found) == plain_config(expected)


def plain_config(model: Any) -> dict[str, object]:
    config = {**model.config.to_dict(), "generation": model.generation_config.to_dict() if model.can_generate() else {}}
    return {key: value for key, value in config.items() if key != "_name_or_path"}


@needs_torchao
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in NOT_QUANTISED])
def test_int8__quantised_as_read__equals_the_whole_model_quantised(name: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path)
    expected, found = load_causal_lm(folder, CPU, torch.bfloat16), load_in("int8", folder, CPU)
    quantise_weights(expected, "int8")
    wanted, held = tensors_of(expected), tensors_of(found)
    assert held.keys() == wanted.keys()
    for key, tensor in wanted.items():
        assert type(held[key]) is type(tensor), key
        assert all(torch.equal(mine, its) for mine, its in zip(parts(held[key]), parts(tensor), strict=True)), key
    assert [type(module) for module in found.modules()] == [type(module) for module in expected.modules()]
    assert any(isinstance(module, QuantisedLinear) for module in found.modules())
    assert ties_of(found) == ties_of(expected)
    assert plain_config(found) == plain_config(expected)
    assert not found.is_quantized  # what transformers thinks of it: any other model


def parts(tensor: Any) -> tuple[Tensor, ...]:
    return (tensor.qdata, tensor.scale) if is_quantised(tensor) else (tensor,)


@needs_torchao
def test_int8__tensor_of_another_shape__is_refused(tmp_path: Path) -> None:
    change(saved("llama", tmp_path), lambda tensors: {**tensors, LAYER: tensors[LAYER][:-1].contiguous()})
    with pytest.raises(OperatorError, match=rf"cannot be loaded .*: {LAYER} has the shape \(23, 16\), not \(24, 16\)"):
        load_in("int8", tmp_path, CPU)


@needs_torchao
def test_int8__tensor_is_missing__is_refused_by_its_name(tmp_path: Path) -> None:
    change(saved("llama", tmp_path), lambda tensors: {key: each for key, each in tensors.items() if key != LAYER})
    with pytest.raises(OperatorError, match=f"the weights lack 1 tensors .*{LAYER}"):
        load_in("int8", tmp_path, CPU)


def change(folder: Path, new: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    save_file(new(load_file(folder / SINGLE_FILE)), folder / SINGLE_FILE, metadata={"format": "pt"})


def test_weights__file_changes_after_loading__model_does_not(tmp_path: Path) -> None:
    folder = saved("llama", tmp_path)
    model = load_causal_lm(folder, CPU, torch.float16)  # the dtype of the file: nothing was converted
    before = {key: tensor.clone() for key, tensor in tensors_of(model).items()}
    with (folder / SINGLE_FILE).open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        size = (folder / SINGLE_FILE).stat().st_size
        file.seek(8 + length)
        file.write(bytes(size - 8 - length))
    assert all(torch.equal(tensor, before[key]) for key, tensor in tensors_of(model).items())


@needs_torchao
def test_int8__first_weight_is_quantised__no_other_one_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: the whole model was read first, so int8 took more memory than bf16."""
    folder, others = saved("llama", tmp_path), weights_in_memory()
    in_memory: list[int] = []
    round_one = quantised.quantised_weight

    def spy(precision: str, device: torch.device, weight: Tensor) -> nn.Parameter:
        if not in_memory:
            in_memory.append(weights_in_memory() - others)
        return round_one(precision, device, weight)

    monkeypatch.setattr(quantised, "quantised_weight", spy)
    load_in("int8", folder, CPU)
    assert 1 <= in_memory[0] <= 3  # itself, the embeddings, the head


def weights_in_memory() -> int:
    """Matrices in bf16 that anybody holds."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), Tensor)]
    plain = [each for each in tensors if each.dtype == torch.bfloat16 and each.ndim == 2 and each.device == CPU]
    return len({each.data_ptr() for each in plain if not is_quantised(each)})
