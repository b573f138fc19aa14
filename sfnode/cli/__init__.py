"""Door: `main`. The command line, ``sfnode COMMAND``: each command lives in the module that has its name."""

import sys

import click

from sfnode import __version__
from sfnode.cli import exit_codes
from sfnode.cli.sectioned_help import SectionedGroup

__all__ = ["main"]


@click.group(
    cls=SectionedGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=exit_codes.EXIT_TABLE,
    sections={
        "Join a run": ("join", "start", "pause", "resume", "stop", "config", "forget"),
        "Start a run of your own": ("init", "run"),
        "Look at it": ("list", "status", "top", "log", "report"),
        "Use the model": ("ask", "eval", "export"),
        "Check and measure": ("testnet", "doctor", "bench", "audit", "id"),
    },
)
@click.version_option(__version__, prog_name="sfnode")
def cli() -> None:
    """Fine-tune one language model together, with forward passes only and short signed messages.

    \b
    Try it on this machine:   sfnode testnet
    Join a run:               sfnode join -        (it asks for the string that the owner sent you)
    Your nodes:               sfnode list
    Start a run of your own:  sfnode init          (it asks for what it needs)
    """


def main() -> None:
    """Run the command line, then leave the process with its exit code."""
    with exit_codes.ending():
        code = cli.main(standalone_mode=not exit_codes.wants_json())
        sys.exit(code)
