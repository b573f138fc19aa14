"""Weights that wait outside the device: the same estimates with less memory, and refusals before anything is loaded."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from protocol.errors import OperatorError
from protocol.run.manifest import Manifest
from protocol.subspace.basis_file import Bases
from sfnode.demo import model_folder
from sfnode.model_files import resolve_model
from sfnode.run.manifest_builder import MethodOptions
from sfnode.training.described_model import describe_run
from sfnode.training.estimator import Estimator
from sfnode.training.export.hugging_face_folder import export_model
from sfnode.training.model import offload as offload_module
from sfnode.training.model.layer_probe import probe_tokens
from sfnode.training.model.loading import output_embedding
from sfnode.training.model.offload import load_offloaded, offload, waiting_weights
from sfnode.training.model.quantised import load_in
from sfnode.training.model.tensor_groups import TensorGroup
from sfnode.training.model_questions import ask_model
from sfnode.training.shared_model import SharedModel
from sfnode.training.task.encoding import read_task
from sfnode.worker_protocol import memory_and_disk, weight_plan
from sfnode.worker_protocol.weight_plan import WeightPlan, plan_weights
from tests.support.demo_run import demo_run
from tests.support.tiny_models import model_manifest, tiny_gpt2, tiny_llama, tiny_opt, tiny_tokenizer, write_reviews
from tests.training.brute_force import EPOCHS, SEED, STEP, some_coefficients, unquantised
from tests.training.tiny_architectures import tiny_model

pytestmark = pytest.mark.usefixtures("one_thread")

CPU: Final = torch.device("cpu")
MIB: Final = 1 << 20
MODELS: Final[dict[str, Callable[[], PreTrainedModel]]] = {"opt": tiny_opt, "gpt2": tiny_gpt2, "llama": tiny_llama}


def demo_session(precision: str, device_memory: int | None) -> Estimator:
    run = demo_run(MethodOptions(), 100)
    return Estimator(
        SharedModel(load_in(precision, model_folder(), CPU, device_memory)), Bases(run.manifest), run.session.data
    )


def tiny_session(model: PreTrainedModel, manifest: Manifest, folder: Path) -> Estimator:
    reviews = write_reviews(folder / "reviews.jsonl")
    session = Estimator(
        SharedModel(model), Bases(manifest), read_task(tiny_tokenizer(), manifest.task, reviews, reviews)
    )
    for epoch in EPOCHS:
        session.set_coefficients(epoch, some_coefficients(manifest, epoch))
    return session


def linear_names(model: PreTrainedModel) -> list[str]:
    head = output_embedding(model)
    named = model.named_modules()
    return [f"{name}.weight" for name, each in named if isinstance(each, nn.Linear | Conv1D) and each is not head]


def mapped_files() -> int:
    """Temporary files without a name that this process has mapped."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text("utf-8")
    return len(re.findall(r"sfnode-weight-\S+ \(deleted\)", maps))


def plan_of(device_memory: int | None, dtype: str = "fp32") -> WeightPlan:
    """Ten layers of 10 MiB, and 20 MiB of other weights."""
    return plan_weights({f"layer{number}": 10 * MIB for number in range(10)}, 20 * MIB, dtype, device_memory)


# --- the same numbers


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_offload__all_or_half_of_the_layers_wait__scalars_are_those_of_a_whole_model(precision: str) -> None:
    limits = {"fp32": (1, 2), "bf16": (1,)}[precision]
    whole = demo_session(precision, None)
    for limit in limits:
        session = demo_session(precision, limit)
        layers = session._shared.model.modules()
        assert any(waiting_weights(layer) is not None for layer in layers)
        for seed in range(3):
            assert session.estimate(seed, 0) == whole.estimate(seed, 0)
        assert session.evaluate(40) == whole.evaluate(40)


@pytest.mark.parametrize("name", MODELS)
def test_offload__every_group_trained_and_epochs_closed__gradients_are_the_same(name: str, tmp_path: Path) -> None:
    whole, offloaded = MODELS[name](), MODELS[name]()
    manifest = model_manifest(
        whole, list(TensorGroup), core="rademacher", directions=4, rank=8, alpha_exp=-16, epsilon_exp=-8
    )
    offload(offloaded, CPU, linear_names(offloaded))
    sessions = [tiny_session(model, manifest, tmp_path) for model in (whole, offloaded)]
    found = [unquantised(session, SEED, STEP) for session in sessions]
    assert found[0] == found[1] and any(found[0])
    assert sessions[0].evaluate() == sessions[1].evaluate()
    assert unquantised(sessions[1], SEED, STEP) == found[0]  # the base came back


