"""What a step is compared with: each reference trains what it says, and every figure is reported."""

from __future__ import annotations

import pytest
import torch

from benchmarks.costs import reference_cost
from benchmarks.costs.reference_cost import bench_references
from benchmarks.costs.references import LORA_RANK, MEASURED, adamw, label_loss, lora, mezo, mezo_step
from benchmarks.shapes import shape_tensors
from sfnode.training.bench.peak_memory import Alternative
from sfnode.training.bench.synthetic_models import BenchBasis, random_data, random_model
from sfnode.training.task.encoding import row_batch

CPU = torch.device("cpu")
DATA = random_data(4, 8)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_bench_references__tiny_shape__reports_every_ratio(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    peak = {"mezo": 110, "adamw": 390, "lora": 150, "step": 100}
    monkeypatch.setattr(reference_cost, "_peaks", lambda setting: peak)  # its own test is below
    found = bench_references("opt-tiny", size=(4, 8), dtype=dtype, basis=BenchBasis.DENSE, repeats=1, device="cpu")
    for name in ("mezo", "mezo_same_tensors", "backprop", "lora"):
        ratio = found[f"ratio_to_{name}"]
        assert isinstance(ratio, float)
        assert ratio > 0
    assert {name: found[f"memory_of_{name}"] for name in ("mezo", "backprop", "lora")} == {
        "mezo": 1.1,
        "backprop": 3.9,
        "lora": 1.5,
    }
    seconds = found["seconds"]
    assert isinstance(seconds, dict)
    assert set(seconds) == {"step", "mezo", "mezo_same_tensors", "adamw", "lora"}


@pytest.mark.slow
def test_reference__peak_of_each__is_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfnode.training.bench.peak_memory._PROCESSES", 1)
    found = reference_cost._peaks(("opt-tiny", "4", "8", "fp32", "cpu"))
    weights = sum(parameter.numel() for parameter in random_model("opt-tiny", CPU, torch.float32).parameters())
    assert set(found) == {Alternative.STEP, *MEASURED}
    assert found["adamw"] > 4 * 4 * weights  # weights, gradients, two moments
    assert 4 * weights < found["step"] < found["adamw"]


def test_reference__adamw__changes_every_parameter_and_leaves_no_gradient() -> None:
    model = random_model("opt-tiny", CPU, torch.float32)
    before = [parameter.clone() for parameter in model.parameters()]
    adamw(model, DATA)()
    changed = [not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
    assert all(changed)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_reference__lora__trains_beside_a_base_that_stays() -> None:
    model = random_model("opt-tiny", CPU, torch.float32)
    before = [parameter.clone() for parameter in model.parameters()]
    action = lora(model, DATA)
    action()
    action()
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert LORA_RANK < 64


def test_reference__mezo__writes_to_the_named_tensors_only() -> None:
    model = random_model("opt-tiny", CPU, torch.float32)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    chosen = [tensor.name for tensor in shape_tensors("opt-tiny")]
    mezo(model, DATA, chosen)()
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(before[name], parameter)}
    assert changed == set(chosen)


def test_reference__label_loss__is_the_models_own_logits() -> None:
    model, rows = random_model("opt-tiny", CPU, torch.float32), row_batch(DATA.examples, 0, CPU)
    with torch.inference_mode():
        logits = model(input_ids=rows.tokens).logits[:, -1, list(DATA.label_tokens)]
        expected = torch.nn.functional.cross_entropy(logits, rows.labels)
        assert label_loss(model, rows, DATA.label_tokens).item() == pytest.approx(expected.item(), rel=1e-4)


def test_mezo__quadratic_loss__goes_down() -> None:
    weight = torch.full((4, 4), 2.0)
    for seed in range(60):
        mezo_step([weight], lambda: weight.square().sum(), seed, 1e-3, 5e-3)
    assert weight.square().sum().item() < 32
