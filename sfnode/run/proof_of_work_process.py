"""One process that looks for a key with work: `python -m sfnode.run.proof_of_work_process BITS RUN_ID`, in hex.

It writes a line for each TRIES_AT_ONCE keys without the work, and the seed in hex once it has one: to a pipe, so that
no secret is among its arguments. It ends when nobody reads on.
"""

from __future__ import annotations

import secrets
import sys
from typing import Final

from protocol.crypto import KEY_BYTES, Signer
from protocol.run import AdmissionKind, AdmissionSpec, has_work

TRIES_AT_ONCE: Final = 500  # 10 ms: a signal is heard that soon


def search(spec: AdmissionSpec, run_id: bytes) -> bytes | None:
    """Seed of a key that has the work of ``spec``; None when TRIES_AT_ONCE new ones lack it. About 20 us each."""
    for _ in range(TRIES_AT_ONCE):
        seed = secrets.token_bytes(KEY_BYTES)
        if has_work(spec, run_id, Signer(seed).author):
            return seed
    return None


def main(arguments: list[str]) -> int:
    """Search to the end."""
    spec = AdmissionSpec(kind=AdmissionKind.OPEN, pow_bits=int(arguments[0]))
    run_id = bytes.fromhex(arguments[1])
    try:
        while (seed := search(spec, run_id)) is None:
            _say("")
        _say(seed.hex())
    except BrokenPipeError:
        return 1
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
