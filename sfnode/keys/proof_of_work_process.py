"""One process that looks for a key with work. Arguments: ``BITS RUN_ID``, the latter in hex.

It writes a line for each TRIES_AT_ONCE keys without the work, and the seed in hex once it has one: to a pipe, so that
no secret is among its arguments. It ends when nobody reads on.
"""

from __future__ import annotations

import sys

from protocol.run import AdmissionKind, AdmissionSpec
from sfnode.keys.proof_of_work import search


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
