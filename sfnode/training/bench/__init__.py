"""Doors: `bench_step` and `bench_answer`: how fast this machine trains a model, and the memory of a step.

`sfnode bench` calls them; docs/bench.md explains each figure. Models have published shapes and random weights, so
nothing is downloaded. No state of a run ever comes from here.
"""

from sfnode.training.bench import peak_memory, synthetic_models, timing
from sfnode.training.bench.answer_cost import AnswerSize, bench_answer
from sfnode.training.bench.step_cost import bench_step
from sfnode.training.bench.synthetic_models import BenchBasis
