"""What parts of a node's work cost: every figure is reported; what the figures are is for a quiet machine to say."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from benchmarks.costs.__main__ import main
from benchmarks.costs.apply_cost import bench_apply
from benchmarks.costs.audit_cost import bench_audit
from benchmarks.costs.replay_cost import bench_replay
from benchmarks.costs.view_cost import bench_view, naive_merge
from benchmarks.sample_runs import verified_envelopes, weights_of
from benchmarks.shapes import shape_tensors
from protocol.run.method import CoreKind
from protocol.subspace.basis_file import Bases
from sfnode.training.bench.synthetic_models import bench_manifest, some_coefficients
from sfnode.training.model.folding import fold_weights


@pytest.mark.parametrize("core", [CoreKind.CANONICAL, CoreKind.RADEMACHER])
def test_bench_apply__updates__are_those_of_the_core_and_in_bounds(core: CoreKind) -> None:
    manifest = bench_manifest(shape_tensors("opt-tiny"), core=core)
    envelopes = verified_envelopes(manifest, 2_500)
    assert len({envelope.seed for envelope in envelopes}) == 2_500
    assert max(abs(scalar) for envelope in envelopes for scalar in envelope.scalars) == manifest.method.clip
    assert {len(envelope.scalars) for envelope in envelopes} == {manifest.method.directions}


def test_bench_apply__tiny_shape__reports_both_kinds_of_directions() -> None:
    found = bench_apply("opt-tiny", updates=64, device="cpu", repeats=1)
    assert isinstance(found["seconds"], float)
    assert isinstance(found["ratio_to_dense"], float)
    assert found["updates"] == 64
    eight = found["rademacher_8"]
    assert isinstance(eight, dict)
    assert eight["directions"] == 8
    assert eight["ratio_to_dense"] > 1


def test_bench_audit__tiny_shape__honest_dtypes_are_nearer_than_strangers() -> None:
    found = bench_audit("opt-tiny", rows=8, tokens=8, dtype="fp32", other_dtype="bf16", device="cpu")
    assert 0 < found.deviation_of_dtypes < 0.5 < 1 < found.deviation_of_strangers
    assert found.seconds > 0 and found.ratio_to_step > 0


def test_bench_view__tiny_shape__reports_figures() -> None:
    found = bench_view("opt-tiny", epochs=2, device="cpu", repeats=1)
    for name in ("seconds", "ratio_to_naive", "gflop_per_second"):
        figure = found[name]
        assert isinstance(figure, float)
        assert figure > 0
    assert found["weights"] == weights_of(shape_tensors("opt-tiny"))


def test_bench_view__naive_merge__is_the_view_but_for_rounding() -> None:
    manifest = bench_manifest(shape_tensors("opt-tiny"))
    base = {tensor.name: torch.full((tensor.rows, tensor.cols), 0.1) for tensor in manifest.tensors}
    cores = {epoch: 10_000 * some_coefficients(manifest, epoch) for epoch in (0, 1)}
    exact, naive = fold_weights(Bases(manifest), cores, base), naive_merge(Bases(manifest), cores, base)
    assert max((exact[name] - base[name]).abs().max().item() for name in exact) > 0.1
    assert all(torch.allclose(exact[name], naive[name], rtol=0, atol=1e-5) for name in exact)
    assert any(not torch.equal(exact[name], naive[name]) for name in exact)


def test_bench_replay__few_updates__parts_make_the_whole() -> None:
    found = bench_replay("opt-tiny", updates=120, repeats=1)
    assert sum(found.seconds.values()) == pytest.approx(found.seconds_total)
    assert found.updates_per_second > 0
    assert found.ratio_to_signatures > 1
    assert bench_replay("opt-tiny", updates=120, repeats=1).state_digest == found.state_digest


def test_costs__each_command__says_what_it_found_as_json() -> None:
    for command in ("apply --updates 8", "view", "replay --updates 60", "audit --rows 4 --tokens 8"):
        done = CliRunner().invoke(main, [*command.split(), "--shape", "opt-tiny"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["shape"] == "opt-tiny"
