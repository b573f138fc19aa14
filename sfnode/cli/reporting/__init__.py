"""Door: `report`. What a run has come to, for people who have no sfnode."""

from sfnode.cli.reporting.report_command import report

__all__ = ["report"]
