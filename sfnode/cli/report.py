"""``sfnode report``: write the page of a run as one file."""

from pathlib import Path

import click

from sfnode.cli.value_types import DataFolder, NewFilePath
from sfnode.page import write_report
from sfnode.reporter import counting
from sfnode.storage import DataDirectory


@click.command()
@click.argument("data_dir", metavar="DIR", type=DataFolder)
@click.option("--out", type=NewFilePath, required=True, help="Write the page to this file, which must not exist yet.")
def report(data_dir: DataDirectory, out: Path) -> None:
    """Write a page about a run as one file that any browser shows.

    DIR is a node's data directory. Every update in it is verified first. The file needs no node and no network, and
    holds no secret: names, addresses of peers and keys of authors are in it as others of the run see them. In a run
    that learns from rewards it also holds what the model answers to this node's first three held-out prompts.

    \b
    Example: sfnode report ~/.sfnode/my-run-0123456789ab --out run.html
    """
    with counting("verifying the ledger", "updates") as report:
        replica = write_report(data_dir, out, report)
    click.echo(f"{out}: {replica.ledger.updates:,} updates verified, state digest {replica.state_digest().hex()}")
