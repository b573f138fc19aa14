"""Doors: `bench_step`, `bench_answer`: how fast this machine trains a model of a published shape.

`sfnode bench` and benchmarks/ call these; docs/bench.md explains each figure. Models have random weights, so nothing is
downloaded. No state of a run ever comes from here.
"""

from sfnode.training.bench import synthetic_models, timing
from sfnode.training.bench.answer_cost import AnswerSize, bench_answer
from sfnode.training.bench.step_cost import bench_step
from sfnode.training.bench.synthetic_models import BenchBasis
