"""Doors: `join`, `start`, `config`. Run a node and remember its options."""

from sfnode.cli.joining.config import config
from sfnode.cli.joining.join import join
from sfnode.cli.joining.settings import given_settings, recall
from sfnode.cli.joining.start import start

__all__ = ["config", "given_settings", "join", "recall", "start"]
