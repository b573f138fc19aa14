"""What a step, an apply, a view and a replay cost on this machine, always beside references run in the same process.

Behind `sfnode bench`; docs/bench.md says what each figure is. Models have the shape of a published one and random
weights, so nothing is downloaded. No state of a run ever comes from here.
"""
