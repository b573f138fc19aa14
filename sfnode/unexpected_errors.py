"""Slips: unforeseen exceptions, contained so that they do not end the node.

A slip is a bug of ours or of a library. The node goes on without the turn, the session or the file in which the slip
happened. It counts every slip and logs the first of each kind with its traceback. Only the errors in `ENDINGS` end a
node; every other exception that leaves a session, a loop or the core goes through here.
"""

import logging
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

import trio

from protocol.errors import OperatorError, StateMismatchError, StorageDamagedError, UnsettledError
from sfnode.event_log import log

# These end a node: a person must act, its disk or its arithmetic cannot be trusted, or it was to leave and cannot.
ENDINGS = (OperatorError, StorageDamagedError, StateMismatchError, UnsettledError)
PAUSE_START_S = 1.0  # before a retry after a slip; doubled by each further slip, ...
PAUSE_MAX_S = 60.0  # ... up to this; reset after this long without a slip
KINDS_MAX = 256  # logged with traceback at most; slips at varying places must not fill memory and disk


@dataclass(frozen=True, slots=True, kw_only=True)
class SlipState:
    """The number of slips since the node's start, and the kind of the last one; empty if there was none."""

    count: int = 0
    last: str = ""


class Slips:
    """Counts, logs and contains the slips of one node."""

    def __init__(self) -> None:
        self.state = SlipState()
        self._kinds: set[str] = set()

    def note(self, where: str, error: Exception, **fields: str) -> None:
        """Count and log ``error``; call it from the handler. ``where`` names the part of the node that goes on."""
        cause: BaseException = error
        while isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        kind = f"{type(cause).__name__} in {where}, {_place(cause)}"
        self.state = SlipState(count=self.state.count + 1, last=kind)
        is_new = kind not in self._kinds and len(self._kinds) < KINDS_MAX
        self._kinds |= {kind} if is_new else set()
        log(logging.ERROR if is_new else logging.DEBUG, "slip", is_failure=True, where=where, slip=kind, **fields)

    def contained(self, where: str, endings: tuple[type[Exception], ...] = ENDINGS) -> "Boundary":
        """Return a context that notes an exception of its body as a slip and swallows it."""
        return Boundary(partial(self.note, where), endings)

    async def outlive(
        self, where: str, work: Callable[[], Awaitable[None]], endings: tuple[type[Exception], ...] = ENDINGS
    ) -> None:
        """Run ``work`` until it returns; after each slip run it again, with growing pauses. Raise only ``endings``."""
        pause_s = PAUSE_START_S
        while True:
            started_s = trio.current_time()
            with self.contained(where, endings):
                await work()
                return
            if trio.current_time() - started_s > PAUSE_MAX_S:
                pause_s = PAUSE_START_S
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)


class Boundary:
    """A context that lets no exception but ``endings`` out, and calls ``note`` with each exception that it swallows.

    Cancellation passes through, even when it arrives in one group with an exception.
    """

    def __init__(self, note: Callable[[Exception], None], endings: tuple[type[Exception], ...] = ()) -> None:
        self._note = note
        self._endings = endings

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> bool:
        slip, rest = (None, None) if error is None else split(error, self._endings)
        if slip is None:
            return False
        self._note(slip)
        if rest is not None:
            raise rest from None
        return True


def split(
    error: BaseException, endings: tuple[type[Exception], ...] = ENDINGS
) -> tuple[Exception | None, BaseException | None]:
    """Split an error or a group into its slips and the rest, which must be raised again; None for an empty part."""
    if isinstance(error, BaseExceptionGroup):
        slips, rest = error.split(
            lambda each: not isinstance(each, BaseExceptionGroup) and split(each, endings)[0] is each
        )
        assert slips is None or isinstance(slips, Exception)  # a group of nothing but Exceptions is an ExceptionGroup
        return slips, rest
    if isinstance(error, Exception) and not isinstance(error, endings):
        return error, None
    return None, error


def _place(error: BaseException) -> str:
    """Return file and line of the innermost frame in our own code, as people copy it into a report."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if {"sfnode", "protocol"} & set(Path(frame.filename).parts[:-1])]
    ours = [frame for frame in ours if Path(frame.filename).name != Path(__file__).name] or list(frames)
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "no place"
