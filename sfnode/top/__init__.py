"""Door: `show`. The live view of nodes on this machine: `sfnode top`."""

from sfnode.top.live_view import show
