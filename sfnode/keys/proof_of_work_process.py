"""A process that searches for a key with work. Arguments: ``BITS RUN_ID``, the latter in hex.

It writes an empty line after each TRIES_AT_ONCE keys without the work, and the seed in hex once it has found one. The
seed goes to a pipe, where no other user can read it. The process ends when nobody reads the pipe any more.
"""

import sys

from protocol.run import AdmissionKind, AdmissionSpec
from sfnode.keys.proof_of_work import search


def main(arguments: list[str]) -> int:
    """Search until a key is found; return the exit code."""
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
