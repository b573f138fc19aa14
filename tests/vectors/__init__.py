"""Generators of the conformance vectors in ``protocol/vectors/``. Run ``tests/write_vectors.py`` to renew the files."""
