"""The command line of the laboratory: scenarios, chaos, soak, flood."""

from __future__ import annotations

import signal
import sys
import time
from typing import NoReturn

import click

from benchmarks.graphs import random_of_degree, ring
from benchmarks.measures import say
from tests.netlab.chaos import chaos as run_chaos
from tests.netlab.flood import LATENCY_HEADER, THROUGHPUT_HEADER, latency, throughput
from tests.netlab.invariants import BrokenInvariantError
from tests.netlab.joins import joins as run_joins
from tests.netlab.laboratory import Laboratory
from tests.netlab.namespaces import why_no_nat, why_not_here
from tests.netlab.scenarios import NEED_NAT, SCENARIOS
from tests.netlab.soak import soak as run_soak
from tests.netlab.tables import table

_IDLE_RATE = 2.0  # updates per second: each travels alone


@click.group()
def main() -> None:
    """Real sfnode processes in network namespaces, broken on purpose. Needs root on Linux."""
    signal.signal(signal.SIGTERM, _stop)  # as Ctrl-C: what was made is removed on the way out
    reason = why_not_here()
    if reason is not None:
        say(f"cannot run: {reason}")
        sys.exit(2)


@main.command()
@click.option("--scenario", "only", type=click.Choice(list(SCENARIOS)), help="This one.  [default: all]")
@click.option("--short", "is_short", is_flag=True, help="Faults last seconds instead of minutes.")
def scenarios(only: str | None, is_short: bool) -> None:
    """Run scenarios; what must hold after each is in its first line."""
    rows: list[tuple[str, ...]] = []
    for name in [only] if only else list(SCENARIOS):
        say(f"==> {name}: {(SCENARIOS[name].__doc__ or '').splitlines()[0]}")
        rows.append(_run(name, is_short=is_short))
        say(f"    {rows[-1][1]}, {rows[-1][2]} s; {rows[-1][3]}")
    click.echo(table(("scenario", "verdict", "seconds", "figures"), rows))
    failed = sum(row[1] == "FAILED" for row in rows)
    click.echo(f"{len(rows)} scenarios, {failed} failed")
    sys.exit(1 if failed else 0)


@main.command()
@click.option("--minutes", default=5.0, show_default=True)
@click.option("--seed", default=1, show_default=True, help="Which faults in which order.")
def chaos(minutes: float, seed: int) -> None:
    """Kill, freeze, split, join among liars; demand agreement after each round."""
    sys.exit(run_chaos(minutes, seed))


@main.command()
@click.option("--minutes", default=60.0, show_default=True)
def soak(minutes: float) -> None:
    """Relays at 50 updates a second with churn: memory and descriptors must not grow."""
    sys.exit(run_soak(minutes))


@main.command()
@click.option("--times", default=100, show_default=True)
@click.option("--updates", default=10_000, show_default=True, help="That the run has when the first one joins.")
def joins(times: int, updates: int) -> None:
    """Fresh nodes join a running network, one after the other; each must contribute within 10 s."""
    sys.exit(run_joins(times, updates))


@main.command()
@click.option("--nodes", default=32, show_default=True, help="Of the latency rows.")
@click.option("--updates", default=200, show_default=True, help="Of each latency row.")
@click.option("--many", default=50, show_default=True, help="Nodes of the throughput rows.")
@click.option("--rate", "rates", default=(200.0,), show_default=True, multiple=True, help="Updates per second.")
@click.option("--seconds", default=30.0, show_default=True, help="Of each throughput row.")
@click.option("--training", is_flag=True, help="All nodes of the latency rows train the embedded model meanwhile.")
def flood(nodes: int, updates: int, many: int, rates: tuple[float, ...], seconds: float, training: bool) -> None:
    """Time, bytes and CPU of an update that reaches all; whether many nodes hold a rate (if not: exit code 1)."""
    graphs = (("random, degree 4", random_of_degree(4)), ("ring", ring))
    if nodes:
        rows = [
            latency(name, build(nodes), nodes, updates=updates, rate=_IDLE_RATE, is_training=training)
            for name, build in graphs
        ]
        click.echo(table(LATENCY_HEADER, rows))
    if many:
        results = [throughput(random_of_degree(4)(many), many, rate=rate, seconds=seconds) for rate in rates]
        click.echo(table(THROUGHPUT_HEADER, [row for row, _ in results]))
        sys.exit(0 if all(is_held for _, is_held in results) else 1)


def _run(name: str, *, is_short: bool) -> tuple[str, str, str, str]:
    """One row of the table."""
    missing = why_no_nat() if name in NEED_NAT else None
    if missing is not None:
        return name, "SKIPPED", "0", missing
    started = time.monotonic()
    laboratory = Laboratory()
    try:
        with laboratory:
            SCENARIOS[name](laboratory, is_short)
        verdict = "ok"
    except BrokenInvariantError as error:
        laboratory.figures["because"] = str(error)
        verdict = "FAILED"
    said = ", ".join(f"{key} {value}" for key, value in laboratory.figures.items())
    return name, verdict, f"{time.monotonic() - started:.0f}", said


def _stop(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt
