"""Measurements of the protocol: `python -m benchmarks.NAME` from the repository's root. No test, and not installed."""
