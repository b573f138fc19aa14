"""Model folders: what is missing, wrong or changed is named; tensors that can be trained are listed, others refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaForSequenceClassification

from protocol.errors import OperatorError
from protocol.run.manifest import TensorKind, TensorSpec
from sfnode.model_files.model_folder import INDEX_FILE
from sfnode.model_files.resolve import resolve_model
from sfnode.training.devices import choose_device
from sfnode.training.model.loading import load_causal_lm, load_tokenizer
from sfnode.training.model.perturbed import MatrixTerm, PassContext
from sfnode.training.model.tensor_groups import TensorGroup, attach, trainable_tensors
from sfnode.training.model.weights_digest import check_model, load_described
from sfnode.training.shared_model import SharedModel
from tests.support.tiny_models import model_manifest, tiny_gpt2, tiny_llama, tiny_opt, tiny_tokenizer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    cast(Any, tiny_opt()).float().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    for file in pristine.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_model__saved_folder__is_described_and_loaded(folder: Path) -> None:
    found = resolve_model(str(folder))
    spec = load_described(found)[1]
    assert spec.id == f"local:{folder.name}"
    assert [entry.name for entry in spec.weights] == ["model.safetensors"]
    assert "tokenizer.json" in [entry.name for entry in spec.tokenizer]
    check_model(folder, spec)
    model = load_causal_lm(folder, CPU, torch.bfloat16)
    assert model.dtype == torch.bfloat16
    assert not model.training
    assert load_tokenizer(folder).encode("good") == tiny_tokenizer().encode("good")


def test_model__embedded__is_found() -> None:
    assert resolve_model("embedded:tiny-opt").id == "embedded:tiny-opt"


@pytest.mark.parametrize("reference", ["/no/such/folder", "./none", "plainname", "a/b/c", "~/none"])
def test_model__no_such_folder__is_refused(reference: str) -> None:
    with pytest.raises(OperatorError, match="no such folder"):
        resolve_model(reference)


def test_model__unreachable_hub__is_refused() -> None:
    with pytest.raises(OperatorError, match=r"the hub cannot be reached and not all is cached"):
        resolve_model("facebook/opt-none-such")


def test_model__unknown_embedded__is_refused() -> None:
    with pytest.raises(OperatorError, match="no embedded model 'none'"):
        resolve_model("embedded:none")


def test_model__changed_weights__hash_mismatch_names_the_file(folder: Path) -> None:
    spec = load_described(resolve_model(str(folder)))[1]
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(OperatorError, match=r"the weights in .* are not the run's: their content is"):
        check_model(folder, spec)


def test_model__file_of_the_run_is_missing__is_refused(folder: Path) -> None:
    spec = load_described(resolve_model(str(folder)))[1]
    (folder / "tokenizer.json").unlink()
    with pytest.raises(OperatorError, match=r"tokenizer\.json is missing, but the run's model"):
        check_model(folder, spec)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [("config.json", "is not a model folder"), ("model.safetensors", "only safetensors are read")],
)
def test_model__folder_lacks_a_file__is_refused(name: str, complaint: str, folder: Path) -> None:
    (folder / name).unlink()
    with pytest.raises(OperatorError, match=complaint):
        load_causal_lm(folder, CPU, torch.float32)


def test_model__no_tokenizer__is_refused(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    with pytest.raises(OperatorError, match="holds no tokenizer"):
        load_described(resolve_model(str(folder)))[1]


def test_model__damaged_weights__is_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(OperatorError, match="cannot be loaded: it is not a whole file of safetensors"):
        load_causal_lm(folder, CPU, torch.float32)


def test_model__damaged_index__is_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    (folder / INDEX_FILE).write_text("[]", "utf-8")
    with pytest.raises(OperatorError, match="not an index of safetensors"):
        load_causal_lm(folder, CPU, torch.float32)


def test_model__weights_lack_a_tensor__is_refused_not_filled_at_random(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}), "utf-8")
    with pytest.raises(OperatorError, match=r"the weights lack 16 tensors .*layers\.2"):
        load_causal_lm(folder, CPU, torch.float32)


def test_model__saved_without_a_head_that_predicts_words__is_named_as_what_it_is(tmp_path: Path) -> None:
    """As reward models and classifiers are; the advice was to fetch their files again."""
    LlamaForSequenceClassification(tiny_llama().config).save_pretrained(tmp_path)
    with pytest.raises(
        OperatorError, match=r"lack 1 tensors .*lm_head.* saved as LlamaForSequenceClassification: take"
    ):
        load_causal_lm(tmp_path, CPU, torch.float32)


def test_model__code_of_its_own__is_never_run(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (folder / "config.json").write_text(json.dumps(config | own), "utf-8")
    (folder / "own.py").write_text("raise SystemExit('executed')", "utf-8")
    with pytest.raises(OperatorError, match="cannot be loaded"):
        load_causal_lm(folder, CPU, torch.float32)


def test_device__unknown_or_absent__is_refused() -> None:
    with pytest.raises(OperatorError, match="allowed are auto, cpu, cuda, mps"):
        choose_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(OperatorError, match="device 'cuda': this machine"):
            choose_device("cuda")


def test_tensors__tied_head__is_listed_once_with_the_embedding() -> None:
    names = [tensor.name for tensor in trainable_tensors(tiny_opt(), [TensorGroup.EMBEDDING])]
    assert names == ["model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight"]


def test_tensors__untied_head__is_frozen_by_default() -> None:
    model = tiny_llama()
    assert "lm_head.weight" not in [tensor.name for tensor in trainable_tensors(model)]
    assert "lm_head.weight" in [tensor.name for tensor in trainable_tensors(model, [TensorGroup.EMBEDDING])]


def test_tensors__all_groups__are_all_parameters() -> None:
    for model in (tiny_opt(), tiny_gpt2(), tiny_llama()):
        names = [tensor.name for tensor in trainable_tensors(model, list(TensorGroup))]
        assert names == [name for name, _ in model.named_parameters()]


def test_tensors__conv1d__has_the_stored_shape() -> None:
    found = {tensor.name: tensor for tensor in trainable_tensors(tiny_gpt2())}
    assert found["transformer.h.0.attn.c_attn.weight"] == TensorSpec(
        name="transformer.h.0.attn.c_attn.weight", kind=TensorKind.MATRIX, rows=16, cols=48
    )


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"name": "none.weight"}, "tensor none.weight: the model has none of that name"),
        ({"name": "lm_head.weight"}, "tensor lm_head.weight cannot be trained: it is tied"),
        ({"rows": 8}, r"\(16, 16\) in the model, 8 x 16 \(matrix\) in the run"),
    ],
)
def test_tensors__do_not_fit_the_model__are_refused_by_name(changes: dict[str, object], complaint: str) -> None:
    model = tiny_opt()
    tensor = dataclasses.replace(trainable_tensors(model)[0], **changes)  # type: ignore[arg-type]
    with pytest.raises(OperatorError, match=complaint):
        attach(model, [tensor], PassContext())


class OddRMSNorm(nn.Module):
    """Not affine in its weight in the way of any norm we know."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight.abs().sqrt() + x


