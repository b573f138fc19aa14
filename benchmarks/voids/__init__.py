"""What records for old slots cost a node: ``python -m benchmarks.voids``."""
