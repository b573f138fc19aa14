"""Door: `show`. The live view of nodes on this machine: `sfnode top`."""

from sfnode.top.live_view import Viewing, show
from sfnode.top.node_view import NodeView, look

__all__ = ["NodeView", "Viewing", "look", "show"]
