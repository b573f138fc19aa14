"""A deterministic simulation of a whole network of real node cores, which tries to break it.

`python -m tests.simulation --seed N` runs one seed.
"""
