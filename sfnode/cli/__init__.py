"""Door: `main`. The command line, ``sfnode COMMAND``: each command lives in the module that has its name."""

import sys

import click

from sfnode import __version__
from sfnode.cli import exit_codes
from sfnode.cli.ask import ask
from sfnode.cli.audit import audit
from sfnode.cli.bench import bench
from sfnode.cli.config import config
from sfnode.cli.doctor import doctor
from sfnode.cli.eval import evaluate
from sfnode.cli.export import export
from sfnode.cli.forget import forget
from sfnode.cli.id import identity
from sfnode.cli.init import init
from sfnode.cli.join import join
from sfnode.cli.list import list_nodes
from sfnode.cli.log import log
from sfnode.cli.pause import pause, resume
from sfnode.cli.report import report
from sfnode.cli.run import run_group
from sfnode.cli.sectioned_help import SectionedGroup
from sfnode.cli.start import start
from sfnode.cli.status import status
from sfnode.cli.stop import stop
from sfnode.cli.testnet import testnet
from sfnode.cli.top import top

__all__ = ["main"]


@click.group(
    cls=SectionedGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=exit_codes.EXIT_TABLE,
)
@click.version_option(__version__, prog_name="sfnode")
def cli() -> None:
    """Fine-tune one language model together, with forward passes only and a few signed bytes per step.

    \b
    Try it on this machine:   sfnode testnet
    Join a run:               sfnode join -        (it asks for the string that the owner sent you)
    Your nodes:               sfnode list
    Start a run of your own:  sfnode init          (it asks for what it needs)
    """


cli.set_sections(
    {
        "Join a run": (join, start, pause, resume, stop, config, forget),
        "Start a run of your own": (init, run_group),
        "Look at it": (list_nodes, status, top, log, report),
        "Use the model": (ask, evaluate, export),
        "Check and measure": (testnet, doctor, bench, audit, identity),
    }
)


def main() -> None:
    """Run the command line, then leave the process with its exit code."""
    with exit_codes.ending():
        code = cli.main(standalone_mode=not exit_codes.wants_json())
        sys.exit(code)
