"""Doors: `bench_step`, `bench_apply`, `bench_view`, `bench_replay`, `bench_audit`, `worker_peaks`: what each costs.

`sfnode bench` calls these; docs/bench.md explains each figure. Models have published shapes and random weights, so
nothing is downloaded. No state of a run ever comes from here.
"""

from sfnode.training.bench.apply_cost import bench_apply
from sfnode.training.bench.audit_cost import bench_audit
from sfnode.training.bench.mezo import perturb
from sfnode.training.bench.references import forward_twice
from sfnode.training.bench.replay_cost import bench_replay
from sfnode.training.bench.step_cost import bench_step
from sfnode.training.bench.subjects import (
    SHAPES,
    BenchBasis,
    bench_manifest,
    published,
    random_data,
    shape_tensors,
    shared_copy,
    some_coefficients,
    some_scalars,
    verified_envelopes,
    weights_of,
)
from sfnode.training.bench.view_cost import bench_view
from sfnode.training.bench.worker_memory import WorkerPeaks, random_files, run_of, worker_peaks

__all__ = [
    "BenchBasis",
    "SHAPES",
    "WorkerPeaks",
    "bench_apply",
    "bench_audit",
    "bench_manifest",
    "bench_replay",
    "bench_step",
    "bench_view",
    "forward_twice",
    "perturb",
    "published",
    "random_data",
    "random_files",
    "run_of",
    "shape_tensors",
    "shared_copy",
    "some_coefficients",
    "some_scalars",
    "verified_envelopes",
    "weights_of",
    "worker_peaks",
]
