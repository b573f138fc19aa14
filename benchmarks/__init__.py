"""Measurements of the protocol: `python -m benchmarks.NAME` from the repository's root. No test, and not installed."""

import sfnode.training  # noqa: F401  before transformers, which imports torchao, for a second, unless this hides it
