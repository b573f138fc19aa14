"""The work that an open run may ask of a key: look for a key that has it (SPEC 2.4)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import trio

from protocol.admission import AdmissionKind, has_work, work_of
from protocol.errors import OperatorError
from protocol.keys import KEY_BYTES, Signer
from protocol.manifest import Manifest

_TRIES_AT_ONCE = 500  # 10 ms: so soon a signal is heard
_TELL_S = 2.0


def describe_admission(manifest: Manifest) -> str:
    """Who may contribute, in words."""
    spec = manifest.admission
    return f"open, {spec.pow_bits} bits of work" if spec.pow_bits else spec.kind.value


async def find_seed(manifest: Manifest, tell: Callable[[int, float], None]) -> bytes:
    """Secret seed of a new key that has the work of ``manifest``; 2^pow_bits tries on average, about 25 us each.

    ``tell``: called every 2 s with the tries so far and the seconds.
    """
    spec, run_id = manifest.admission, manifest.run_id
    started_s = told_s = time.monotonic()
    tries = 0
    while True:
        for _ in range(_TRIES_AT_ONCE):
            seed = secrets.token_bytes(KEY_BYTES)
            if has_work(spec, run_id, Signer(seed).author):
                return seed
        tries += _TRIES_AT_ONCE
        now_s = time.monotonic()
        if now_s - told_s >= _TELL_S:
            told_s = now_s
            tell(tries, now_s - started_s)
        await trio.lowlevel.checkpoint()


def check_work(manifest: Manifest, author: bytes, where: str) -> None:
    """OperatorError when the run is open and ``author`` has not cost the work that it asks for."""
    spec = manifest.admission
    if spec.kind is AdmissionKind.OPEN and not has_work(spec, manifest.run_id, author):
        raise OperatorError(
            f"the key in {where} has {work_of(manifest.run_id, author)} bits of work, and the run asks for "
            f"{spec.pow_bits}. Move it away, and `sfnode join` finds a new one; or follow the run with --relay"
        )
