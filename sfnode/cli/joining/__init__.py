"""Door: `run_node`. Run a node with all that watches it: signals, requests to stop, page, metrics, how it ended."""

from sfnode.cli.joining.node_run import run_node
