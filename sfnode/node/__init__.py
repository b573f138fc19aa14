"""Door: `Daemon`. The running node: one task owns the core; all others feed it events or carry out its effects."""

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
