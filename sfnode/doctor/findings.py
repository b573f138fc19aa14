"""The lines of the doctor's report. A check runs under a limit, so that none can hang or end the program."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial

import trio

from protocol.errors import SfnodeError


class Verdict(Enum):
    """Names the results of a check; only FAIL makes the command fail."""

    OK = "ok"
    WARNING = "warning"  # a node works, but not as well as it could
    FAIL = "fail"  # a node would not work
    UNKNOWN = "unknown"  # the check could not decide; the text says why


@dataclass(frozen=True, slots=True)
class Finding:
    """Holds the result of one check.

    Attributes:
        text: what the check saw.
        advice: what to do; empty where all is well.
    """

    verdict: Verdict
    check: str
    text: str
    advice: str = ""


ok, warning = partial(Finding, Verdict.OK), partial(Finding, Verdict.WARNING)
fail, unknown = partial(Finding, Verdict.FAIL), partial(Finding, Verdict.UNKNOWN)


async def within(check: str, limit_s: float, run: Callable[[], Awaitable[Finding]]) -> Finding:
    """Run a check and return its finding; a failure where it exceeds ``limit_s`` or raises SfnodeError or OSError."""
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
    """Run a check that blocks, as `within` does, in a thread: a disk that hangs does not hold up the report."""
    start = partial(trio.to_thread.run_sync, run, abandon_on_cancel=True)  # type: ignore[call-arg]  # the stubs are old
    return await within(check, limit_s, start)


def summary_of(findings: list[Finding]) -> Finding:
    """Return the last line of the report: the number of findings by verdict."""
    counts = {verdict: sum(each.verdict is verdict for each in findings) for verdict in Verdict}
    text = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    return ok("doctor", text) if not counts[Verdict.FAIL] else fail("doctor", text, "see the lines above")
