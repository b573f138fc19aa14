"""The adapter holds exactly the run's update, PEFT loads it on exactly the trained layers, and it equals the folder."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from numpy.typing import NDArray
from peft import AutoPeftModelForCausalLM, PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen3MoeConfig

from protocol.errors import OperatorError
from protocol.state.coefficients import Coefficients, view_exp
from protocol.subspace.basis_file import Bases
from sfnode.training.export import adapter
from sfnode.training.export.adapter import export_adapter, float32_parts
from sfnode.training.export.hugging_face_folder import export_model
from sfnode.training.model.folding import fold_weights
from sfnode.training.model.tensor_groups import TensorGroup
from tests.architectures.tiny_configs import tiny_config
from tests.training.brute_force import made_up_bases
from tests.training.exports import CONFIGS, VOCABULARY, TrainedRun, save_base, trained_run

TOKENS = torch.arange(20).view(2, 10) * 17 + 3
MAMBAS = ("falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h")
# Largest |C| whose |U C| needs one, two and three float32 parts, at rank 4
MAGNITUDES = {1: 1_000, 2: 1 << 30, 3: 1 << 48}


def _adapter(run: TrainedRun, out: Path) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    export_adapter(Bases(run.manifest), run.coefficients, run.base, out)
    return load_file(out / "adapter_model.safetensors"), json.loads((out / "adapter_config.json").read_text())


def _with_peft(run: TrainedRun, adapter: Path) -> torch.nn.Module:
    base = AutoModelForCausalLM.from_pretrained(run.base, dtype=torch.float32)
    with warnings.catch_warnings():
        # PEFT asks transformers for a property that it is about to rename
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        model = PeftModel.from_pretrained(base, adapter)
    assert isinstance(model, torch.nn.Module)
    return model.eval()


@pytest.mark.parametrize("parts", MAGNITUDES)
@pytest.mark.parametrize("family", CONFIGS)
def test_export_adapter__product_of_its_factors__is_exactly_the_update(family: str, parts: int, tmp_path: Path) -> None:
    run = trained_run(save_base(family, tmp_path / "base"), magnitude=MAGNITUDES[parts])
    factors, config = _adapter(run, tmp_path / "out")
    assert config["r"] == config["lora_alpha"] == 4 * 2 * parts
    assert len(factors) == 2 * len(run.manifest.tensors)
    for index, tensor in enumerate(run.manifest.tensors):
        prefix = f"base_model.model.{tensor.name.removesuffix('.weight')}"
        a, b = (factors[f"{prefix}.lora_{letter}.weight"] for letter in "AB")
        assert a.dtype == b.dtype == torch.float32
        product = _exact_product(b, a, view_exp(run.manifest, index))
        stored_way = product.T if family == "gpt2" else product
        assert np.array_equal(stored_way, -run.integer_update(index).astype(np.int64)), tensor.name
        signs = b if family == "gpt2" else a
        assert set(signs.flatten().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("family", CONFIGS)
def test_export_adapter__dense_core__all_steps_are_one_product_and_exact(family: str, tmp_path: Path) -> None:
    bases, coefficients, base = _dense_run(family, tmp_path / "base")
    export_adapter(bases, coefficients, base, tmp_path / "out")
    factors = load_file(tmp_path / "out" / "adapter_model.safetensors")
    zeros = {each.name: torch.zeros(each.rows, each.cols, dtype=torch.float64) for each in bases.manifest.tensors}
    steps = {step: coefficients.core(step) for step in coefficients.epochs()}
    folded = fold_weights(bases, steps, zeros)
    assert len(folded) == len(bases.manifest.tensors) == len(factors) / 2
    for name, expected in folded.items():
        prefix = f"base_model.model.{name.removesuffix('.weight')}"
        a, b = (factors[f"{prefix}.lora_{letter}.weight"].double() for letter in "AB")
        assert a.shape[0] == 4
        assert torch.equal(b @ a, expected.T if family == "gpt2" else expected), name


@pytest.mark.parametrize("family", CONFIGS)
def test_export_adapter__dense_core_merged_by_peft__gives_the_weights_of_the_exported_folder(
    family: str, tmp_path: Path
) -> None:
    bases, coefficients, base = _dense_run(family, tmp_path / "base")
    export_adapter(bases, coefficients, base, tmp_path / "adapter")
    export_model(bases, coefficients, base, tmp_path / "folder")
    run = TrainedRun(manifest=bases.manifest, coefficients=coefficients, base=base)
    merged = _with_peft(run, tmp_path / "adapter").merge_and_unload()  # type: ignore[operator]
    before, folder = (AutoModelForCausalLM.from_pretrained(path) for path in (base, tmp_path / "folder"))
    moved = {tensor.name for tensor in bases.manifest.tensors}
    for name, expected in folder.named_parameters():
        assert torch.allclose(merged.get_parameter(name), expected, rtol=1e-6, atol=1e-6), name
        assert torch.equal(before.get_parameter(name), expected) is (name not in moved), name


def _dense_run(family: str, folder: Path) -> tuple[Bases, Coefficients, Path]:
    run = trained_run(save_base(family, folder))
    bases = made_up_bases(run.manifest, is_turned=family == "gpt2")
    coefficients = Coefficients(bases.manifest)
    for step in (0, 3):
        values = np.random.default_rng(step).integers(-1_000, 1_001, coefficients.layout.size)
        coefficients.set_flat(step, values)
    return bases, coefficients, run.base


def _exact_product(b: torch.Tensor, a: torch.Tensor, exponent: int) -> NDArray[np.int64]:
    """b @ a in units of 2^exponent. One factor holds the signs, the other one integers in those units."""
    in_units = [factor.double().numpy() for factor in (b, a)]
    signs_first = bool((np.abs(in_units[0]) == 1).all())
    in_units[signs_first] = in_units[signs_first] * 2.0**-exponent
    whole = [values.astype(np.int64) for values in in_units]
    assert all(np.array_equal(exact, values) for exact, values in zip(whole, in_units, strict=True))
    return whole[0] @ whole[1]


@pytest.mark.parametrize("family", CONFIGS)
def test_export_adapter__loaded_by_peft__gives_the_logits_of_the_exported_folder(family: str, tmp_path: Path) -> None:
    run = trained_run(save_base(family, tmp_path / "base"))
    export_adapter(Bases(run.manifest), run.coefficients, run.base, tmp_path / "adapter")
    export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / "folder")
    base, folder = (AutoModelForCausalLM.from_pretrained(path) for path in (run.base, tmp_path / "folder"))
    with torch.no_grad():
        before, expected = base(TOKENS).logits, folder(TOKENS).logits
        found = _with_peft(run, tmp_path / "adapter")(TOKENS).logits
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()
    assert (found - before).abs().max() > 0.1 * expected.abs().max()


@pytest.mark.parametrize("only", ["", "mlp"])
def test_export_adapter__plain_layers_of_a_model_with_experts__are_all_loaded_by_peft(
    only: str, tmp_path: Path
) -> None:
    """PEFT once passed over their MLPs: it takes them for experts, and its warning is no error for people."""
    config = Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, moe_intermediate_size=8, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=4, num_experts=4, num_experts_per_tok=2,
        mlp_only_layers=[0], max_position_embeddings=64,
    )  # fmt: skip
    run = trained_run(save_base(config, tmp_path / "base"), only=only)
    names = [tensor.name for tensor in run.manifest.tensors if ".mlp." in tensor.name]
    assert len(names) == 3
    export_adapter(Bases(run.manifest), run.coefficients, run.base, tmp_path / "adapter")
    export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / "folder")
    with torch.no_grad():
        expected = AutoModelForCausalLM.from_pretrained(tmp_path / "folder")(TOKENS).logits
        found = _with_peft(run, tmp_path / "adapter")(TOKENS).logits
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize(
    ("kind", "only", "fault"),
    [
        ("laguna", "shared_experts", r"would not find layer \S+gate_proj"),  # PEFT reads it under another name
        *[(kind, "", r"refuses layer \S+\.out_proj") for kind in MAMBAS],
    ],
)
def test_export_adapter__layer_that_peft_cannot_adapt__is_refused_in_words_before_any_work(
    kind: str, only: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_config(kind)
    config.vocab_size = VOCABULARY
    run = trained_run(save_base(config, tmp_path / "base"), only=only)
    monkeypatch.setattr(adapter, "low_rank_updates", lambda *_: pytest.fail("computes what it then refuses"))
    with pytest.raises(OperatorError, match=f"PEFT {fault} in models of {kind}: export the whole model instead"):
        export_adapter(Bases(run.manifest), run.coefficients, run.base, tmp_path / "adapter")


@pytest.mark.parametrize("family", CONFIGS)
def test_export_adapter__merged_by_peft__gives_the_weights_of_the_exported_folder(family: str, tmp_path: Path) -> None:
    run = trained_run(save_base(family, tmp_path / "base"))
    export_adapter(Bases(run.manifest), run.coefficients, run.base, tmp_path / "adapter")
    export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / "folder")
    merged = _with_peft(run, tmp_path / "adapter").merge_and_unload()  # type: ignore[operator]
    folder = AutoModelForCausalLM.from_pretrained(tmp_path / "folder")
    for name, expected in folder.named_parameters():
        assert torch.allclose(merged.get_parameter(name), expected, rtol=1e-6, atol=1e-6), name


@pytest.mark.parametrize(
    ("family", "only"), [("opt", "fc1"), ("opt", "layers.1."), ("gpt2", "h.0."), ("llama", "k_proj")]
)
def test_export_adapter__some_layers_trained__peft_adapts_exactly_those(family: str, only: str, tmp_path: Path) -> None:
    run = trained_run(save_base(family, tmp_path / "base"), only=only)
    export_adapter(Bases(run.manifest), run.coefficients, run.base, tmp_path / "out")
    model = _with_peft(run, tmp_path / "out")
    adapted = {name.removesuffix(".lora_A") for name, _ in model.named_modules() if name.endswith(".lora_A")}
    assert adapted == {"base_model.model." + tensor.name.removesuffix(".weight") for tensor in run.manifest.tensors}


def test_export_adapter__more_names_than_peft_keeps__still_adapts_exactly_those(tmp_path: Path) -> None:
    """From 20 names on PEFT shortens the list to the path ends that tell its layers from the others."""
    config = CONFIGS["opt"].__class__(**{**CONFIGS["opt"].to_dict(), "num_hidden_layers": 12})
    run = trained_run(save_base(config, tmp_path / "base"), only="_proj")
    assert len(run.manifest.tensors) == 48
    export_adapter(Bases(run.manifest), run.coefficients, run.base, tmp_path / "out")
    adapted = {name for name, _ in _with_peft(run, tmp_path / "out").named_modules() if name.endswith(".lora_A")}
    assert len(adapted) == 48
    assert not any("fc" in name for name in adapted)


def test_export_adapter__untied_head_trained__is_held_too(tmp_path: Path) -> None:
    run = trained_run(save_base("llama", tmp_path / "base"), groups=(TensorGroup.EMBEDDING,), only="lm_head")
    export_adapter(Bases(run.manifest), run.coefficients, run.base, tmp_path / "out")
    export_model(Bases(run.manifest), run.coefficients, run.base, tmp_path / "folder")
    with torch.no_grad():
        found = _with_peft(run, tmp_path / "out")(TOKENS).logits
        expected = AutoModelForCausalLM.from_pretrained(tmp_path / "folder")(TOKENS).logits
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize(
    ("group", "name"),
    [
        (TensorGroup.BIAS, "model.decoder.layers.0.self_attn.k_proj.bias"),
        (TensorGroup.NORM, "model.decoder.layers.0.self_attn_layer_norm.weight"),
        (TensorGroup.EMBEDDING, "model.decoder.embed_tokens.weight"),
    ],
)
def test_export_adapter__other_tensors_trained__says_which_and_what_to_do(
    group: TensorGroup, name: str, tmp_path: Path
) -> None:
    run = trained_run(save_base("opt", tmp_path / "base"), groups=(TensorGroup.LINEAR, group))
    with pytest.raises(OperatorError, match="linear layers only: export the whole model") as caught:
        export_adapter(Bases(run.manifest), run.coefficients, run.base, tmp_path / "out")
    assert name.rpartition(".")[2] in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_export_adapter__run_without_updates__changes_nothing(tmp_path: Path) -> None:
    run = trained_run(save_base("opt", tmp_path / "base"), epochs=())
    export_adapter(Bases(run.manifest), run.coefficients, run.base, tmp_path / "out")
    with torch.no_grad():
        found = _with_peft(run, tmp_path / "out")(TOKENS).logits
        assert torch.equal(found, AutoModelForCausalLM.from_pretrained(run.base)(TOKENS).logits)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # as in `_with_peft`
@pytest.mark.parametrize("name", ["local:base", "embedded:base", "pypi:base"])
def test_export_adapter__base_model_on_no_hub__is_named_by_its_folder(name: str, tmp_path: Path) -> None:
    run = trained_run(save_base("opt", tmp_path / "base"))
    manifest = replace(run.manifest, model=replace(run.manifest.model, id=name, revision="1.0"))
    run = replace(run, manifest=manifest, coefficients=Coefficients(manifest))
    _, config = _adapter(run, tmp_path / "out")
    assert config["base_model_name_or_path"] == str(run.base)
    assert config["fan_in_fan_out"] is False
    model: Any = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "out")
    assert torch.equal(model(TOKENS).logits, AutoModelForCausalLM.from_pretrained(run.base)(TOKENS).logits)


@pytest.mark.parametrize("exponent", [-170, 130])
def test_float32_parts__numbers_that_float32_has_not__are_refused(exponent: int) -> None:
    """A hostile owner's rate made an export of the adapter run for ever, and fill the memory."""
    with pytest.raises(OperatorError, match="float32 cannot hold: export the whole model"):
        float32_parts(np.array([1.0, 2.0**exponent]))


@given(st.lists(st.integers(-(1 << 53), 1 << 53), min_size=1, max_size=8), st.integers(-65, 0))
def test_float32_parts__integers_up_to_2_53__add_up_exactly(integers: list[int], exponent: int) -> None:
    values = np.array(integers, dtype=np.float64) * 2.0**exponent
    parts = float32_parts(values)
    assert len(parts) <= 3
    scaled = [(part.astype(np.float64) * 2.0**-exponent).astype(np.int64) for part in parts]
    assert np.sum(scaled, axis=0).tolist() == integers
