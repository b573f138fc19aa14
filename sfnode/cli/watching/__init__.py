"""Door: `top`. The command that shows nodes live."""

from sfnode.cli.watching.top_command import top

__all__ = ["top"]
