"""Every kind of exception that what lies below a node can raise: read off the libraries themselves."""

from __future__ import annotations

import errno
import json
import sqlite3
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

LIBRARIES: Final = ("libp2p", "trio", "noise", "nacl", "cryptography", "multiaddr", "msgpack", "sqlite3", "google")
_ERRNOS: Final = (
    errno.ECONNRESET, errno.EPIPE, errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EMFILE, errno.ENOBUFS,
    errno.ENETUNREACH, errno.ENOTCONN, errno.EBADF, errno.EIO, errno.ENOSPC, errno.EACCES, errno.EROFS,
)  # fmt: skip
_PLAIN: Final[tuple[type[Exception], ...]] = (
    ValueError, KeyError, IndexError, TypeError, AttributeError, AssertionError, RuntimeError, EOFError, struct.error,
    OverflowError, ZeroDivisionError, NotImplementedError, MemoryError, RecursionError, LookupError,
)  # fmt: skip
_SPECIAL: Final[tuple[Callable[[], Exception], ...]] = (
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    lambda: json.JSONDecodeError("nothing", "", 0),
    lambda: ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
)
# Not what a library raises into its caller: these steer trio itself, or only exist in its tests.
_NEVER: Final = ("TrioInternalError", "RunFinishedError", "Cancelled")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of exception; ``is_disk``: it may stand for a disk that fails, which may end a node."""

    name: str
    make: Callable[[], Exception]
    is_disk: bool = False


def kinds() -> tuple[Kind, ...]:
    """All of them, in the order of their names. Call it after the libraries are imported."""
    plain = [Kind(kind.__name__, _maker(kind)) for kind in _PLAIN]
    plain += [Kind(type(make()).__name__, make) for make in _SPECIAL]
    system = [
        Kind(f"OSError {errno.errorcode[number]}", partial(OSError, number, "injected"), True) for number in _ERRNOS
    ]
    of_libraries = [
        Kind(f"{kind.__module__}.{kind.__name__}", _maker(kind), issubclass(kind, OSError | sqlite3.Error))
        for kind in _exceptions_of_libraries()
    ]
    found = {kind.name: kind for kind in (*plain, *system, *of_libraries)}
    return tuple(found[name] for name in sorted(found))


def _exceptions_of_libraries() -> Iterator[type[Exception]]:
    loaded = [module for name, module in sys.modules.items() if name.partition(".")[0] in LIBRARIES]
    for module in loaded:
        for value in list(vars(module).values()):
            is_kind = isinstance(value, type) and issubclass(value, Exception) and value.__name__ not in _NEVER
            if is_kind and value.__module__.partition(".")[0] in LIBRARIES and not issubclass(value, Warning):
                yield value


def _maker(kind: type[Exception]) -> Callable[[], Exception]:
    def make() -> Exception:
        """Some want arguments of their own: then one is made without them."""
        try:
            return kind("injected")
        except (TypeError, ValueError, AttributeError, LookupError):
            return kind.__new__(kind)

    return make
