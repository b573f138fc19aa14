"""Door: `Daemon`. The running node: one task owns the core, all else feeds it or carries out what it asks for."""

from sfnode.node.daemon import Daemon
from sfnode.node.inbox import open_inbox
from sfnode.node.model_fetcher import ModelFetcher
from sfnode.node.preparation import prepare

__all__ = [
    "Daemon",
    "ModelFetcher",
    "open_inbox",
    "prepare",
]
