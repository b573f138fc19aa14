"""Report errors of commands on standard error: as text, or as JSON with --json."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import click

from protocol.errors import SfnodeError, leaves_of
from sfnode.cli.exits.exit_codes import ExitCode
from sfnode.reporter import abandon, cannot_write, printable

_USAGE: Final = "usage"
_ABORTED: Final = "aborted"


def wants_json() -> bool:
    """Return whether --json is on the command line, even where click cannot parse the rest."""
    return "--json" in sys.argv[1:]


def warn(code: ExitCode, message: str, following: str) -> None:
    """Print a warning about the output of a command; ``following``: the command that finds the cause."""
    if wants_json():
        _write_json(code.name.lower(), f"{message}. Why: {following}", code)
        return
    click.echo(f"Warning: {printable(message)}", err=True)
    click.echo(f"why      {following}", err=True)


@contextmanager
def ending() -> Iterator[None]:
    """Turn errors inside the block into one clear text and an exit code.

    Any other exception is a bug and keeps its traceback. Errors of the command line arrive here only with --json;
    otherwise click prints them.
    """
    try:
        yield
    except SfnodeError as error:
        _fail([error])
    except click.ClickException as error:
        _write_json(_USAGE, error.format_message(), error.exit_code)
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


def _is_output_lost() -> bool:
    """Return whether standard output cannot be written: the disk is full, or the reader has left."""
    try:
        sys.stdout.flush()
    except OSError:
        return True
    return False


def _fail(errors: list[SfnodeError]) -> NoReturn:
    for text, code in {str(error): _name(error) for error in errors}.items():
        if wants_json():
            _write_json(code, text, ExitCode.FAILED)
        else:
            click.echo(f"Error: {printable(text)}", err=True)
    sys.exit(ExitCode.FAILED)


def _abort() -> NoReturn:
    if wants_json():
        _write_json(_ABORTED, "interrupted", ExitCode.FAILED)
    else:
        click.echo("Aborted!", err=True)  # click prints the same for an interrupt outside a nursery
    sys.exit(ExitCode.FAILED)


def _name(error: SfnodeError) -> str:
    """Return the code of an error, such as "storage_damaged" for a StorageDamagedError."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(error).__name__.removesuffix("Error")).lower()


def _write_json(code: str, message: str, exit_code: int) -> None:
    click.echo(json.dumps({"error": {"code": code, "message": message, "exit_code": int(exit_code)}}), err=True)