def test_offload__weights_wait_in_main_memory__scalars_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload_module, "waits_in_files", lambda _device: False)  # as beside a card
    before = mapped_files()
    session, whole = demo_session("fp32", 1), demo_session("fp32", None)
    assert mapped_files() == before
    assert session.estimate(SEED, 0) == whole.estimate(SEED, 0)


# --- where the weights are


def test_offload__between_passes__weights_are_in_files_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(weight_plan, "free_disk", lambda _folder: 1 << 30)  # `make test` has its folders in memory
    before = mapped_files()
    session = demo_session("fp32", 1)
    session.estimate(SEED, 0)
    layers = [layer for layer in session._shared.model.modules() if waiting_weights(layer) is not None]
    assert layers and all(parameter.is_meta for layer in layers for parameter in layer.parameters())
    assert mapped_files() == before + len(layers)
    assert list(tmp_path.iterdir()) == []
    del session, layers
    assert mapped_files() == before  # they end with the model


def test_offload__folded_weights__wait_where_the_base_waits() -> None:
    session, before = demo_session("fp32", 1), mapped_files()
    manifest = session.manifest
    session.set_coefficients(0, some_coefficients(manifest, 0))
    session.estimate(SEED, manifest.method.epoch_steps)
    waiting = [layer for layer in session._shared.model.modules() if waiting_weights(layer) is not None]
    assert mapped_files() == before + len(waiting)


def test_offload__head_embedding_and_norms__stay_on_the_device() -> None:
    model = load_in("fp32", model_folder(), CPU, 1)
    staying = {name for name, weight in model.named_parameters() if not weight.is_meta}
    assert any("embed_tokens" in name for name in staying) and any("layer_norm" in name for name in staying)
    assert not output_embedding(model).weight.is_meta


# --- what is refused


def test_plan__limit__first_layers_stay_and_room_for_one_more_is_kept() -> None:
    assert plan_of(None).on_device == plan_of(200).on_device == 120 * MIB
    plan = plan_of(75)
    assert plan.waiting == tuple(f"layer{number}" for number in range(4, 10))
    assert (plan.on_device, plan.waiting_bytes) == (70 * MIB, 60 * MIB)
    assert plan_of(30).on_device == plan_of(30).least == 30 * MIB


def test_plan__limit_below_what_must_stay__says_what_would_do() -> None:
    with pytest.raises(OperatorError, match=r"--device-memory 29: .* take 30 MiB in fp32: give at least that"):
        plan_of(29)


def test_plan__quantised_weights__do_not_wait() -> None:
    with pytest.raises(OperatorError, match="--device-memory and --dtype int8 do not go together"):
        plan_of(200, "int8")
    with pytest.raises(OperatorError, match="do not go together"):
        load_in("int8", model_folder(), CPU, 1)


