"""Doors: `join`, `start`, `config`. Run a node and remember its options."""

from sfnode.cli.joining.config_command import config
from sfnode.cli.joining.join_command import join
from sfnode.cli.joining.settings import given_settings, recall
from sfnode.cli.joining.start_command import start

__all__ = ["config", "given_settings", "join", "recall", "start"]
