"""Imports torchao as a worker with quantised weights does: a process of its own, run as a module."""

from sfnode.training.model import quantised

quantised._library()
