"""The plan of `sfnode doctor` and `join`: part by part what a worker holds, and its peaks what a process takes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from benchmarks.costs.worker_memory import bench_memory, random_files, worker_peaks
from benchmarks.shapes import shape_tensors
from protocol.run.manifest import Manifest
from protocol.subspace.basis_file import Bases
from sfnode.doctor.memory_plan import plan_memory
from sfnode.training import allocator, shared_model
from sfnode.training.bench.peak_memory import process_bytes
from sfnode.training.bench.synthetic_models import BenchBasis, bench_bases, some_coefficients
from sfnode.training.model import quantised
from sfnode.training.model.folding import is_quantised
from sfnode.training.model.quantised import Correction, Weight, closed_weights, load_in
from sfnode.training.shared_model import SharedModel
from tests.support.quantised_models import HAS_TORCHAO

CPU: Final = torch.device("cpu")
needs_torchao = pytest.mark.skipif(not HAS_TORCHAO, reason="torchao is not installed: pip install -e '.[quantised]'")
says_memory = pytest.mark.skipif(process_bytes() is None, reason="this system does not say what a process takes")
DTYPES: Final = ["fp32", "bf16", pytest.param("int8", marks=needs_torchao)]
WITHIN: Final = 0.15


def manifest_of(shape: str, size: tuple[int, int]) -> Manifest:
    return bench_bases(shape_tensors(shape), BenchBasis.RANDOM, size=size).manifest


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterable[Path]:
    with random_files("opt-tiny") as folder:
        yield folder


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_plan__weights_bases_and_closed_epochs__are_what_a_worker_holds(dtype: str, tiny: Path) -> None:
    manifest = manifest_of("opt-tiny", (4, 8))
    plan, bases = plan_memory(manifest, tiny, dtype), Bases(manifest)
    shared = SharedModel(load_in(dtype, tiny, CPU))
    assert plan.weights == pytest.approx(size_of(shared.switch.base.values()), rel=0.01)
    held = [part for epoch in (0, 1) for pair in shared.bases(bases, epoch) for part in pair if part is not None]
    assert plan.bases == pytest.approx(size_of(held), rel=0.05)
    closed = closed_weights(bases, {0: some_coefficients(manifest, 0)}, shared.switch.base)
    assert plan.closed == size_of(closed.values())
    assert plan.load_peak > plan.weights and plan.training_peak > plan.weights + plan.bases + plan.closed


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_plan__dense_core__bases_are_what_a_worker_holds(dtype: str, tiny: Path) -> None:
    bases = bench_bases(shape_tensors("opt-tiny"), BenchBasis.DENSE, size=(4, 8))
    plan, shared = plan_memory(bases.manifest, tiny, dtype), SharedModel(load_in(dtype, tiny, CPU))
    held = [part for epoch in (0, 1) for pair in shared.bases(bases, epoch) for part in pair if part is not None]
    assert plan.bases == pytest.approx(size_of(held[: len(held) // 2]), rel=0.05)  # all steps have one
    assert plan.closed == 0 and len({id(part) for part in held}) == len(held) // 2


def test_loading__is_over__what_is_free_was_given_back_and_from_now_on_is_kept(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(allocator, "_set", lambda options: done.append(f"maps {options[allocator._MMAP_MAX]} times"))
    monkeypatch.setattr(allocator, "trim", lambda: done.append("gives back"))

    def load(precision: str, folder: Path, device: torch.device, limit: int | None) -> PreTrainedModel:
        done.append("loads")
        return load_in(precision, folder, device, limit)

    monkeypatch.setattr(quantised, "load_in", load)
    shared_model.load_shared("bf16", tiny, CPU)
    assert done == ["maps 65536 times", "loads", "gives back", "maps 0 times"]
    shared_model.load_shared("bf16", tiny, CPU, 1_000)  # memory is short
    assert done[4:] == ["maps 65536 times", "loads", "gives back"]


def size_of(weights: Iterable[Weight]) -> int:
    return sum(part.nbytes for weight in weights for part in parts(weight))


def parts(weight: Weight) -> tuple[Tensor, ...]:
    if isinstance(weight, Correction):
        return weight.left, weight.right
    return (weight.qdata, weight.scale) if is_quantised(weight) else (weight,)  # type: ignore[attr-defined]  # torchao's


@says_memory
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_plan__shape_of_opt_125m__is_what_a_process_takes(dtype: str) -> None:
    """A fault once: int8 took as much as bf16 when it was loaded, and kept it."""
    size = (16, 64)
    with random_files("opt-125m") as folder:
        plan = plan_memory(manifest_of("opt-125m", size), folder, dtype)
        found = worker_peaks(folder, "opt-125m", size, dtype)
    program = found["program"]
    # Without the program, which is most of it here
    assert plan.load_peak - program == pytest.approx(found["load_peak"] - program, rel=WITHIN)
    assert plan.training_peak - program == pytest.approx(found["training_peak"] - program, rel=WITHIN)
    assert found["loaded"] - program < plan.weights + (48 << 20)  # nothing of the reading is left


@says_memory
@pytest.mark.slow
def test_bench_memory__tiny_shape__reports_plan_and_measurement() -> None:
    told: dict[str, Any] = bench_memory("opt-tiny", size=(4, 8), dtype="fp32", basis=BenchBasis.DENSE)
    for peak in ("load_peak", "training_peak"):
        assert told["ratio"][peak] == pytest.approx(told["planned"][peak] / told["measured"][peak])
        assert told["measured"][peak] > told["program"] > 100 << 20
