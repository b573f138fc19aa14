"""Figure 5 and table 4 of the paper: what is measured is complete, and what the tables say follows from it."""

from __future__ import annotations

import pytest
import torch

from benchmarks.paper.apply_time import PAPER, SEVERAL, ApplyTime, apply_times, cpu_seconds
from benchmarks.paper.figures import apply_part, picture, split_part
from benchmarks.paper.step_split import StepSplit, bases_by_method, split_of
from sfnode.training.bench.synthetic_models import random_model

APPLIED = ApplyTime(
    shape="opt-125m",
    method=PAPER,
    tensors=72,
    weights=1_000,
    seconds={1: 0.001, 1_000: 0.003},
    rebuilt_seconds=0.5,
    fold_seconds=0.247,
)
SPLIT = StepSplit(model="m", method="a", passes=0.6, estimate=0.3, signing=0.0001, receiving=0.0009, summing=0.099)


def test_apply_times__tiny_shape__both_methods_with_all_counts() -> None:
    found = apply_times("opt-tiny", counts=(1, 8), repeats=1)
    assert [each.method for each in found] == [PAPER, SEVERAL]
    for each in found:
        assert each.tensors == 12 and list(each.seconds) == [1, 8]
        assert min(*each.seconds.values(), each.rebuilt_seconds, each.fold_seconds) > 0


def test_cpu_seconds__any_action__leaves_torch_its_threads_and_runs_once_more_than_it_times() -> None:
    threads, runs = torch.get_num_threads(), []
    found = cpu_seconds({"a": lambda: runs.append(torch.get_num_threads())}, repeats=2)
    assert runs == [1, 1, 1] and list(found) == ["a"] and torch.get_num_threads() == threads


def test_apply_part__one_shape__ratio_counts_the_fold() -> None:
    assert APPLIED.ratio(1_000) == pytest.approx(2_000)
    row = apply_part([APPLIED])[-1]
    assert row.split(" | ")[1:] == ["1 ms", "3 ms", "247 ms", "500 s", "2,000 |"]
    assert "opt-125m: rebuilt" in picture([APPLIED])


def test_split_of__tiny_model__every_part_is_measured_and_the_shares_make_a_step() -> None:
    model = random_model("opt-tiny", torch.device("cpu"), torch.float32)
    modules = [type(module) for module in model.modules()]
    found = [split_of(model, "tiny", *each, repeats=1) for each in bases_by_method(model, rows=8, tokens=8).items()]
    assert len(found) == 2
    for each in found:
        assert min(each.passes, each.signing, each.receiving, each.summing) > 0
        assert each.total == pytest.approx(sum(each.parts.values())) and len(each.parts) == 5
    assert [type(module) for module in model.modules()] == modules  # measured on a copy


def test_split_part__known_seconds__shares_of_the_whole() -> None:
    assert SPLIT.total == pytest.approx(1.0)
    cells = split_part([SPLIT])[-1].split(" | ")
    assert cells[1:] == [
        "1 s",
        "600 ms (60.0 %)",
        "300 ms (30.0 %)",
        "100 us (0.0 %)",
        "900 us (0.1 %)",
        "99 ms (9.9 %) |",
    ]
