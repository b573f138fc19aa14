"""Finds a model in a process of its own: imports, downloads and conversions take minutes, and the node goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import trio

from protocol.errors import OperatorError
from sfnode.model_files import OnProgress

_MODULE: Final = "sfnode.model_files.resolving"
_READ_BYTES: Final = 65_536


async def resolve_apart(reference: str, revision: str, on_progress: OnProgress) -> Path:
    """The folder of a model, as `resolve_model` finds it. OperatorError."""
    command = [sys.executable, "-m", _MODULE, "--revision", revision, "--", reference]
    # A session of its own: Ctrl-C is for this process, which then ends that one.
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        return await _read(process, on_progress)
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                await stream.aclose()


async def _read(process: trio.Process, on_progress: OnProgress) -> Path:
    assert process.stdout is not None
    received = b""
    while data := await process.stdout.receive_some(_READ_BYTES):
        *lines, received = (received + data).split(b"\n")
        for line in lines:
            match json.loads(line):
                case [str(text), int(done), int(total)]:
                    on_progress(text, done, total)
                case [str(folder)]:
                    return Path(folder)
                case [_, str(error)]:
                    raise OperatorError(error)
    raise OperatorError("the process that looks for the model has ended without a word; what it printed says why")
