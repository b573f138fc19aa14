"""Whether a node works now, and if not, why: a pure function of the operator's limits and of the moment."""

import math
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sfnode.reporter import format_seconds
from sfnode.run import LimitOptions, OnBattery, WorkingHours, parse_hours, parse_size

# Shares of all cores that other programs use. A working node pauses above the first, and a paused node resumes below
# the second. In between nothing changes, so that the node does not switch with every click.
BUSY_ABOVE = 0.25
IDLE_BELOW = 0.10


class PauseReason(StrEnum):
    """Names a reason for which a node does not work."""

    OPERATOR = "operator"
    MEMORY = "memory"
    BATTERY = "battery"
    HOURS = "hours"
    LOAD = "load"
    PROGRAM = "program"
    PRIVACY = "privacy"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLimits:
    """Holds what an operator allows.

    Attributes:
        hours: of local time; None: always.
        memory_bytes_max: for node and worker together; None: no limit.
        pause_when: names of programs; the node does not work while one of them runs.
        disk_bytes_max: for the data directory; None: no limit.
    """

    hours: WorkingHours | None = None
    memory_bytes_max: int | None = None
    only_when_idle: bool = False
    works_on_battery: bool = False
    pause_when: tuple[str, ...] = ()
    disk_bytes_max: int | None = None
    keeps_awake: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Holds the circumstances on which the decision depends.

    Attributes:
        now: local time.
        held_until_s: until when the operator has paused the node, in seconds since 1970; infinity: until `resume`.
        is_working: the decision before.
        memory_peak_bytes: the most that node and worker have used in this life.
        load_of_others: share of all cores that other programs use; None before the first measurement.
        program: that runs and is one of `WorkLimits.pause_when`; empty: none.
        spent: why the noise on this node's messages allows no further one; empty while it does.
    """

    now: datetime
    held_until_s: float = 0.0
    is_working: bool = True
    memory_peak_bytes: int = 0
    is_on_battery: bool = False
    load_of_others: float | None = None
    program: str = ""
    spent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Holds the reason for which the node does not work; ``text`` says in words when or how it goes on."""

    reason: PauseReason
    text: str


def work_limits(options: LimitOptions) -> WorkLimits:
    """Parse the options that were typed. OperatorError."""
    return WorkLimits(
        hours=None if options.hours is None else parse_hours(options.hours),
        memory_bytes_max=None if options.max_memory is None else parse_size(options.max_memory),
        only_when_idle=options.only_when_idle,
        works_on_battery=options.on_battery is OnBattery.WORK,
        pause_when=options.pause_when,
        disk_bytes_max=None if options.max_disk is None else parse_size(options.max_disk),
        keeps_awake=options.keep_awake,
    )


def decide(limits: WorkLimits, moment: Moment) -> Pause | None:
    """Return None if the node should work, else the reason that lasts longest."""
    if moment.held_until_s > moment.now.timestamp():
        return Pause(reason=PauseReason.OPERATOR, text=f"by `sfnode pause`, {_end_of_hold(moment)}")
    if moment.spent:
        return Pause(reason=PauseReason.PRIVACY, text=moment.spent)
    limit, peak = limits.memory_bytes_max, moment.memory_peak_bytes
    if limit is not None and peak > limit:
        text = (
            f"node and worker took {peak / 1e6:,.0f} MB of {limit / 1e6:,.0f} MB (--max-memory): the worker was ended. "
            "Start again with more, or with a smaller --dtype"
        )
        return Pause(reason=PauseReason.MEMORY, text=text)
    if moment.is_on_battery and not limits.works_on_battery:
        return Pause(reason=PauseReason.BATTERY, text="on battery, again on mains power (--on-battery)")
    minute = 60 * moment.now.hour + moment.now.minute
    if limits.hours is not None and not limits.hours.covers(minute):
        left_s = 60 * limits.hours.minutes_until(minute) - moment.now.second
        hours, minutes = divmod(-(-left_s // 60), 60)
        left = f"{hours} h {minutes} min" if hours else f"{minutes} min"
        text = f"outside {limits.hours.text}, again in {format_seconds(left_s) if left_s < 60 else left}"
        return Pause(reason=PauseReason.HOURS, text=text)
    if moment.program:
        return Pause(reason=PauseReason.PROGRAM, text=f"{moment.program} runs, again when it has ended (--pause-when)")
    if not limits.only_when_idle:
        return None
    load, most = moment.load_of_others, BUSY_ABOVE if moment.is_working else IDLE_BELOW
    if load is None:
        return Pause(reason=PauseReason.LOAD, text="looking how busy other programs are (--only-when-idle)")
    if load > most:
        text = f"other programs use {load:.0%} of the processor, again below {IDLE_BELOW:.0%} (--only-when-idle)"
        return Pause(reason=PauseReason.LOAD, text=text)
    return None


def _end_of_hold(moment: Moment) -> str:
    if math.isinf(moment.held_until_s):
        return "until `sfnode resume`"
    end = datetime.fromtimestamp(moment.held_until_s, tz=moment.now.tzinfo)
    day = "" if end.date() == moment.now.date() else f" on {end:%Y-%m-%d}"
    return f"until {end:%H:%M}{day}, or until `sfnode resume`"
