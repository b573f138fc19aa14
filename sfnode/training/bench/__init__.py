"""Doors: `bench_step`, `worker_peaks`: how fast this machine trains a model, and what memory that takes.

`sfnode bench` calls these; docs/bench.md explains each figure. Models have published shapes and random weights, so
nothing is downloaded. No state of a run ever comes from here.
"""

from sfnode.training.bench import memory as memory, subjects as subjects, timing as timing
from sfnode.training.bench.memory import random_files as random_files, worker_peaks as worker_peaks
from sfnode.training.bench.step_cost import bench_step as bench_step
from sfnode.training.bench.subjects import BenchBasis as BenchBasis
