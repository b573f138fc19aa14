"""The paper's experiments at a scale that two cores can bear, its rivals beside ours: python -m benchmarks.paper."""
