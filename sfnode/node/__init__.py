"""Doors: `Daemon`, `Life`. The running node: one task owns the core; all others feed it or carry out its effects."""

from sfnode.node.daemon import Daemon
from sfnode.node.event_inbox import open_inbox
from sfnode.node.join_preparation import prepare
from sfnode.node.life import Life
from sfnode.node.model_fetcher import ModelFetcher
