"""Door: `run_node`. Run a node with all that watches it: signals, requests to stop, page, metrics, how it ended."""

from typing import TYPE_CHECKING

from sfnode.lazy_faces import lazy_face

if TYPE_CHECKING:
    from sfnode.cli.joining.node_run import run_node
else:
    __getattr__, __dir__ = lazy_face(__name__, __file__)
