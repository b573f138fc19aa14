"""Look at architectures one after the other, each in a process of its own: some take all memory or never end."""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Final

from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tests.architectures.verdict import Verdict

NAMES: Final[tuple[str, ...]] = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
_MEMORY_BYTES: Final = 6 << 30
_CPU_SECONDS: Final = 120
_SECONDS: Final = 900
_POLL_SECONDS: Final = 0.02

Look = Callable[[str], Verdict]


def verdicts(names: Sequence[str], look: Look, at_once: int = 1) -> Iterator[tuple[str, Verdict]]:
    """Each name with what ``look`` finds, as they end. What it raises, and its death, are wrong.

    Forks: what the caller has imported need not be imported again for each.
    """
    todo, running = list(names), dict[str, tuple[ForkProcess, Connection, float]]()
    context = multiprocessing.get_context("fork")
    while todo or running:
        while todo and len(running) < at_once:
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(todo[0], look, theirs))
            process.start()
            theirs.close()
            running[todo.pop(0)] = process, ours, time.monotonic() + _SECONDS
        time.sleep(_POLL_SECONDS)
        for name, (process, ours, until) in list(running.items()):
            if ours.poll() or not process.is_alive() or time.monotonic() > until:
                yield name, _result(ours, is_late=time.monotonic() > until)
                process.kill()
                process.join()
                del running[name]


def _result(ours: Connection, *, is_late: bool) -> Verdict:
    try:
        found: Verdict | None = ours.recv() if ours.poll() else None
    except EOFError:
        found = None
    died = f"takes more than {_SECONDS} s" if is_late else f"its process died (of {_CPU_SECONDS} s, or of its memory)"
    return found or Verdict(kind="wrong", reason=died)


def _child(name: str, look: Look, result: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    try:
        found = look(name)
    except Exception as error:  # the very fault that is looked for
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        found = Verdict(kind="wrong", reason=f"{type(error).__name__} in {where}: {error}")
    result.send(found)
