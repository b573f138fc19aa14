"""Door: `show`. What is held of a run: what it is, what its owner has said, who has contributed what."""

from sfnode.cli.showing.show_command import show

__all__ = ["show"]
