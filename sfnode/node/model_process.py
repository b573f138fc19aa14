"""Finds a model in a separate process, so that the node goes on during minutes of imports and downloads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from protocol.errors import OperatorError
from sfnode.children.awaited import LinesOf, running
from sfnode.children.program import Program
from sfnode.model_files import OnProgress
from sfnode.storage import describe_os_error

_MODULE: Final = "sfnode.model_files.resolving"


async def resolve_apart(reference: str, revision: str, on_progress: OnProgress) -> Path:
    """Return the folder of a model, as `resolve_model` finds it. OperatorError."""
    program = Program(module=_MODULE, arguments=("--revision", revision, "--", reference))
    try:
        async with running(program, is_heard=True) as process:
            return await _read(LinesOf(process), on_progress)
    except OSError as error:
        raise OperatorError(f"cannot start a process that looks for the model: {describe_os_error(error)}") from None


async def _read(lines: LinesOf, on_progress: OnProgress) -> Path:
    async for line in lines:
        match json.loads(line):
            case [str(text), int(done), int(total)]:
                on_progress(text, done, total)
            case [str(folder)]:
                return Path(folder)
            case [_, str(error)]:
                raise OperatorError(error)
    raise OperatorError("the process that looks for the model has ended without a word; what it printed says why")
