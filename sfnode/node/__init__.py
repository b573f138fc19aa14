"""Door: `Daemon`. The running node: one task owns the core; all others feed it events or carry out its effects."""

from sfnode.node.daemon import Daemon as Daemon
from sfnode.node.event_inbox import open_inbox as open_inbox
from sfnode.node.join_preparation import prepare as prepare
from sfnode.node.model_fetcher import ModelFetcher as ModelFetcher
