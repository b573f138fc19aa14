"""System calls that fail from some moment on, and a store that meets them: run as a program, it tells what it saw.

A seccomp filter makes the kernel answer EIO, so that SQLite and the interpreter see what a dying disk gives them. A
filter cannot be taken off again: each moment has a process of its own, forked from this one.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import struct
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NoReturn

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError, StorageDamagedError
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import sign_manifest
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.record_store import Store
from tests.support.manifests import OWNER, small_manifest

_NUMBERS = {
    "x86_64": {"openat": 257, "pread64": 17, "pwrite64": 18, "fsync": 74, "fdatasync": 75, "ftruncate": 77},
    "aarch64": {"openat": 56, "pread64": 67, "pwrite64": 68, "fsync": 82, "fdatasync": 83, "ftruncate": 46},
}
NUMBERS = _NUMBERS.get(platform.machine(), {}) if sys.platform == "linux" else {}
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000

MANIFEST = small_manifest()
SIGNED = sign_manifest(MANIFEST, OWNER)
RECORDS = [EnvelopeCodec(MANIFEST).seal(Signer(b"author".ljust(32, b".")), step, (1,)).record for step in range(24)]

Step = tuple[str, Callable[[Store], object]]


def is_filter_allowed() -> bool:
    """Whether this machine lets a process filter its own system calls."""
    if not NUMBERS:
        return False
    child = os.fork()
    if child == 0:
        try:
            fail_from_now_on("ftruncate")
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def fail_from_now_on(call: str) -> None:
    """Every ``call`` of this process gives EIO, for the rest of its life. OSError where no filter is allowed."""
    filters = (
        struct.pack("=HBBI", _LOAD, 0, 0, 0),  # the number of the call
        struct.pack("=HBBI", _JUMP_IF_EQUAL, 0, 1, NUMBERS[call]),
        struct.pack("=HBBI", _RETURN, 0, 0, _ERROR | errno.EIO),
        struct.pack("=HBBI", _RETURN, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(filters), 8 * len(filters))
    program = struct.pack("@HP", len(filters), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _MODE_FILTER, program, 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "no filter of system calls can be installed")


def steps() -> list[Step]:
    """What a node asks of its store in its first seconds, by the name under which it is acknowledged."""
    work: list[Step] = []
    for own in range(0, len(RECORDS), 6):
        others = range(own + 1, own + 6)
        work.append((f"reserved {own}", partial(Store.reserve_step, step=own)))
        work.append((f"own {own}", partial(Store.add, records=[RECORDS[own]], is_durable=True)))
        name = "others " + " ".join(map(str, others))
        work.append((name, partial(Store.add, records=[RECORDS[step] for step in others], is_durable=False)))
        work.append(("read", lambda store: deque(store.records(), maxlen=0)))
    return work


def live(directory: Path, call: str, moment: int) -> Iterator[str]:
    """A store's life in which ``call`` fails from the opening on (0), or before step ``moment``, or before the close:
    what was acknowledged, then how it ended."""
    if moment == 0:
        fail_from_now_on(call)
    try:
        store = Store(DataDirectory(directory), SIGNED)
        work = [*steps(), ("end", Store.close)]
        for number, (name, step) in enumerate(work, start=1):
            if number == moment:
                fail_from_now_on(call)
            step(store)
            yield name
    except (OperatorError, StorageDamagedError) as error:
        yield f"stopped: {error}"


def _tell(life: Iterator[str], pipe: int) -> NoReturn:
    """Write what a life tells, as JSON; the last word is the error that escaped from it, if one did. Then exit."""
    told: list[str] = []
    try:
        told.extend(life)
    finally:
        escaped = [traceback.format_exc()] if sys.exc_info()[0] else []
        os.write(pipe, json.dumps(told + escaped).encode())
        os._exit(0)


def main() -> None:
    """Arguments: a folder. Writes one JSON line for each call and moment: [call, moment, what was told]."""
    folder = Path(sys.argv[1])
    for call in NUMBERS:
        for moment in range(len(steps()) + 2):
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                _tell(live(folder / f"{call}-{moment}", call, moment), writing)
            os.close(writing)
            with os.fdopen(reading, "rb") as pipe:
                text = pipe.read().decode() or '["the process died"]'
            os.waitpid(child, 0)
            sys.stdout.write(json.dumps([call, moment, json.loads(text)]) + "\n")


if __name__ == "__main__":
    main()
