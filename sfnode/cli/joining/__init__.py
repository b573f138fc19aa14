"""Door: `join`. The commands that run a node."""

from sfnode.cli.joining.join import join

__all__ = ["join"]
