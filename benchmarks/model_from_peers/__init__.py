"""What it costs to get a model's files from neighbours: ``python -m benchmarks.model_from_peers``."""
