"""Generators of the conformance vectors: ``python -m tests.vectors`` writes the files in ``protocol/vectors/``."""
