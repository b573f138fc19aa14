"""Somebody who types commands of ``sfnode`` on this machine: what the stopwatch and the planted faults are told by."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from sfnode.children.child_program import Program, end
from sfnode.storage.data_directory import STATUS_FILE
from tests.support.small_disk import mounted_disk

_LIMIT_S: Final = 240.0  # then it is given up
_POLL_S: Final = 0.05
_LEAVE_S: Final = 10.0
_STEPS: Final = 100_000  # more than the run makes meanwhile


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
        done = self._run(words)
        if done.returncode:
            raise GivenUpError(f"sfnode {words[0]}: {(done.stderr or done.stdout).strip()[-300:]}")
        return done.stdout

    def ask(self, *words: object) -> tuple[int, str]:
        """The exit code of a command that ends, and what it says on the standard error."""
        done = self._run(words)
        return done.returncode, " ".join(done.stderr.split())

    def start(self, name: str, *words: object) -> subprocess.Popen[bytes]:
        """A command that runs on, with its output in NAME.log and its state in NAME; `sfnode start` remembers."""
        log = (self.folder / f"{name}.log").open("wb")
        alone = () if words[0] == "start" else ("--no-mdns",)
        arguments = tuple(map(str, (*words, "--data-dir", name, *alone)))
        command = Program(module="sfnode", arguments=arguments, leave_s=_LEAVE_S).command  # it ends with the tests
        process = subprocess.Popen(
            command, env=self._environment, cwd=self.folder, stdin=subprocess.PIPE, stdout=log, stderr=log
        )
        self._nodes.callback(_end, process)
        self._nodes.callback(log.close)
        return process

    def disk(self, name: str, *, kilobytes: int) -> Path:
        """A small disk of its own for the state of the node of that name. CannotMountError."""
        return self._nodes.enter_context(mounted_disk(self.folder / name, kilobytes=kilobytes))

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

    def _run(self, words: Sequence[object]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(words), env=self._environment, cwd=self.folder, capture_output=True, text=True, check=False
        )

    @staticmethod
    def _command(words: Sequence[object]) -> list[str]:
        return [sys.executable, "-m", "sfnode", *map(str, words)]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(15.0)
    end(process)


def owners_run(person: Person, name: str, *words: object) -> None:
    """The files of a new run, in the person's folder."""
    person.type("init", "--model", "embedded:tiny-opt", "--plain", "--steps", _STEPS, "--out", f"{name}.run", *words)
