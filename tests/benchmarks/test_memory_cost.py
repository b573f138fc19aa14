"""Peaks of memory: every figure is reported, and holds what it must."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.costs import memory_cost, peak_memory
from benchmarks.costs.memory_cost import bench_memory
from benchmarks.costs.peak_memory import Alternative, peaks, process_bytes
from sfnode.training.bench.synthetic_models import BenchBasis, shape_tensors

PLANNED = {"program": 1}
says_memory = pytest.mark.skipif(process_bytes() is None, reason="this system does not say what a process takes")


@pytest.mark.parametrize(
    ("basis", "ratios"),
    [(BenchBasis.RANDOM, {"": 140 / 100, "_later": 150 / 100}), (BenchBasis.DENSE, {"": 130 / 110})],
)
def test_bench_memory__step__is_set_against_passes_of_its_rows(
    basis: BenchBasis, ratios: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    peak = dict(zip((each.value for each in Alternative), (100, 110, 130, 140, 150), strict=True))
    monkeypatch.setattr(peak_memory, "peaks", lambda setting, alternatives: peak)
    monkeypatch.setattr(memory_cost, "_plan_and_process", lambda *_: PLANNED)
    found = bench_memory("opt-tiny", size=(4, 8), dtype="fp32", basis=basis)
    assert {name: found[name] for name in found if "ratio" in name} == {
        f"peak_memory_ratio{name}": ratio for name, ratio in ratios.items()
    }
    quantised = bench_memory("opt-tiny", size=(4, 8), dtype="int8", basis=basis)
    assert quantised["peak_bytes"] == {} and quantised["program"] == 1


def test_peaks__system_that_does_not_say_what_a_process_takes__are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak_memory, "_STATUS", Path("/nowhere"))
    assert peaks(("opt-tiny", "4", "8", "fp32", "cpu"), (Alternative.STEP,)) == {}


@pytest.mark.slow
def test_peaks__forward_and_step__hold_what_they_must(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak_memory, "_PROCESSES", 1)
    chosen = (Alternative.FORWARD, Alternative.STEP_DENSE, Alternative.STEP_LATER)
    found = peaks(("opt-125m", "1", "4", "fp32", "cpu"), chosen)
    trained = sum(tensor.rows * tensor.cols for tensor in shape_tensors("opt-125m"))
    assert found["forward"] > 4 * trained
    assert found["step_later"] > found["step_dense"] + 3 * trained  # a folded epoch is in copies of these


@says_memory
@pytest.mark.slow
def test_bench_memory__tiny_shape__reports_plan_and_measurement() -> None:
    found = memory_cost._plan_and_process("opt-tiny", (4, 8), "fp32", BenchBasis.DENSE)
    planned, measured, ratio, program = (found[name] for name in ("planned", "measured", "ratio", "program"))
    assert isinstance(planned, dict) and isinstance(measured, dict) and isinstance(ratio, dict)
    assert isinstance(program, int)
    for peak in ("load_peak", "training_peak"):
        assert ratio[peak] == pytest.approx(planned[peak] / measured[peak])
        assert measured[peak] > program > 100 << 20
