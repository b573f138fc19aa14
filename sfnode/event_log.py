"""The log: every part of a node reports events here, each with a name, fields and a level.

The parts call :func:`log`. :func:`show_log` decides once what becomes of the events: it shows those from the level of
``--log-level`` on in the program's own output, as text or JSON. Without that call nothing is shown.
"""

import logging
import time
import traceback

from sfnode.reporter import Reporter

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
REPEAT_S = 10.0  # one line per event in this time, so that a peer cannot fill the disk; the next counts the rest

_LOGGER = logging.getLogger("sfnode")
_LOGGER.addHandler(logging.NullHandler())  # without it, logging prints warnings on stderr even if no log was requested


def log(level: int, name: str, *, is_failure: bool = False, **fields: str | float | bool | None) -> None:
    """Log the event ``name`` with its fields; ``is_failure`` adds the exception being handled."""
    _LOGGER.log(level, name, exc_info=is_failure, extra={"fields": fields})


def show_log(reporter: Reporter, level: int) -> logging.Handler:
    """Show events of this level and above as lines of ``reporter`` from now on, and return the new handler."""
    handler = _ReporterHandler(reporter, level)
    _LOGGER.setLevel(level)
    _LOGGER.propagate = False
    _LOGGER.addHandler(handler)
    return handler


class _ReporterHandler(logging.Handler):
    """Shows each event at most once in REPEAT_S; at level ``debug`` every time."""

    def __init__(self, reporter: Reporter, level: int) -> None:
        super().__init__(level)
        self._reporter = reporter
        self._shown_s: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Show the record, or only count it if the same event was shown less than REPEAT_S ago."""
        name, now_s = record.getMessage(), time.monotonic()
        fields = dict(vars(record).get("fields", {}))
        event = f"{name} {fields.get('slip', '')}"  # each kind of slip is an event of its own: it comes only once
        if self.level > logging.DEBUG and now_s - self._shown_s.get(event, -REPEAT_S) < REPEAT_S:
            self._left_out[event] = self._left_out.get(event, 0) + 1
            return
        self._shown_s[event] = now_s
        if left_out := self._left_out.pop(event, 0):
            fields["left_out"] = left_out
        if record.exc_info and record.exc_info[1]:
            fields["error"] = repr(record.exc_info[1])
            if record.levelno >= logging.ERROR:  # our bug; anything less is a peer's fault, and needs no traceback
                fields["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        text = " ".join(f"{key}={value}" for key, value in fields.items())
        self._reporter.event_at(record.levelno, name, f"{record.levelname.lower()}: {name} {text}", **fields)
