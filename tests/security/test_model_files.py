"""What is loaded as a model is what the manifest names with a hash, and nothing that lies beside it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from benchmarks import places
from protocol.errors import OperatorError
from protocol.run.model import Sharing, file_of
from sfnode import demo
from sfnode.model_files.model_folder import INDEX_FILE, SINGLE_FILE
from sfnode.model_files.resolve import resolve_model
from sfnode.model_files.verify import describe_files
from sfnode.training.model.loading import load_causal_lm, load_tokenizer, positions_of
from sfnode.training.model.weights_digest import check_model, load_described

CPU = torch.device("cpu")
SHARED_MODELS = places.MODELS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder of its own with the embedded model."""
    return Path(shutil.copytree(demo.model_folder("tiny-opt"), tmp_path / "model"))


def change(path: Path, **fields: object) -> None:
    """Set fields of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return cast(dict[str, torch.Tensor], load_causal_lm(folder, CPU, torch.float32).state_dict())


def shard(folder: Path) -> dict[str, str]:
    """Split the weights into two files with an index; returns the index's weight map."""
    tensors = load_file(folder / SINGLE_FILE)
    names = sorted(tensors)
    files = {"part-1.safetensors": names[::2], "part-2.safetensors": names[1::2]}
    for file, held in files.items():
        save_file({name: tensors[name] for name in held}, folder / file, metadata={"format": "pt"})
    (folder / SINGLE_FILE).unlink()
    weight_map = {name: file for file, held in files.items() for name in held}
    (folder / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return weight_map


# --- the index of a model in several files


def test_model__several_safetensors_files__are_described_checked_and_loaded(model: Path) -> None:
    whole = weights(model)
    shard(model)
    spec = load_described(resolve_model(str(model)))[1]
    assert [file.name for file in spec.weights] == [
        INDEX_FILE, "part-1.safetensors", "part-2.safetensors",
    ]  # fmt: skip
    check_model(model, spec)
    assert all(torch.equal(tensor, whole[name]) for name, tensor in weights(model).items())


@pytest.mark.parametrize(
    "file", ["weights.bin", "../weights.safetensors", "/weights.safetensors", ".safetensors/..", INDEX_FILE, 5, None]
)
def test_model__index_names_no_safetensors_file_of_the_folder__is_refused(model: Path, file: object) -> None:
    """A fault once: transformers read a pickle that an index named, although only safetensors were promised."""
    weight_map: dict[str, Any] = shard(model)
    (model / "weights.bin").write_bytes(b"")
    (model / INDEX_FILE).write_text(json.dumps({"weight_map": {**weight_map, next(iter(weight_map)): file}}))
    with pytest.raises(OperatorError, match=r"index\.json (names .*not a safetensors file|is not an index)"):
        load_described(resolve_model(str(model)))[1]
    with pytest.raises(OperatorError, match=r"index\.json (names .*not a safetensors file|is not an index)"):
        load_causal_lm(model, CPU, torch.float32)


def test_model__index_names_a_file_that_the_manifest_does_not__is_refused(model: Path) -> None:
    """An owner could name the index alone: each node would have loaded whatever its hub gave for the weights."""
    shard(model)
    spec = load_described(resolve_model(str(model)))[1]
    spec = replace(spec, weights=spec.weights[:-1])
    check_model(model, spec)  # they are the weights that the manifest names, whatever the files
    scale(model / "part-2.safetensors")
    with pytest.raises(OperatorError, match=r"the weights in .* are not the run's: their content is"):
        check_model(model, spec)


def test_model__index_beside_the_one_file_that_the_manifest_names__what_is_loaded_is_checked(model: Path) -> None:
    spec = load_described(resolve_model(str(model)))[1]
    shutil.copy(model / SINGLE_FILE, model / "kept")
    shard(model)
    shutil.move(model / "kept", model / SINGLE_FILE)
    check_model(model, spec)
    scale(model / "part-2.safetensors")  # transformers loads the one file, and so does sfnode
    check_model(model, spec)
    scale(model / SINGLE_FILE)
    with pytest.raises(OperatorError, match=r"the weights in .* are not the run's"):
        check_model(model, spec)


def scale(path: Path) -> None:
    """Make weights of a file others."""
    save_file({name: 2 * tensor for name, tensor in load_file(path).items()}, path, metadata={"format": "pt"})


# --- files beside those that the manifest names


def add_adapter(folder: Path) -> None:
    """A LoRA adapter that fits the embedded model, in the files and form of the package peft."""
    layer = "model.decoder.layers.0.fc1"
    rows, columns = load_file(folder / SINGLE_FILE)[f"{layer}.weight"].shape
    factors = {"lora_A": torch.ones(2, columns), "lora_B": torch.ones(rows, 2)}
    named = {f"base_model.model.{layer}.{name}.weight": factor for name, factor in factors.items()}
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 2, "target_modules": [layer]}
    (folder / "adapter_config.json").write_text(json.dumps(config))


