"""The benchmarks run and report every figure; what the figures are is for a quiet machine to say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.shapes import shape_tensors
from protocol.errors import OperatorError
from protocol.state.coefficients import CoefficientLayout
from sfnode.training.bench.peak_memory import Alternative, peaks
from sfnode.training.bench.step_cost import bench_step
from sfnode.training.bench.synthetic_models import (
    BenchBasis,
    bench_bases,
    bench_manifest,
    random_model,
    some_coefficients,
)
from sfnode.training.bench.timing import paired_ratio, relative_spread, timed_in_turn
from sfnode.training.model.tensor_groups import trainable_tensors

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_bench_step__tiny_shape__reports_every_ratio(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    peak = {alternative.value: 100 + 10 * index for index, alternative in enumerate(Alternative)}
    monkeypatch.setattr(
        "sfnode.training.bench.peak_memory.peaks", lambda setting, alternatives: peak
    )  # its own test is below
    found = bench_step("opt-tiny", size=(4, 8), dtype=dtype, basis=BenchBasis.RANDOM, repeats=2, device="cpu")
    for name in ("forward", "full_forward"):
        ratio = found[f"ratio_to_{name}"]
        assert isinstance(ratio, float)
        assert ratio > 0
    for name in ("", "_later"):
        assert found[f"peak_memory_ratio{name}"] == peak[f"step{name}"] / peak["forward"]
    seconds = found["seconds"]
    assert isinstance(seconds, dict)
    assert set(seconds) == {"step", "forward", "full_forward"}


def test_bench_step__system_that_does_not_say_what_a_process_takes__reports_times_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sfnode.training.bench.peak_memory._STATUS", Path("/nowhere"))
    found = bench_step("opt-tiny", size=(4, 8), dtype="fp32", basis=BenchBasis.RANDOM, repeats=1, device="cpu")
    assert found["peak_bytes"] == {} and "peak_memory_ratio" not in found and found["ratio_to_forward"]


def test_bench_step__dense_core__is_set_against_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sfnode.training.bench.peak_memory.peaks", lambda setting, alternatives: dict.fromkeys(alternatives, 7)
    )
    found = bench_step("opt-tiny", size=(4, 8), dtype="fp32", basis=BenchBasis.DENSE, repeats=1, device="cpu")
    assert found["ratio_to_forward"] and found["peak_memory_ratio"] == 1.0
    assert "peak_memory_ratio_later" not in found


@pytest.mark.parametrize(
    ("shape", "blocks"), [("opt-tiny", [1]), ("opt-125m", [5, 7, 9, 11]), ("smollm2-135m", [*range(11, 30, 2)])]
)
def test_bench_bases__dense__is_a_run_of_the_layers_that_init_chooses(shape: str, blocks: list[int]) -> None:
    """It took the last third long after `init` had spread them over two."""
    manifest = bench_bases(shape_tensors(shape), BenchBasis.DENSE, size=(4, 8)).manifest
    found = [int(part) for tensor in manifest.tensors for part in tensor.name.split(".") if part.isdigit()]
    assert found == [block for block in blocks for _ in range(2 if shape != "opt-tiny" else 1)]
    assert (manifest.method.sides, manifest.method.directions) == (1, 4)


@pytest.mark.slow
def test_bench_memory__forward_and_step__hold_what_they_must(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfnode.training.bench.peak_memory._PROCESSES", 1)
    chosen = (Alternative.FORWARD, Alternative.STEP_DENSE, Alternative.STEP_LATER)
    found = peaks(("opt-125m", "1", "4", "fp32", "cpu"), chosen)
    tensors = shape_tensors("opt-125m")
    trained = sum(tensor.rows * tensor.cols for tensor in tensors)
    assert found["forward"] > 4 * trained
    assert found["step_later"] > found["step_dense"] + 3 * trained  # a folded epoch is in copies of these


def test_bench__unknown_shape__is_refused() -> None:
    with pytest.raises(OperatorError, match="shape 'opt-9b': known are"):
        bench_step("opt-9b", size=(4, 8), dtype="fp32", basis=BenchBasis.RANDOM, repeats=1, device="cpu")


def test_bench_runs__shape_without_model__has_the_models_tensors() -> None:
    assert shape_tensors("opt-tiny") == trainable_tensors(random_model("opt-tiny", CPU, torch.float32))


def test_bench_runs__coefficients__move_every_tensor() -> None:
    manifest = bench_manifest(shape_tensors("opt-tiny"))
    layout, flat = CoefficientLayout(manifest), some_coefficients(manifest, 1)
    assert all(layout.tensor(flat, index).any() for index in range(len(manifest.tensors)))
    assert not torch.equal(torch.from_numpy(flat), torch.from_numpy(some_coefficients(manifest, 0)))


def test_times__in_turn__first_round_does_not_count() -> None:
    calls: list[str] = []
    found = timed_in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, CPU, 3)
    assert calls == ["a", "b"] * 4
    assert {name: len(times) for name, times in found.items()} == {"a": 3, "b": 3}


def test_times__ratio__is_of_medians_with_quartiles_of_neighbours() -> None:
    over, under = (2.0, 4.0, 30.0), (1.0, 2.0, 10.0)
    assert paired_ratio(over, under) == {"ratio": 2.0, "lower_quartile": 2.0, "upper_quartile": 2.5}
    assert relative_spread((3.0,)) == relative_spread((0.0,)) == 0.0 and relative_spread(over) == (17.0 - 3.0) / 4.0
