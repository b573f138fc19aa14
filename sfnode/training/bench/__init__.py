"""Doors: `bench_step`, `worker_peaks`: how fast this machine trains a model, and what memory that takes.

`sfnode bench` calls these; docs/bench.md explains each figure. Models have published shapes and random weights, so
nothing is downloaded. No state of a run ever comes from here.
"""

from sfnode.training.bench.memory import random_files, worker_peaks
from sfnode.training.bench.references import forward_twice, perturb
from sfnode.training.bench.step_cost import bench_step
from sfnode.training.bench.subjects import (
    SHAPES,
    BenchBasis,
    bench_bases,
    bench_manifest,
    random_data,
    random_model,
    shape_tensors,
    shared_copy,
    some_coefficients,
)
from sfnode.training.bench.timing import Times, paired_ratio, peak_bytes, process_bytes, reset_peak, timed_in_turn

__all__ = [
    "SHAPES",
    "BenchBasis",
    "Times",
    "bench_bases",
    "bench_manifest",
    "bench_step",
    "forward_twice",
    "paired_ratio",
    "peak_bytes",
    "perturb",
    "process_bytes",
    "random_data",
    "random_files",
    "random_model",
    "reset_peak",
    "shape_tensors",
    "shared_copy",
    "some_coefficients",
    "timed_in_turn",
    "worker_peaks",
]
