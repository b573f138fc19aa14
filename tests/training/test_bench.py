"""The benchmarks run and report every figure; what the figures are is for a quiet machine to say."""

from __future__ import annotations

from statistics import median

import pytest
import torch

from protocol.errors import OperatorError
from protocol.state.coefficients import CoefficientLayout
from sfnode.training.bench.memory import Alternative, peaks
from sfnode.training.bench.references import LORA_RANK, adamw, label_loss, lora, mezo, mezo_step
from sfnode.training.bench.step_cost import bench_step
from sfnode.training.bench.subjects import (
    BenchBasis,
    bench_bases,
    bench_manifest,
    random_data,
    random_model,
    shape_tensors,
    some_coefficients,
)
from sfnode.training.bench.timing import Times, paired_ratio, timed_in_turn
from sfnode.training.model.tensors import trainable_tensors
from sfnode.training.task.encoding import RowBatch, row_batch

CPU = torch.device("cpu")
WORDS = (4, 5)


def tiny_rows() -> RowBatch:
    return row_batch(random_data(4, 8).examples, 0, CPU)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_bench_step__tiny_shape__reports_every_ratio(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    peak = {alternative.value: 100 + 10 * index for index, alternative in enumerate(Alternative)}
    monkeypatch.setattr("sfnode.training.bench.step_cost.peaks", lambda *settings: peak)  # its own test is below
    found = bench_step("opt-tiny", size=(4, 8), dtype=dtype, basis=BenchBasis.START, repeats=2, device="cpu")
    for name in ("forward", "full_forward", "mezo", "mezo_same_tensors", "backprop", "lora"):
        ratio = found[f"ratio_to_{name}"]
        assert isinstance(ratio, float)
        assert ratio > 0
    assert found["peak_memory_ratio"] == peak["step"] / peak["forward"]
    assert found["memory_of_backprop"] == peak["adamw"] / peak["step"]
    seconds = found["seconds"]
    assert isinstance(seconds, dict)
    assert set(seconds) == {"step", "forward", "full_forward", "mezo", "mezo_same_tensors", "adamw", "lora"}


def test_bench_bases__start__moves_the_last_layers_that_write_and_no_others() -> None:
    bases = bench_bases(shape_tensors("opt-tiny"), BenchBasis.START, size=(4, 8))
    names = [tensor.name for tensor in bases.manifest.tensors]
    searched = {name for index, name in enumerate(names) if bases.of(0, index).u.any()}
    (start,) = bases.starts(0).values()
    assert searched == {name for index, name in enumerate(names) if start.moves(index)}
    assert searched == {"model.decoder.layers.1.fc2.weight"}


@pytest.mark.slow
def test_bench_memory__forward_and_adamw__hold_what_they_must(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfnode.training.bench.memory._PROCESSES", 1)
    found = peaks(
        "opt-tiny", (4, 8), "fp32", "cpu", (Alternative.FORWARD, Alternative.ADAMW, Alternative.STEP_LATER_PUBLISHED)
    )
    weights = sum(parameter.numel() for parameter in random_model("opt-tiny", CPU, torch.float32).parameters())
    assert found["forward"] > 4 * weights
    assert found["adamw"] > 4 * 4 * weights  # weights, gradients, two moments
    assert 0 < found["step_later_published"] < found["adamw"]


def test_bench__unknown_shape__is_refused() -> None:
    with pytest.raises(OperatorError, match="shape 'opt-9b': known are"):
        bench_step("opt-9b", size=(4, 8), dtype="fp32")


def test_bench_runs__shape_without_model__has_the_models_tensors() -> None:
    assert shape_tensors("opt-tiny") == trainable_tensors(random_model("opt-tiny", CPU, torch.float32))


def test_bench_runs__coefficients__move_every_tensor() -> None:
    manifest = bench_manifest(shape_tensors("opt-tiny"))
    layout, flat = CoefficientLayout(manifest), some_coefficients(manifest, 1)
    assert all(layout.tensor(flat, index).any() for index in range(len(manifest.tensors)))
    assert not torch.equal(torch.from_numpy(flat), torch.from_numpy(some_coefficients(manifest, 0)))


def test_reference__adamw__changes_every_parameter_and_leaves_no_gradient() -> None:
    model = random_model("opt-tiny", CPU, torch.float32)
    before = [parameter.clone() for parameter in model.parameters()]
    adamw(model, tiny_rows(), WORDS)()
    changed = [not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
    assert all(changed)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_reference__lora__trains_beside_a_base_that_stays() -> None:
    model = random_model("opt-tiny", CPU, torch.float32)
    before = [parameter.clone() for parameter in model.parameters()]
    action = lora(model, tiny_rows(), WORDS)
    action()
    action()
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert LORA_RANK < 64


def test_reference__mezo__writes_to_the_named_tensors_only() -> None:
    model = random_model("opt-tiny", CPU, torch.float32)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    chosen = [tensor.name for tensor in shape_tensors("opt-tiny")]
    mezo(model, tiny_rows(), WORDS, chosen)()
    changed = {name for name, parameter in model.named_parameters() if not torch.equal(before[name], parameter)}
    assert changed == set(chosen)


def test_reference__label_loss__is_the_models_own_logits() -> None:
    model, rows = random_model("opt-tiny", CPU, torch.float32), tiny_rows()
    with torch.inference_mode():
        logits = model(input_ids=rows.tokens).logits[:, -1, list(WORDS)]
        expected = torch.nn.functional.cross_entropy(logits, rows.labels)
        assert label_loss(model, rows, WORDS).item() == pytest.approx(expected.item(), rel=1e-4)


def test_times__in_turn__first_round_does_not_count() -> None:
    calls: list[str] = []
    found = timed_in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, CPU, 3)
    assert calls == ["a", "b"] * 4
    assert {name: len(times.values) for name, times in found.items()} == {"a": 3, "b": 3}


def test_times__ratio__is_of_medians_with_quartiles_of_neighbours() -> None:
    over, under = Times((2.0, 4.0, 30.0)), Times((1.0, 2.0, 10.0))
    assert paired_ratio(over, under) == {"ratio": 2.0, "lower_quartile": 2.0, "upper_quartile": 2.5}
    assert over.median == median(over.values)
    assert Times((3.0,)).spread == 0.0


def test_mezo__quadratic_loss__goes_down() -> None:
    weight = torch.full((4, 4), 2.0)
    for seed in range(60):
        mezo_step([weight], lambda: weight.square().sum(), seed, 1e-3, 5e-3)
    assert weight.square().sum().item() < 32
