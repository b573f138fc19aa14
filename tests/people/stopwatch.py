"""How long people wait, in real processes on this machine, on the embedded model: each from a cold start.

The model is part of the package, so that no download is in the times.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sfnode.demo import data_file
from sfnode.storage import STATUS_FILE
from tests.support.daemons import free_port

_GOAL_S: Final = 60.0  # of the issue: one string to a joined, training node
_LIMIT_S: Final = 240.0  # then it is given up
_POLL_S: Final = 0.05
_STEPS: Final = 100_000  # more than the run makes meanwhile


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


class GivenUpError(Exception):
    """A command failed, or took too long; the text says which."""


class Person:
    """Types commands of ``sfnode``, as a new user would, in an empty folder that is also their home."""

    def __init__(self, folder: Path, nodes: ExitStack) -> None:
        self.folder = folder
        self._nodes = nodes
        self._environment = {**os.environ, "HOME": str(folder), "OMP_NUM_THREADS": "1"}

    def type(self, *words: object) -> str:
        """The standard output of a command that ends. GivenUpError."""
        done = subprocess.run(
            self._command(words), env=self._environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise GivenUpError(f"sfnode {words[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
        return done.stdout

    def start(self, name: str, *words: object) -> None:
        """A command that runs on, with its output in NAME.log and its state in NAME."""
        log = (self.folder / f"{name}.log").open("wb")
        command = self._command((*words, "--data-dir", self.folder / name, "--no-mdns"))
        process = subprocess.Popen(
            command, env=self._environment, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        self._nodes.callback(_end, process)
        self._nodes.callback(log.close)

    def wait_for_own_update(self, name: str) -> None:
        """Until the node of that name has signed and stored an update of its own. GivenUpError."""
        self.wait_for_status(name, "own_updates")

    def wait_for_status(self, name: str, field: str) -> Any:
        """What a node says of itself under this name, once that is not empty. GivenUpError."""
        until = time.monotonic() + _LIMIT_S
        while time.monotonic() < until:
            if found := self._status(name).get(field):
                return found
            time.sleep(_POLL_S)
        said = (self.folder / f"{name}.log").read_text("utf-8", "replace").splitlines()[-1:]
        raise GivenUpError(f"no {field} of {name} within {_LIMIT_S:.0f} s; its last words: {said}")

    def _status(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / name / STATUS_FILE).read_bytes())
        except (OSError, ValueError):
            return {}
        return found

    @staticmethod
    def _command(words: Sequence[object]) -> list[str]:
        return [sys.executable, "-m", "sfnode", *map(str, words)]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def owners_run(person: Person, name: str, *words: object) -> None:
    """The files of a new run, in the person's folder."""
    person.type("init", "--model", "embedded:tiny-opt", "--plain", "--steps", _STEPS, "--out", f"{name}.run", *words)


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
    parser.add_argument("--story", action="append", choices=list(STORIES), help="which to tell; all by default")
    names = parser.parse_args().story or list(STORIES)
    rows = [row for name in names for row in told(name)]
    sys.stdout.write(table(rows) + "\n")
    sys.exit(0 if rows and all(row.is_held for row in rows) else 1)
