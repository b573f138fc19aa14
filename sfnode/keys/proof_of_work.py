"""The work that an open run may require of a key: search for a key that has it (SPEC 2.4)."""

import secrets
import time
from collections.abc import Callable

import trio

from protocol.crypto import KEY_BYTES, Signer
from protocol.errors import OperatorError
from protocol.run import AdmissionKind, AdmissionSpec, Manifest, has_work, work_of

TRIES_AT_ONCE = 500  # 10 ms: the longest that a signal has to wait
_REPORT_S = 2.0


async def find_seed(manifest: Manifest, report: Callable[[int, float], None]) -> bytes:
    """Return the secret seed of a new key that has the work of ``manifest``.

    It takes 2^pow_bits tries on average, each about 20 us of one core. ``report`` is called about every 2 s with the
    tries so far and the seconds.
    """
    tries, started_s = 0, time.monotonic()
    told_s = started_s
    while (seed := search(manifest.admission, manifest.run_id)) is None:
        tries += TRIES_AT_ONCE
        if (now_s := time.monotonic()) - told_s >= _REPORT_S:
            told_s = now_s
            report(tries, now_s - started_s)
        await trio.lowlevel.checkpoint()
    return seed


def search(spec: AdmissionSpec, run_id: bytes) -> bytes | None:
    """Return the seed of a key that has the work of ``spec``; None after TRIES_AT_ONCE in vain, of about 20 us each."""
    for _ in range(TRIES_AT_ONCE):
        seed = secrets.token_bytes(KEY_BYTES)
        if has_work(spec, run_id, Signer(seed).author):
            return seed
    return None


def check_work(manifest: Manifest, author: bytes, where: str) -> None:
    """Raise OperatorError if the run is open and ``author`` lacks the work that it requires."""
    spec = manifest.admission
    if spec.kind is AdmissionKind.OPEN and not has_work(spec, manifest.run_id, author):
        raise OperatorError(
            f"the key in {where} has {work_of(manifest.run_id, author)} bits of work, and the run asks for "
            f"{spec.pow_bits}. Move it away, and `sfnode join` finds a new one; or follow the run with --relay"
        )
