"""Doors: `ExitCode`, `ending`. How a command ends: its exit code and its error text."""

from sfnode.cli.exits.exit_codes import MEANINGS, ExitCode, exit_table
from sfnode.cli.exits.failures import ending, wants_json, warn

__all__ = ["MEANINGS", "ExitCode", "ending", "exit_table", "wants_json", "warn"]