def test_model__adapter_beside_the_weights__changes_nothing(model: Path) -> None:
    """A fault once: where the package peft is installed, transformers adds an adapter that lies in the folder to the
    model. A hub could change the weights so without changing a hash."""
    before = weights(model)
    spec = load_described(resolve_model(str(model)))[1]
    add_adapter(model)
    check_model(model, spec)
    after = weights(model)
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    if find_spec("peft"):  # the adapter is no dummy
        naive: Any = AutoModelForCausalLM.from_pretrained(model, local_files_only=True)
        assert any("lora" in name for name, _ in naive.named_parameters())


BESIDE = {
    "generation_config.json": '{"max_new_tokens": 1, "temperature": 9.0, "do_sample": true}',
    "pytorch_model.bin": "no pickle",
    "chat_template.jinja": "{{ messages }}",
    "modeling_own.py": "raise SystemExit('executed')",
    "README.md": "what a cache holds besides",
    "tekken.json": "{}",
}


def test_model__usual_other_files_of_a_hub_folder__are_neither_refused_nor_read(model: Path) -> None:
    (model / "generation_config.json").unlink()
    spec = load_described(resolve_model(str(model)))[1]
    plain: Any = load_causal_lm(model, CPU, torch.float32)
    for name, text in BESIDE.items():
        (model / name).write_text(text)
    check_model(model, spec)
    loaded: Any = load_causal_lm(model, CPU, torch.float32)
    assert loaded.generation_config.to_dict() == plain.generation_config.to_dict()
    tokenizer: Any = load_tokenizer(model)
    assert tokenizer.chat_template is None


def test_tokenizer__config_names_a_file_without_a_hash__is_not_read(model: Path) -> None:
    """A fault once: the hashed tokenizer_config.json may name one of several tokenizers, and that one had no hash."""
    change(model / "tokenizer_config.json", fast_tokenizer_files=["tokenizer.json", "tokenizer.4.0.json"])
    spec = load_described(resolve_model(str(model)))[1]
    shutil.copy(model / "tokenizer.json", model / "tokenizer.4.0.json")
    check_model(model, spec)
    with pytest.raises(OperatorError, match="the tokenizer cannot be loaded"):
        load_tokenizer(model)


@pytest.mark.parametrize("name", ["added_tokens.json", "special_tokens_map.json", "vocab.txt"])
def test_tokenizer__file_that_the_manifest_does_not_name__is_refused(model: Path, name: str) -> None:
    """A fault once: a hub could add one and so change the tokenizer without changing any hash."""
    spec = load_described(resolve_model(str(model)))[1]
    (model / name).write_text('{"yes": 7}')
    with pytest.raises(OperatorError, match=rf"{name} is not a file of the run's model .* remove it"):
        check_model(model, spec)


def test_tokenizer__file_of_a_kind_that_is_not_loaded__is_refused(model: Path) -> None:
    """What one release loads and another leaves out would split the run's tokens."""
    spec = load_described(resolve_model(str(model)))[1]
    (model / "words.bpe").write_bytes(b"")
    empty = file_of("words.bpe", b"")
    with pytest.raises(OperatorError, match=r"words\.bpe.*this sfnode.*install"):
        check_model(model, replace(spec, tokenizer=(*spec.tokenizer, empty)))


def test_model__links_as_in_a_hub_cache__are_followed(model: Path, tmp_path: Path) -> None:
    cache = tmp_path / "snapshots"
    cache.mkdir()
    for file in model.iterdir():
        (cache / file.name).symlink_to(Path("..") / model.name / file.name)
    spec = load_described(resolve_model(str(cache)))[1]
    check_model(cache, spec)
    assert weights(cache).keys() == weights(model).keys()


def test_model__cannot_be_loaded__operator_is_told_of_their_own_folder(model: Path) -> None:
    (model / SINGLE_FILE).write_bytes(b"\0" * 100)
    with pytest.raises(OperatorError, match="cannot be loaded") as caught:
        load_causal_lm(model, CPU, torch.float32)
    assert str(model) in str(caught.value) and "sfnode-model-" not in str(caught.value)
    loaded: Any = load_causal_lm(demo.model_folder(), CPU, torch.float32)
    assert loaded.name_or_path == loaded.config.name_or_path == str(demo.model_folder())


# --- what a configuration may not ask for

