"""``sfnode report``: write the page of a run as one file, or as a folder with the whole run."""

from pathlib import Path

import click

from protocol.errors import OperatorError
from sfnode.cli.option_values import NewFilePath
from sfnode.cli.options import node_option
from sfnode.page import publish_run, write_report
from sfnode.reporter import counting
from sfnode.storage import DataDirectory


@click.command()
@node_option
@click.option("--out", type=NewFilePath, help="Write the page to this file, which must not exist yet.")
@click.option(
    "--publish",
    type=NewFilePath,
    metavar="FOLDER",
    help="Make this folder for any web space instead: the page, and the whole run in a file that proves it.",
)
def report(data_dir: DataDirectory, out: Path | None, publish: Path | None) -> None:
    """Write a page about a run as one file that any browser shows.

    Every update in it is verified first. The file needs no node and no network, and
    holds no secret: names, addresses of peers and keys of authors are in it as others of the run see them. Held-out
    rows, with the model's answers, are in it only if they came with the task, or by `sfnode eval --show-rows`.

    \b
    Example: sfnode report my-run --out run.html
    """
    place = publish or out
    if place is None or (publish and out):
        raise OperatorError("give either --out FILE, for one page, or --publish FOLDER, for a page with the whole run")
    with counting("verifying the ledger", "updates") as report:
        replica = (publish_run if publish else write_report)(data_dir, place, report)
    click.echo(f"{place}: {replica.ledger.updates:,} updates verified, state digest {replica.state_digest().hex()}")
