"""Door: `main`. The command line, ``sfnode COMMAND``: each command lives in the module that has its name."""

from __future__ import annotations

import sys

import click

from protocol.errors import SfnodeError
from sfnode import __version__
from sfnode.cli.ask import ask
from sfnode.cli.audit import audit
from sfnode.cli.basis import basis
from sfnode.cli.bench import bench
from sfnode.cli.doctor import doctor
from sfnode.cli.eval import evaluate
from sfnode.cli.export import export
from sfnode.cli.id import identity
from sfnode.cli.init import init
from sfnode.cli.joining import config, join, start
from sfnode.cli.log import log
from sfnode.cli.run import run_group
from sfnode.cli.status import status
from sfnode.cli.steering import pause, resume, stop
from sfnode.cli.testnet import testnet
from sfnode.reporter import printable

__all__ = ["main"]

EXIT_FAILED = 1


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="sfnode")
def cli() -> None:
    """Fine-tune one language model together, with forward passes only and a few signed bytes per step.

    \b
    Try it on this machine:   sfnode testnet --nodes 4 --steps 120
    Join a run:               sfnode join sfnode:6f1c...@/ip4/203.0.113.7/tcp/4001/p2p/12D3...
    Start a node again:       sfnode start --data-dir ~/.sfnode/my-run-0123456789ab
    Start a run of your own:  sfnode init --help
    """


for command in (
    init,
    run_group,
    join,
    start,
    pause,
    resume,
    stop,
    config,
    testnet,
    status,
    doctor,
    log,
    evaluate,
    ask,
    export,
    audit,
    basis,
    identity,
    bench,
):
    cli.add_command(command)


def main() -> None:
    """Entry point: an error of ours is one clear text and exit code 1; anything else is a bug, with its traceback."""
    try:
        cli()
    except SfnodeError as error:
        _fail([error])
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt):
            click.echo("Aborted!", err=True)  # as click says it when the interrupt comes alone
            sys.exit(EXIT_FAILED)
        ours, others = group.split(SfnodeError)
        if others is not None or ours is None:
            raise
        _fail(_leaves(ours))


def _leaves(group: BaseExceptionGroup[SfnodeError]) -> list[SfnodeError]:
    leaves: list[SfnodeError] = []
    for entry in group.exceptions:
        leaves.extend(_leaves(entry) if isinstance(entry, BaseExceptionGroup) else [entry])
    return leaves


def _fail(errors: list[SfnodeError]) -> None:
    for text in dict.fromkeys(str(error) for error in errors):
        click.echo(f"Error: {printable(text)}", err=True)
    sys.exit(EXIT_FAILED)
