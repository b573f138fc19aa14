"""How long people wait, and whether they are told why they wait for ever: real processes on the embedded model.

Each wait is from a cold start. The model is part of the package, so that no download is in the times.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sfnode.demo import data_file
from tests.people import faults
from tests.people.person import GivenUpError, Person, owners_run
from tests.support.daemons import free_port

_GOAL_S: Final = 60.0  # of the issue: one string to a joined, training node


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One wait. ``seconds`` is None where it was given up, or a command failed: ``failure`` says why."""

    what: str
    goal_s: float
    seconds: float | None
    failure: str = ""

    @property
    def is_held(self) -> bool:
        """Whether it took no longer than people were promised."""
        return self.seconds is not None and self.seconds <= self.goal_s


def invited(person: Person) -> Iterator[Taken]:
    """From `init` to the owner's own first update; then from the string to the joiner's."""
    started = time.monotonic()
    owners_run(person, "invited", "--task", "embedded:reviews")
    invitation = person.type("run", "invite", "--owner-key", "invited.key", "--run", "invited.run").strip()
    listen = f"/ip4/127.0.0.1/tcp/{free_port()}"
    person.start("owner", "join", "--run", "invited.run", "--invite", invitation, "--listen", listen)
    person.wait_for_own_update("owner")
    yield Taken(what="init to own first update", goal_s=2 * _GOAL_S, seconds=time.monotonic() - started)
    string = person.type("run", "invite", "--owner-key", "invited.key", "--data-dir", person.folder / "owner").strip()
    yield joined(person, "invited-joiner", string, "one string, with an invitation")


def public_data(person: Person) -> Iterator[Taken]:
    """From the string to the joiner's own first update, where the data come from the owner's node."""
    data = person.folder / "reviews.jsonl"
    data.write_bytes(data_file("reviews", "train").read_bytes())
    owners_run(person, "public", "--task", "sst2", "--data", data, "--admission", "open")
    listen = f"/ip4/127.0.0.1/tcp/{free_port()}"
    person.start("giver", "join", "--run", "public.run", "--data", data, "--share-data", "--listen", listen)
    string = person.wait_for_status("giver", "join_string")
    person.wait_for_own_update("giver")
    yield joined(person, "public-joiner", string, "one string, data from its nodes")


def joined(person: Person, name: str, string: str, what: str) -> Taken:
    """From a cold process with nothing but the string to its own first update."""
    started = time.monotonic()
    person.start(name, "join", string)
    person.wait_for_own_update(name)
    return Taken(what=what, goal_s=_GOAL_S, seconds=time.monotonic() - started)


STORIES: Final = {"invited": invited, "public-data": public_data}


def told(name: str) -> Iterator[Taken]:
    """One story, in a folder of its own, with nodes that end with it."""
    with tempfile.TemporaryDirectory(prefix="sfnode-people-") as folder, ExitStack() as nodes:
        try:
            yield from STORIES[name](Person(Path(folder), nodes))
        except GivenUpError as error:
            yield Taken(what=name, goal_s=_GOAL_S, seconds=None, failure=str(error))


def table(rows: Sequence[Taken]) -> str:
    """What was waited for, how long, and whether that was promised."""
    lines = [f"{'':<36} {'seconds':>8} {'at most':>8}"]
    for row in rows:
        seconds = "-" if row.seconds is None else f"{row.seconds:.1f}"
        verdict = "held" if row.is_held else f"NOT HELD {row.failure}".rstrip()
        lines.append(f"{row.what:<36} {seconds:>8} {row.goal_s:>8.0f}  {verdict}")
    return "\n".join(lines)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tests.people", description=__doc__)
    parser.add_argument("--story", action="append", choices=list(STORIES), help="what to take the time of")
    parser.add_argument("--fault", action="append", choices=list(faults.FAULTS), help="what to plant in a node")
    told_of = parser.parse_args()
    is_all = not (told_of.story or told_of.fault)
    stories = told_of.story or (list(STORIES) if is_all else [])
    planted = told_of.fault or (list(faults.FAULTS) if is_all else [])
    rows = [row for name in stories for row in told(name)]
    named = looked_at(planted)
    tables = [*([table(rows)] if rows else []), *([faults.table(named)] if named else [])]
    sys.stdout.write("\n\n".join(tables) + "\n")
    is_well = all(row.is_held for row in rows) and not any(row.failure for row in named)
    sys.exit(0 if (rows or named) and is_well else 1)


def looked_at(planted: Sequence[str]) -> list[faults.Named]:
    """What `status` says of each of these faults, in one folder, with the owners' nodes at work."""
    if not planted:
        return []
    with tempfile.TemporaryDirectory(prefix="sfnode-people-") as folder, ExitStack() as nodes:
        village = faults.Village(Person(Path(folder), nodes))
        return [faults.look(village, name) for name in planted]