ASKS_FOR_CODE = [
    {"attn_implementation": "someone/kernel"},
    {"_attn_implementation": "someone/kernel@main:forward"},
    {"attn_implementation": {"": "sdpa", "text_config": "someone/kernel"}},
    {"attn_implementation": "flash_attention_2"},  # from a hub, where only the package `kernels` is installed
    {"_attn_implementation_internal": "paged|someone/kernel"},
    {"experts_implementation": "sonicmoe"},
    {"text_config": {"vision": [{"attn_implementation": "someone/kernel"}]}},
    {"use_kernels": True},
    {"kernel_config": {"RMSNorm": "someone/kernel:RMSNorm"}},
    {"trust_remote_code": True},
]


@pytest.mark.parametrize("fields", ASKS_FOR_CODE, ids=str)
def test_config__asks_for_code_from_elsewhere__is_refused_before_anything_is_loaded(
    model: Path, fields: dict[str, object]
) -> None:
    """A fault once: this ended in an internal error, or in native code fetched from a hub and run."""
    change(model / "config.json", **fields)
    spec = describe_files(resolve_model(str(model)), "0" * 64, Sharing.PEERS)
    with pytest.raises(OperatorError, match=r"config\.json asks for code from elsewhere"):
        load_described(resolve_model(str(model)))[1]
    (model / SINGLE_FILE).write_bytes(b"nothing that could be loaded")
    for load in (partial(load_causal_lm, model, CPU, torch.float32), partial(load_tokenizer, model)):
        with pytest.raises(OperatorError, match=r"config\.json asks for code from elsewhere"):
            load()
    with pytest.raises(OperatorError, match=r"config\.json asks for code from elsewhere"):
        check_model(model, spec)


def test_tokenizer_config__asks_for_code_from_elsewhere__is_refused(model: Path) -> None:
    change(model / "tokenizer_config.json", trust_remote_code=True)
    with pytest.raises(OperatorError, match=r"tokenizer_config\.json asks for code from elsewhere"):
        load_tokenizer(model)


QUANTISED = {
    "awq": {"quant_method": "awq", "bits": 4},
    "gptq": {"quant_method": "gptq"},
    "compressed-tensors": {"quant_method": "compressed-tensors", "config_groups": {}},
    "by bitsandbytes": {"load_in_4bit": True},  # as older configurations say it
    "nonsense": "nonsense",
    "5": {"quant_method": 5},
}


@pytest.mark.parametrize("key", ["quantization_config", "compression_config"])
@pytest.mark.parametrize("how", QUANTISED)
def test_config__weights_quantised_in_a_way_that_does_not_train__says_how_and_what_to_take(
    model: Path, how: str, key: str
) -> None:
    """A fault once: "asks for code from elsewhere", and an advice that makes nonsense of the weights."""
    change(model / "config.json", **{key: QUANTISED[how]})
    loads = (partial(load_causal_lm, model, CPU, torch.float32), partial(load_tokenizer, model))
    for load in loads:
        with pytest.raises(OperatorError, match=rf"config\.json: the weights are quantised \({how}\).*made from"):
            load()
    change(model / "config.json", **{key: None})
    assert weights(model)


HARMLESS = {
    "auto_map": {"AutoModelForCausalLM": "own.Model"},
    "attn_implementation": "eager",
    "trust_remote_code": False,
    "conv_kernel": 4,
    "x": [[]],
}


@pytest.mark.parametrize(("key", "value"), HARMLESS.items())
def test_config__usual_fields__are_taken(model: Path, key: str, value: object) -> None:
    change(model / "config.json", **{key: value})
    assert weights(model)


@pytest.mark.parametrize("text", ["[]", "5", "null", "{", "[" * 100_000])
def test_config__is_not_an_object__operator_is_told(model: Path, text: str) -> None:
    """A fault once: a list, or brackets without end, gave an internal error."""
    (model / "config.json").write_text(text)
    for read in (lambda: positions_of(model), lambda: load_causal_lm(model, CPU, torch.float32)):
        with pytest.raises(OperatorError, match=r"config\.json is not a valid JSON file"):
            read()


# --- real models


@pytest.mark.parametrize("name", ["opt-reviews-4m", "stories260K"])
def test_model__real_one__is_described_checked_and_loaded_with_its_tokenizer(name: str) -> None:
    folder = SHARED_MODELS / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not on this machine: real models are not tested")
    spec = load_described(resolve_model(str(folder)))[1]
    check_model(folder, spec)
    assert load_causal_lm(folder, CPU, torch.float32).num_parameters() > 200_000
    assert load_tokenizer(folder)("a good film")["input_ids"]
