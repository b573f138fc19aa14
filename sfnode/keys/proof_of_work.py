"""The work that an open run may require of a key: search for a key that has it (SPEC 2.4)."""

import os
import secrets
import time
from collections.abc import Callable
from typing import Final

import trio

from protocol.crypto import KEY_BYTES, Signer
from protocol.errors import OperatorError
from protocol.run import AdmissionKind, AdmissionSpec, Manifest, has_work, work_of
from sfnode.children.async_child import LinesOf, running
from sfnode.children.child_program import Program
from sfnode.storage import disk

TRIES_AT_ONCE: Final = 500  # 10 ms: the longest that a signal has to wait
_BLOCKS_ALONE = 40  # 20,000 tries, 0.4 s: no longer than it takes to start processes
_REPORT_S = 2.0


async def find_seed(manifest: Manifest, report: Callable[[int, float], None]) -> bytes:
    """Return the secret seed of a new key that has the work of ``manifest``.

    It takes 2^pow_bits tries on average, each about 20 us of a core. After 20,000 tries in vain, it uses all cores.
    ``report`` is called about every 2 s with the tries so far and the seconds.
    """
    progress = _Progress(report)
    for _ in range(_BLOCKS_ALONE):
        if (seed := search(manifest.admission, manifest.run_id)) is not None:
            return seed
        progress.count()
        await trio.lowlevel.checkpoint()
    found: list[bytes] = []
    async with trio.open_nursery() as nursery:

        async def run_one() -> None:
            found.append(await _search_in_process(manifest, progress))
            nursery.cancel_scope.cancel()

        for _ in range(os.cpu_count() or 1):
            nursery.start_soon(run_one)
    return found[0]


class _Progress:
    """Adds up the tries of all processes, and reports them every _REPORT_S."""

    def __init__(self, report: Callable[[int, float], None]) -> None:
        self._report = report
        self._tries = 0
        self._started_s = self._reported_s = time.monotonic()

    def count(self) -> None:
        """Count TRIES_AT_ONCE more tries in vain."""
        self._tries += TRIES_AT_ONCE
        now_s = time.monotonic()
        if now_s - self._reported_s >= _REPORT_S:
            self._reported_s = now_s
            self._report(self._tries, now_s - self._started_s)


def search(spec: AdmissionSpec, run_id: bytes) -> bytes | None:
    """Return the seed of a key that has the work of ``spec``; None after TRIES_AT_ONCE in vain, of about 20 us each."""
    for _ in range(TRIES_AT_ONCE):
        seed = secrets.token_bytes(KEY_BYTES)
        if has_work(spec, run_id, Signer(seed).author):
            return seed
    return None


async def _search_in_process(manifest: Manifest, progress: _Progress) -> bytes:
    """Run one process until it finds a seed; kill it when cancelled. Threads would gain nothing because of the GIL."""
    arguments = (str(manifest.admission.pow_bits), manifest.run_id.hex())
    program = Program(module="sfnode.keys.proof_of_work_process", arguments=arguments)
    try:
        async with running(program, is_heard=True) as process:
            return await _read(LinesOf(process), progress)
    except OSError as error:
        raise OperatorError(f"cannot start a process that looks for a key: {disk.describe_os_error(error)}") from None


async def _read(lines: LinesOf, progress: _Progress) -> bytes:
    async for found in lines:
        if found:
            return bytes.fromhex(found.decode("ascii"))
        progress.count()
    raise OperatorError("a process that looks for a key has ended before it had one: its last output says why")


def check_work(manifest: Manifest, author: bytes, where: str) -> None:
    """Raise OperatorError if the run is open and ``author`` lacks the work that it requires."""
    spec = manifest.admission
    if spec.kind is AdmissionKind.OPEN and not has_work(spec, manifest.run_id, author):
        raise OperatorError(
            f"the key in {where} has {work_of(manifest.run_id, author)} bits of work, and the run asks for "
            f"{spec.pow_bits}. Move it away, and `sfnode join` finds a new one; or follow the run with --relay"
        )
