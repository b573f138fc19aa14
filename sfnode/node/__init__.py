"""Door: `Daemon`. The running node: one task owns the core, all else feeds it or carries out what it asks for."""

from sfnode.node.daemon import Daemon
from sfnode.node.inbox import open_inbox
from sfnode.node.model_fetcher import ModelFetcher
from sfnode.node.preparation import prepare
from sfnode.node.status_file import Status, describe_memory, own_admission, read_status

__all__ = [
    "Daemon",
    "ModelFetcher",
    "Status",
    "describe_memory",
    "open_inbox",
    "own_admission",
    "prepare",
    "read_status",
]
