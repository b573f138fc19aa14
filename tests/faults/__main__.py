"""make faults: python -m tests.faults [--plans N] [--at PART] [--at-once N] [--state FILE] [--repeat LINE]

With --put-back NAME a fault that was mended is there again, and the search ends when it has found it.

Exit code 1 when a node ended outside the closed list, did not go on, signed twice, or held another state than others.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import click

from tests.faults.instrument import SITES, install
from tests.faults.points import Fault, Points

POINTS: Final = Points()
install(POINTS.at_await, POINTS.at_call, POINTS.at_entry)

from sfnode.storage.disk import write_durably  # noqa: E402 - these import what is searched
from tests.faults.put_back import PUT_BACK  # noqa: E402
from tests.faults.search import Tally, drawn, repeated, search  # noqa: E402
from tests.mutants.patch import switched_on  # noqa: E402


@click.command()
@click.option("--plans", default=1_000, show_default=True, help="How many plans to carry out.")
@click.option("--first", default=0, show_default=True, help="The seed of the first plan.")
@click.option("--state", type=click.Path(path_type=Path), help="Go on where this file says, and keep it up to date.")
@click.option("--repeat", "lines", multiple=True, help="Carry out this fault, as a finding names it; may be repeated.")
@click.option("--at", "part", default="", help="Strike only at points with this in their names.")
@click.option("--at-once", default=1, show_default=True, help="Let this many faults strike together.")
@click.option("--put-back", type=click.Choice(sorted(PUT_BACK)), help="Search with this mended fault put back.")
def main(
    plans: int, first: int, state: Path | None, lines: tuple[str, ...], part: str, put_back: str | None, at_once: int
) -> None:
    """Let faults strike real daemons, and look whether they go on."""
    held = json.loads(state.read_text()) if state is not None and state.exists() else {"next": first, "struck": 0}
    tally, started_s, done = Tally(), time.monotonic(), held["next"]

    def faults() -> Iterator[Callable[[], Fault]]:
        if lines:
            yield from (partial(repeated, line) for line in lines)
            return
        for seed in range(held["next"], held["next"] + plans):
            if put_back and tally.findings:
                return
            yield partial(drawn, seed, POINTS, part)

    def on_plans(count: int) -> None:
        nonlocal done
        done += count
        if state is not None:
            write_durably(state, json.dumps({"next": done, "struck": held["struck"] + tally.struck}).encode())

    with switched_on(PUT_BACK[put_back] if put_back else ()):
        search(POINTS, faults(), tally, on_plans, at_once=at_once)
    seconds = time.monotonic() - started_s
    modes = ", ".join(f"{count} {mode}" for mode, count in sorted(tally.modes.items()))
    click.echo(
        f"{tally.struck} faults struck ({modes}) at {len(tally.sites)} of {len(POINTS.reached)} points that were "
        f"reached, of {len(SITES)}; {tally.missed} missed; {3_600 * tally.struck / seconds:,.0f} an hour; "
        f"{tally.findings} found"
    )
    sys.exit(1 if tally.findings else 0)


if __name__ == "__main__":
    main()