def test_tensors__norm_of_unknown_kind__is_refused_by_name() -> None:
    model = tiny_llama()
    model.model.norm = OddRMSNorm(16)
    manifest = model_manifest(model, [TensorGroup.NORM])
    with pytest.raises(OperatorError, match=r"model\.norm\.weight cannot be trained: OddRMSNorm"):
        attach(model, manifest.tensors, PassContext())


def test_tensors__layer_that_sees_some_tokens_only__is_refused_by_name() -> None:
    model = tiny_opt()
    shared = SharedModel(model)
    attach(model, trainable_tensors(model), shared.pass_context)
    name = "model.decoder.layers.0.fc1.weight"
    term = MatrixTerm(u=torch.ones(32, 2).double(), v=torch.ones(16, 2).double(), m=torch.ones(2, 2, 2).double())
    layer = model.get_submodule("model.decoder.layers.0.fc1")
    with (
        shared.pass_context.carrying({name: term}, 2, 8),
        pytest.raises(OperatorError, match=f"{name} cannot be trained"),
    ):
        layer(torch.ones(6, 16).double())


def test_shared_model__other_way_to_the_logits__is_refused() -> None:
    model = tiny_llama()
    model.lm_head.register_forward_hook(lambda module, inputs, output: output.tanh())
    with pytest.raises(OperatorError, match="computes its logits in a way that is not supported"):
        SharedModel(model)