@pytest.mark.parametrize(
    ("limit", "device", "free", "says"),
    [
        (
            None,
            "cpu",
            (119, None, 999),
            "take 120 MiB, and 119 MiB are free in main memory: --device-memory 30 or some",
        ),
        (None, "cpu", (29, None, 999), "30 MiB must be there, and the rest can wait on the disk"),
        (
            None,
            "cuda",
            (999, 119, 0),
            "119 MiB are free on the card: --device-memory 30 or somewhat more lets the rest",
        ),
        (30, "cpu", (999, None, 99), "100 MiB of weights are to wait on the disk of .*TMPDIR.* 99 MiB are free"),
        (30, "cuda", (129, 999, 999), "130 MiB of weights are to be read into main memory, where 129 MiB are free"),
    ],
)
def test_room__weights_larger_than_what_is_free__is_refused_with_what_would_do(
    limit: int | None, device: str, free: tuple[int, int | None, int], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, card, disk = free
    monkeypatch.setattr(weight_plan, "free_memory", lambda: memory * MIB)
    monkeypatch.setattr(weight_plan, "free_disk", lambda _folder: disk * MIB)
    with pytest.raises(OperatorError, match=says):
        plan_of(limit).check_room(device, None if card is None else card * MIB)


@pytest.mark.parametrize(("limit", "device"), [(None, "cpu"), (None, "cuda"), (30, "cpu"), (30, "cuda"), (30, "mps")])
def test_room__just_enough_of_everything__is_enough(
    limit: int | None, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_device, waiting = (120, 0) if limit is None else (30, 100)
    memory, disk = (on_device + waiting, 0) if device == "cuda" else (on_device, waiting)
    monkeypatch.setattr(weight_plan, "free_memory", lambda: memory * MIB)
    monkeypatch.setattr(weight_plan, "free_disk", lambda _folder: disk * MIB)
    plan_of(limit).check_room(device, on_device * MIB if device == "cuda" else None)


def test_room__system_says_nothing__nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_plan, "free_memory", lambda: None)
    plan_of(None).check_room("cpu", None)
    plan_of(None).check_room("mps", None)


def test_load__model_larger_than_memory__is_refused_before_a_weight_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> Any:
        raise AssertionError("weights were read")

    run = demo_run(MethodOptions(), 1)
    monkeypatch.setattr(weight_plan, "free_memory", lambda: MIB)
    monkeypatch.setattr("sfnode.training.model.loading._unread", read)
    with pytest.raises(OperatorError, match="take 3 MiB, and 1 MiB are free in main memory: --device-memory 1 or"):
        load_in("fp32", model_folder(), CPU)
    with pytest.raises(OperatorError, match="take 3 MiB, and 1 MiB are free in main memory: use another model"):
        export_model(Bases(run.manifest), run.coefficients, model_folder(), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    asked = (model_folder(), Bases(run.manifest), run.coefficients, ["A film"])
    with pytest.raises(OperatorError, match="take 3 MiB, and 1 MiB are free in main memory: use another model"):
        ask_model(*asked, torch.float32, 4)
    with pytest.raises(OperatorError, match="take 2 MiB, and 1 MiB are free in main memory: use another model"):
        ask_model(*asked, torch.bfloat16, 4)
    with pytest.raises(OperatorError, match="take 3 MiB, and 1 MiB are free in main memory: use another model"):
        describe_run(resolve_model("embedded:tiny-opt"), "linear", run.manifest.task, None)


def test_load__disk_is_full__says_where_to_point_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", full)
    says = r"cannot write the weights that wait to .*: the disk is full.* TMPDIR names another"
    with pytest.raises(OperatorError, match=says):
        load_in("fp32", model_folder(), CPU, 1)


def test_offload__model_that_uses_a_weight_without_its_layer__is_refused() -> None:
    model: Any = tiny_llama()
    mlp = model.model.layers[1].mlp
    mlp.forward = lambda x: functional.linear(mlp.up_proj(x), mlp.down_proj.weight)  # PyTorch would take garbage
    with pytest.raises(OperatorError, match="LlamaForCausalLM cannot be used with --device-memory"):
        offload(model, CPU, linear_names(model))


@torch.inference_mode()
def test_offload__mamba_that_does_so_and_tells_accelerate__computes_the_same() -> None:
    whole: Any = tiny_model("mamba")
    offloaded: Any = tiny_model("mamba")
    offload(offloaded, CPU, linear_names(offloaded))
    tokens = probe_tokens(whole, 2, 3)
    assert torch.equal(offloaded(tokens, use_cache=False).logits, whole(tokens, use_cache=False).logits)


def test_offload__weight_of_several_layers__does_not_wait() -> None:
    model: Any = tiny_llama()
    model.model.layers[0].self_attn.k_proj.weight = model.model.layers[0].self_attn.v_proj.weight
    waiting = offload_module._linear_weights(model)
    assert "model.layers.0.self_attn.q_proj.weight" in waiting
    assert not any(name.endswith(("layers.0.self_attn.k_proj.weight", "0.self_attn.v_proj.weight")) for name in waiting)


# --- what room there is


def test_free_disk__file_system_in_memory__is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    monkeypatch.setattr(memory_and_disk, "_MOUNTS", mounts)
    real = tmp_path.resolve()
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\ntmpfs {real / 'memory'} tmpfs rw 0 0\n")
    (tmp_path / "memory").mkdir()
    assert memory_and_disk.free_disk(tmp_path) > 0
    assert memory_and_disk.free_disk(tmp_path / "memory") == 0


def test_free_memory__container__counts_cached_files_as_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (
        ("meminfo", "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n"),
        ("memory.max", "4000000\n"),
        ("memory.current", "3000000\n"),
        ("memory.stat", "anon 900000\nactive_file 500000\ninactive_file 1500000\n"),
    ):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory_and_disk, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory_and_disk, "_CGROUP", tmp_path)
    assert memory_and_disk.free_memory() == 3_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_and_disk.free_memory() == 8_000 * 1024
    (tmp_path / "meminfo").unlink()
    assert memory_and_disk.free_memory() is None


def test_load_offloaded__same_weights__as_loaded_whole() -> None:
    names = tuple(linear_names(load_in("bf16", model_folder(), CPU)))
    whole = dict(load_in("bf16", model_folder(), CPU).named_parameters())
    model = load_offloaded(model_folder(), CPU, torch.bfloat16, names)
    for name in names:
        waiting = waiting_weights(model.get_submodule(name.rpartition(".")[0]))
        assert waiting is not None and torch.equal(waiting["weight"], whole[name])
    assert list(dict(model.named_parameters())) == list(whole)  # the order in which a run lists its tensors
