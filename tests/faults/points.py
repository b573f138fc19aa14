"""What happens at a point: nothing, or the fault that is armed there, once."""

from __future__ import annotations

import random
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

import trio

from tests.faults.kinds import Kind

T = TypeVar("T")
NODE: Final[ContextVar[int | None]] = ContextVar("node", default=None)  # whose task runs
STALL_S: Final = 25.0  # longer than any write or handshake may take
SLOW_S: Final = 9.0  # shorter than any patience


class Mode(StrEnum):
    """What is done to whoever comes to the point."""

    BEFORE = "before"  # the exception, in place of the call
    AFTER = "after"  # the exception, once the call has been made
    GARBLE = "garble"  # bytes that go in or come out are others
    STALL = "stall"  # nothing happens for STALL_S
    SLOW = "slow"  # from now on, until the plan is over, every passage takes SLOW_S: a slow peer
    CANCEL = "cancel"  # the node is stopped at this moment, as Ctrl-C stops it


@dataclass(slots=True)
class Fault:
    """One fault of one plan; ``victim`` and ``task``: filled in when it strikes."""

    site: int
    mode: Mode
    kind: Kind
    nth: int
    chance: random.Random
    comers: int = 0
    victim: int | None = None
    task: str = ""
    injected: Exception | None = None

    def error(self) -> Exception:
        """The exception to raise."""
        self.injected = self.kind.make()
        return self.injected


class Points:
    """The armed faults by their sites, and which points were ever reached."""

    def __init__(self) -> None:
        self.armed: dict[int, Fault] = {}
        self.slow: Fault | None = None
        self.reached: set[int] = set()
        self.lately: set[int] = set()  # since the last plan began
        self.stop: Callable[[int], None] = lambda _victim: None  # stops a node

    def _take(self, site: int) -> Fault | None:
        """The fault, where it is due here and now: then it is armed no longer."""
        fault, node = self.armed.get(site), NODE.get()
        if node is None:
            return None
        self.lately.add(site)
        if fault is None:
            return None
        fault.comers += 1
        if fault.comers < fault.nth:
            return None
        del self.armed[site]
        fault.victim = node
        fault.task = trio.lowlevel.current_task().name if _is_trio_thread() else "a thread"
        return fault

    def at_entry(self, site: int) -> None:
        """At the beginning of a function."""
        if site in self.lately and site not in self.armed:
            return
        fault = self._take(site)
        if fault is None:
            return
        if fault.mode is Mode.CANCEL and _is_trio_thread():
            assert fault.victim is not None
            self.stop(fault.victim)
            return
        raise fault.error()

    def begin_plan(self) -> None:
        """From now on, what is reached is reached lately."""
        self.reached |= self.lately
        self.lately.clear()
        self.slow = None

    async def at_await(self, site: int, awaitable: Awaitable[T]) -> T:
        """At an await of something that is there already."""

        async def wait() -> T:
            return await awaitable

        return await self.at_call(site, wait)

    async def at_call(self, site: int, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """At an await of a call."""
        fault = None if site in self.lately and site not in self.armed else self._take(site)
        if self.slow is not None and self.slow.site == site and self.slow.victim == NODE.get():
            await trio.sleep(SLOW_S)
        if fault is None:
            return await function(*args, **kwargs)
        match fault.mode:
            case Mode.BEFORE:
                raise fault.error()
            case Mode.AFTER:
                await function(*args, **kwargs)
                raise fault.error()
            case Mode.STALL:
                await trio.sleep(STALL_S)
            case Mode.SLOW:
                self.slow = fault
            case Mode.CANCEL:
                assert fault.victim is not None
                self.stop(fault.victim)
            case Mode.GARBLE:
                changed = tuple(_garbled(each, fault.chance) for each in args)
                if changed != args:
                    return await function(*changed, **kwargs)
                result = await function(*args, **kwargs)
                other: Any = _garbled(result, fault.chance)
                if other is result:
                    del result, other  # the error's traceback would keep open sockets that nobody has
                    raise fault.error()
                return other  # type: ignore[no-any-return]
        return await function(*args, **kwargs)


def _is_trio_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _garbled(value: object, chance: random.Random) -> object:
    """Other bytes in place of bytes; anything else as it is."""
    if not isinstance(value, bytes | bytearray) or not value:
        return value
    data, place = bytearray(value), chance.randrange(len(value))
    match chance.randrange(5):
        case 0:
            data[place] ^= 1 << chance.randrange(8)
        case 1:
            del data[place:]
        case 2:
            data[place:place] = chance.randbytes(chance.randrange(1, 64))
        case 3:
            data = bytearray(b"\x02\xff\n")  # a name that is not UTF-8, where names are negotiated
        case _:
            data = bytearray(chance.randbytes(len(data)))
    return type(value)(data)
