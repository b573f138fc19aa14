"""make attacks: python -m tests.attacks [--short] [--only NAME]"""

from __future__ import annotations

import sys

import click

from tests.attacks.catalogue import ATTACKS
from tests.netlab.tables import table

HEADER = ("attack", "before", "during", "after", "the attacker paid", "must be", "held")


@click.command()
@click.option("--only", type=click.Choice(list(ATTACKS)), help="Run this one.  [default: all]")
@click.option("--short", "is_short", is_flag=True, help="Let each attack last seconds.")
def main(only: str | None, is_short: bool) -> None:
    """Run each attack against live nodes on this machine; exit code 1 if one of them works."""
    rows = []
    for name in [only] if only else list(ATTACKS):
        click.echo(f"==> {name}: {(ATTACKS[name].__doc__ or '').splitlines()[0]}", err=True)
        found = ATTACKS[name](is_short)
        verdict = "yes" if found.is_held else "NO"
        rows.append((name, found.before, found.during, found.after, found.attacker, found.bound, verdict))
        click.echo(f"    held: {verdict}", err=True)  # the table comes in minutes
    click.echo(table(HEADER, rows))
    sys.exit(0 if all(row[-1] == "yes" for row in rows) else 1)


if __name__ == "__main__":
    main()
