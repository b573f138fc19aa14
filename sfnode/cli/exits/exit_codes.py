"""The exit codes of all commands. A command that ends with another code has crashed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from sfnode.status import Health


class ExitCode(IntEnum):
    """Names the exit codes. They are stable, because scripts rely on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NO_PEERS = Health.NO_PEERS
    NOT_ADMITTED = Health.NOT_ADMITTED
    EXCLUDED = Health.EXCLUDED
    IDLE = Health.IDLE


MEANINGS: Final[Mapping[ExitCode, str]] = {
    ExitCode.DONE: "done; of `status`: all is well",
    ExitCode.FAILED: "failed, and said why; a check has found something; interrupted",
    ExitCode.USAGE: "the command line was not understood",
    ExitCode.NO_PEERS: "`status`: the node knows of others, and none is connected",
    ExitCode.NOT_ADMITTED: "`status`: the node may not contribute",
    ExitCode.EXCLUDED: "`status`: the owner has excluded the node",
    ExitCode.IDLE: "`status`: the node may contribute, and is paused or cannot measure",
}


def exit_table() -> str:
    """Return the table of exit codes for the end of `sfnode --help`."""
    return "\n".join(["\b", "Exit codes:", *(f"  {code.value}  {text}" for code, text in MEANINGS.items())])
