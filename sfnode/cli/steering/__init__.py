"""Doors: `pause`, `resume`, `stop`. What an operator says to a node that runs."""

from sfnode.cli.steering.steer_commands import pause, resume, stop

__all__ = ["pause", "resume", "stop"]
