"""Calls ``sfnode`` through its real entry point in this process: as exact as a subprocess, and fast."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from unittest import mock

from sfnode.cli import main


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a shell would see of one command."""

    code: int
    stdout: str
    stderr: str

    @property
    def error(self) -> str:
        """The one line that says what is wrong; fails unless the command failed and ended with exactly one."""
        assert self.code != 0, self
        assert "Traceback" not in self.stderr + self.stdout, self
        if self.stderr.startswith('{"error": '):  # --json
            return str(json.loads(self.stderr)["error"]["message"])
        lines = [line for line in self.stderr.splitlines() if line.startswith("Error: ")]
        assert len(lines) == 1 and self.stderr.endswith(f"{lines[0]}\n"), self
        return lines[0].removeprefix("Error: ")


def call(*arguments: object) -> Outcome:
    """Run one command to its end. An exception that the entry point lets through, a bug, fails the calling test."""
    stdout, stderr = io.StringIO(), io.StringIO()
    code = 0
    with (
        mock.patch.object(sys, "argv", ["sfnode", *map(str, arguments)]),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return Outcome(code=code, stdout=stdout.getvalue(), stderr=stderr.getvalue())


def assert_teaches(outcome: Outcome, *parts: str) -> None:
    """The command failed with one line that contains every one of ``parts``: what, where, what to do."""
    missing = [part for part in parts if part not in outcome.error]
    assert not missing, f"{missing} not in: {outcome.error}"
