"""Writes a folder all at once: whoever finds it finds it complete, whatever went wrong on the way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from protocol.errors import OperatorError
from sfnode.training.write_errors import describe_write_error


@contextmanager
def fresh_folder(out: Path, *, force: bool) -> Iterator[Path]:
    """A temporary folder beside `out` to write into; it becomes `out` when the block ends without an error.

    Raises OperatorError when `out` is not empty (with `force` its content is replaced at that end, not
    before), is not a folder, or when writing fails; then `out` is as it was and nothing is left beside it.
    """
    out = out.resolve()  # "." has no name to derive the temporary one from, and a link's target is what is replaced
    part = out.with_name(f".{out.name}.part-{os.getpid()}")
    try:
        _check_free(out, force)
        out.parent.mkdir(parents=True, exist_ok=True)
        part.mkdir()
        yield part
        _make_readable(part)
        _move_into_place(part, out)
    except (OSError, SafetensorError) as error:
        raise OperatorError(f"cannot write {out}: {describe_write_error(error)}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _check_free(out: Path, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise OperatorError(f"{out} is a file: give the name of a new folder")
    if not force and out.is_dir() and any(out.iterdir()):
        raise OperatorError(f"{out} is not empty: give another folder, or --force to replace what is in it")


def _make_readable(folder: Path) -> None:
    """Give the files the permissions that the user's umask asks for: safetensors allows the owner alone."""
    mask = folder.stat().st_mode & 0o666  # a folder just made has 0o777 less the umask
    for path in folder.iterdir():
        path.chmod(mask)


def _move_into_place(part: Path, out: Path) -> None:
    """Rename `part` to `out`. A full `out` is moved aside first and removed last."""
    if not out.exists():
        part.rename(out)
        return
    old = part.with_name(f"{part.name}-old")
    out.rename(old)
    try:
        part.rename(out)
    except OSError:
        old.rename(out)
        raise
    shutil.rmtree(old)
