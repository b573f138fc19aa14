"""How a command ends: its exit code, and its errors on standard error, as text or as JSON with --json.

A command that ends with another code has crashed.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn

import click

from protocol.errors import OperatorError, SfnodeError, leaves_of
from sfnode.children import stop_signals
from sfnode.reporter import abandon, cannot_write, printable
from sfnode.status import Health


class ExitCode(IntEnum):
    """Names the exit codes that are no `Health`. All are stable, because scripts rely on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2


MEANINGS: Mapping[IntEnum, str] = {
    ExitCode.DONE: "done, or a node was stopped; of `status`: all is well",
    ExitCode.FAILED: "failed, and said why; a check has found something; interrupted, and no node",
    ExitCode.USAGE: "the command line was not understood",
    Health.NO_PEERS: "`status`: the node knows of others, and none is connected",
    Health.NOT_ADMITTED: "`status`: the node may not contribute",
    Health.EXCLUDED: "`status`: the owner has excluded the node",
    Health.IDLE: "`status`: the node may contribute, and is paused or cannot measure",
}
# The end of `sfnode --help`.
EXIT_TABLE = "\n".join(["\b", "Exit codes:", *(f"  {code.value}  {text}" for code, text in MEANINGS.items())])


def wants_json() -> bool:
    """Return whether --json is on the command line, even where click cannot parse the rest."""
    return "--json" in sys.argv[1:]


def warn(code: Health, message: str, following: str) -> None:
    """Print a warning about the output of a command; ``following``: the command that finds the cause."""
    text = f"Warning: {printable(message)}\nwhy      {following}"
    _say(code.name.lower(), f"{message}. Why: {following}", code, text)


@contextmanager
def ending() -> Iterator[None]:
    """Turn errors inside the block into one clear text and an exit code.

    Any other exception is a bug and keeps its traceback. Errors of the command line arrive here only with --json;
    otherwise click prints them.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # a shell has closed it: >&-
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    stop_signals.end_at_once()
    try:
        yield
    except SfnodeError as error:
        _fail([error])
    except click.ClickException as error:
        _say("usage", error.format_message(), error.exit_code, "")
        sys.exit(error.exit_code)
    except click.Abort:
        _abort()
    except OSError as error:
        if not _is_output_lost():
            raise
        abandon(sys.stdout)
        _fail([cannot_write(error)])
    except BaseExceptionGroup as group:
        if group.subgroup(KeyboardInterrupt):
            _abort()
        ours, others = group.split(SfnodeError)
        if others is not None or ours is None:
            raise
        _fail(leaves_of(ours))
    finally:
        # With -m, Python ends by SIGINT if an interrupt ever came in a text that it executed, as that of a dataclass
        # is: this code would not count. Python forgets such an interrupt at the next text.
        exec("")


def _is_output_lost() -> bool:
    """Return whether standard output cannot be written: the disk is full, or the reader has left."""
    try:
        sys.stdout.write("\n")  # else nothing may be left to flush
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _fail(errors: list[SfnodeError]) -> NoReturn:
    for text, error in {str(error): error for error in errors}.items():
        # The code of an error is such as "storage_damaged" for a StorageDamagedError.
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__.removesuffix("Error")).lower()
        code = error.code if isinstance(error, OperatorError) else name
        _say(code, text, ExitCode.FAILED, f"Error: {printable(text)}")
    sys.exit(ExitCode.FAILED)


def _abort() -> NoReturn:
    _say("aborted", "interrupted", ExitCode.FAILED, "Aborted!")  # as click does for an interrupt outside a nursery
    sys.exit(ExitCode.FAILED)


def _say(code: str, message: str, exit_code: int, text: str) -> None:
    """Print an error as JSON where that is asked for, else ``text``."""
    fields = {"code": code, "message": message, "exit_code": int(exit_code)}
    click.echo(json.dumps({"error": fields}) if wants_json() else text, err=True)
