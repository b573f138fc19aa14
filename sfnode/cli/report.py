"""``sfnode report``: write the page of a run as one file."""

from pathlib import Path

import click

from sfnode.cli.options import node_option
from sfnode.cli.value_types import NewFilePath
from sfnode.page import write_report
from sfnode.reporter import counting
from sfnode.storage import DataDirectory


@click.command()
@node_option
@click.option("--out", type=NewFilePath, required=True, help="Write the page to this file, which must not exist yet.")
def report(data_dir: DataDirectory, out: Path) -> None:
    """Write a page about a run, finished or not, as one file that any browser shows.

    Every update in it is verified first. The file needs no node and no network, and
    holds no secret: names, addresses of peers and keys of authors are in it as others of the run see them. In a run
    that learns from rewards it also holds what the model answers to this node's first three held-out prompts.

    \b
    Example: sfnode report my-run --out run.html
    """
    with counting("verifying the ledger", "updates") as report:
        replica = write_report(data_dir, out, report)
    click.echo(f"{out}: {replica.ledger.updates:,} updates verified, state digest {replica.state_digest().hex()}")
