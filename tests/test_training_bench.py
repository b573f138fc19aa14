"""The benchmarks run and report every figure; what the figures are is for a quiet machine to say."""

from __future__ import annotations

import pytest
import torch

from protocol.errors import OperatorError
from sfnode.training.bench import bench_apply, bench_step
from sfnode.training.mezo import mezo_step


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_bench_step__tiny_shape__reports_ratios(dtype: str) -> None:
    found = bench_step("opt-tiny", rows=4, tokens=8, dtype=dtype, repeats=2, device="cpu")
    for name in ("ratio_to_forward", "ratio_to_full_forward", "ratio_to_mezo"):
        ratio = found[name]
        assert isinstance(ratio, float)
        assert ratio > 0


def test_bench_apply__tiny_shape__reports_seconds_and_ratio() -> None:
    found = bench_apply("opt-tiny", updates=64, device="cpu")
    assert isinstance(found["seconds"], float)
    assert isinstance(found["ratio_to_dense"], float)
    assert found["updates"] == 64


def test_bench__unknown_shape__is_refused() -> None:
    with pytest.raises(OperatorError, match="shape 'opt-9b': known are"):
        bench_step("opt-9b", rows=4, tokens=8, dtype="fp32")


def test_mezo__quadratic_loss__goes_down() -> None:
    weight = torch.full((4, 4), 2.0)
    for seed in range(60):
        mezo_step([weight], lambda: weight.square().sum(), seed, 1e-3, 5e-3)
    assert weight.square().sum().item() < 32
