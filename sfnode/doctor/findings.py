"""One line of the doctor's report, and how a check is run so that none can hang or end the program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum

import trio

from protocol.errors import SfnodeError


class Verdict(Enum):
    """How a check came out; only FAIL makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    FAIL = "fail"
    UNKNOWN = "unknown"  # could not be found out; the text says why


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found.

    Attributes:
        check: its name.
        text: what was seen.
        advice: what to do; empty where all is well.
    """

    check: str
    verdict: Verdict
    text: str
    advice: str = ""


def ok(check: str, text: str) -> Finding:
    """It works."""
    return Finding(check=check, verdict=Verdict.OK, text=text)


def warning(check: str, text: str, advice: str) -> Finding:
    """It works, but not as well as it could."""
    return Finding(check=check, verdict=Verdict.WARNING, text=text, advice=advice)


def fail(check: str, text: str, advice: str) -> Finding:
    """A node would not work."""
    return Finding(check=check, verdict=Verdict.FAIL, text=text, advice=advice)


def unknown(check: str, text: str, advice: str = "") -> Finding:
    """It could not be found out."""
    return Finding(check=check, verdict=Verdict.UNKNOWN, text=text, advice=advice)


async def within(check: str, limit_s: float, run: Callable[[], Awaitable[Finding]]) -> Finding:
    """The check's finding; a failure when it takes longer than ``limit_s``, or ends with an error of ours."""
    try:
        with trio.fail_after(limit_s):
            return await run()
    except trio.TooSlowError:
        return fail(check, f"no answer within {limit_s:.0f} s", "the system hangs here: look at it with its own tools")
    except SfnodeError as error:
        return fail(check, str(error), "see above")
    except OSError as error:
        return fail(check, f"{error.strerror or error}", "check that this user may use what is named")


async def in_thread(check: str, limit_s: float, run: Callable[[], Finding]) -> Finding:
    """Like `within`, for a check that blocks: a disk that hangs holds up a thread, not the report."""

    async def start() -> Finding:
        return await trio.to_thread.run_sync(run, abandon_on_cancel=True)  # type: ignore[call-arg]  # the stubs are old

    return await within(check, limit_s, start)
