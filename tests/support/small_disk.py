"""A disk of a few hundred kilobytes that tests can fill, and one that is read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path

import pytest


class CannotMountError(Exception):
    """No file system can be mounted here: that takes root on Linux."""


@contextmanager
def small_disk(folder: Path, *, kilobytes: int) -> Iterator[Path]:
    """A file system of that size at ``folder``; skips loudly where none can be mounted."""
    with ExitStack() as mounts:
        try:
            mounts.enter_context(mounted_disk(folder, kilobytes=kilobytes))
        except CannotMountError as error:
            pytest.skip(str(error))
        yield folder


@contextmanager
def mounted_disk(folder: Path, *, kilobytes: int) -> Iterator[Path]:
    """The same outside of tests. CannotMountError."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        raise CannotMountError("a full disk needs a small file system, and this user cannot mount a tmpfs")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write a file until the disk is full to the last byte; removing it frees the space."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for chunk in (bytes(4_096), b"\0"):
            write_until_full(file, chunk)
    return filler


def write_until_full(file: FileIO, chunk: bytes) -> None:
    with suppress(OSError):
        while file.write(chunk):
            pass


def remount(folder: Path, option: str) -> None:
    """Change a small disk while it is in use: "ro" or "rw", or its "size=4m"."""
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)
