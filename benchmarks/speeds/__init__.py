"""Machines of unequal speed in one run."""
