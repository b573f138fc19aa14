"""Doors: `ExitCode`, `ending`. How a command ends: its exit code and its error text."""

from sfnode.cli.exits import failures as failures
from sfnode.cli.exits.exit_codes import MEANINGS as MEANINGS, ExitCode as ExitCode, exit_table as exit_table
