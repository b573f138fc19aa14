"""What the weights are, in whatever files, names and number format they lie (SPEC 1.5)."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from protocol.errors import OperatorError
from protocol.run.model import weights_digest
from sfnode import demo
from sfnode.model_files.model_folder import SINGLE_FILE
from sfnode.model_files.resolve import resolve_model
from sfnode.training.model.loading import load_causal_lm
from sfnode.training.model.weights_digest import check_model, content_of, load_described
from tests.training.tiny_architectures import tiny_model

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(demo.model_folder("tiny-opt"), tmp_path / "model"))


def rewrite(folder: Path, tensors: Tensors) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / SINGLE_FILE)


def test_content__of_a_folder__is_the_digest_of_the_specification(folder: Path) -> None:
    found = load_file(folder / SINGLE_FILE)
    digests = {name: sha256(tensor.float().numpy().tobytes()).digest() for name, tensor in found.items()}
    expected = weights_digest({name: (tuple(found[name].shape), digest) for name, digest in digests.items()})
    assert content_of(folder) == expected


@pytest.mark.parametrize("architecture", ["opt", "gpt2", "llama", "gemma2", "qwen2"])
def test_content__of_a_model_in_memory__is_that_of_its_files(architecture: str, tmp_path: Path) -> None:
    """The reference: the whole model loaded by transformers alone, and its tensors taken in its own order."""
    from transformers import AutoModelForCausalLM

    tiny_model(architecture).save_pretrained(folder := tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    kept: Tensors = dict(model.named_parameters())
    kept |= {name: tensor for name, tensor in model.named_buffers() if name in model.state_dict()}
    hashed = {name: sha256(tensor.detach().contiguous().numpy().tobytes()).digest() for name, tensor in kept.items()}
    floats = {name: tensor for name, tensor in kept.items() if tensor.is_floating_point()}
    assert content_of(folder) == weights_digest({name: (tuple(floats[name].shape), hashed[name]) for name in floats})


def test_content__same_weights_in_other_files__is_the_same(folder: Path) -> None:
    """Key names of older files, tied weights saved twice, tensors that the model does not have."""
    before, tensors = content_of(folder), load_file(folder / SINGLE_FILE)
    variants: dict[str, Tensors] = {
        "names of the base model": {name.removeprefix("model."): tensor for name, tensor in tensors.items()},
        "a tensor of no use": {**tensors, "training.step": torch.zeros(1)},
        "a tied head of its own": {**tensors, "lm_head.weight": tensors["model.decoder.embed_tokens.weight"].clone()},
    }
    for name, held in variants.items():
        rewrite(folder, held)
        assert content_of(folder) == before, name


def test_content__values_that_16_bits_hold__is_the_same_in_every_format(folder: Path) -> None:
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(folder / SINGLE_FILE).items()}
    rewrite(folder, tensors)
    before = content_of(folder)
    rewrite(folder, {name: tensor.float() for name, tensor in tensors.items()})
    assert content_of(folder) == before


def test_content__one_value_differs__differs(folder: Path) -> None:
    before, tensors = content_of(folder), load_file(folder / SINGLE_FILE)
    bias = tensors["model.decoder.layers.0.fc1.bias"]
    bias[3] = torch.nextafter(bias[3].float(), torch.tensor(10.0)) + 0.5
    rewrite(folder, tensors)
    assert content_of(folder) != before


def test_content__whole_model__is_never_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashing 1.3 billion weights must not take what loading them takes."""
    loaded: list[int] = []

    def load(*arguments: object) -> object:
        model = real(*arguments)  # type: ignore[arg-type]
        loaded.append(sum(weight.untyped_storage().nbytes() for weight in model.parameters()))
        return model

    real = load_causal_lm
    monkeypatch.setattr("sfnode.training.model.weights_digest.load_causal_lm", load)
    content_of(folder)
    assert loaded[0] <= 4 * 100  # a number for each tensor


def test_check__other_files_with_the_same_weights__are_the_runs_model(folder: Path) -> None:
    spec = load_described(resolve_model(str(folder)))[1]
    tensors = load_file(folder / SINGLE_FILE)
    rewrite(folder, {**tensors, "training.step": torch.zeros(1)})
    assert load_described(resolve_model(str(folder)))[1].weights != spec.weights
    check_model(folder, spec)
    with pytest.raises(OperatorError, match="use the run's model"):
        check_model(folder, replace(spec, content="0" * 64))


def test_check__same_weights_with_another_config__is_refused(folder: Path) -> None:
    spec = load_described(resolve_model(str(folder)))[1]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"activation_function": "gelu"}))
    with pytest.raises(OperatorError, match=r"config\.json is not the run's file"):
        check_model(folder, spec)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_load__parameter_with_a_name_of_its_own_is_not_finite__is_named(value: float, tmp_path: Path) -> None:
    """Once only names that end in `weight` or `bias` were looked at: Mamba's A_log and stacked experts have others."""
    tiny_model("mamba").save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((demo.model_folder() / "tokenizer.json").read_bytes())
    tensors = load_file(tmp_path / SINGLE_FILE)
    assert content_of(tmp_path)
    tensors["backbone.layers.1.mixer.A_log"][0, 0] = value
    rewrite(tmp_path, tensors)
    with pytest.raises(OperatorError, match=r"layers\.1\.mixer\.A_log holds numbers that are infinite or none"):
        content_of(tmp_path)
