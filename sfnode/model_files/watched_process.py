"""A process that fills a folder: reports its progress, and ends it when it stands still. No torch, no trio."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from protocol.errors import OperatorError
from sfnode.children.child_program import Program, end
from sfnode.storage import disk

OnProgress = Callable[[str, int, int], None]
"""Hears what is done, how many bytes of it are, and of how many: 0 when that is not known."""

_LOOK_S = 0.5
_SAID_BYTES_MAX = 1 << 16  # of its standard error; only the last lines matter


def run_watched(
    program: Program, folder: Path, report: Callable[[int], None], stall_s: float, stood_still: str
) -> tuple[int, str]:
    """Run ``program`` until it ends, and call ``report`` regularly with the number of bytes below ``folder``.

    Return the exit code and the end of its standard error. OSError; OperatorError, which says ``stood_still``, after
    ``stall_s`` without growth: its input may come from a stranger, and endless computing is not progress.
    """
    said = folder / "said"
    with said.open("wb") as stderr:
        variables = {**program.variables, "TMPDIR": str(folder), "HF_HUB_OFFLINE": "1"}
        process = replace(program, variables=variables).start(stdout=subprocess.DEVNULL, stderr=stderr)
    grown, since = 0, time.monotonic()
    try:
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
            report(found := disk.bytes_below(folder))
            if found > grown:
                grown, since = found, time.monotonic()
            elif process.poll() is None and time.monotonic() - since > stall_s:
                raise OperatorError(stood_still)
    finally:
        end(process)
    with said.open("rb") as file:
        file.seek(max(0, said.stat().st_size - _SAID_BYTES_MAX))
        return process.returncode, file.read().decode("utf-8", "replace").strip()


@contextmanager
def watching(folder: Path, report: Callable[[int], None]) -> Iterator[None]:
    """Call ``report`` regularly, while the block runs, with the bytes that were added below ``folder`` since then."""
    before, is_over = disk.bytes_below(folder), threading.Event()

    def look() -> None:
        while not is_over.wait(_LOOK_S):
            report(max(0, disk.bytes_below(folder) - before))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
