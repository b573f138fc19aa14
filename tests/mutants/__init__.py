"""Deliberate bugs of the real core, each of which must be caught: that is how we know that our checks can fail.

`python -m tests.mutants` runs all of them.
"""
