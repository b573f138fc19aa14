"""The program's output while it works: one line per event, as text or, if requested, as JSON."""

import io
import json
import logging
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TextIO

from protocol.errors import OperatorError
from sfnode.storage import disk

_PATIENCE_S = 2.0  # shorter work needs no progress line
_SCREEN_PAUSE_S = 0.5
_LINE_PAUSE_S = 5.0
_PLAIN_PAUSE_S = 30.0  # between progress lines that stay: in a file, a pipe, a journal
_UNREAD_MAX = 10_000  # lines that wait for a reader; further ones are lost
_LAST_LINES_S = 2.0  # for a reader to take what is left at the end


class Reporter:
    """Writes events. ``event`` lines stay; ``progress`` lines replace each other on a terminal, and are rare elsewhere.

    Args:
        is_json: write one JSON object per line, including all progress.
        stream: stdout by default.
        level: the least level to show.
        is_verbose: show people the details, too.
        clock: seconds.
    """

    def __init__(
        self,
        *,
        is_json: bool = False,
        stream: TextIO | None = None,
        level: int = logging.INFO,
        is_verbose: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stdout
        self._write: Callable[[str], None] = self._write_now
        self._is_json, self._is_verbose = is_json, is_verbose
        self._is_living = self._stream.isatty() and not is_json
        self._is_line_open = False
        self._work = ""
        self._level, self._reasons = level, set[str]()
        self._clock, self._progress_s = clock, -math.inf
        self.listeners: list[Callable[[int, tuple[str, ...]], None]] = []  # called with level and lines of each event

    def event(self, name: str, *lines: str, **fields: object) -> None:
        """Report an event: ``lines`` for people, ``name`` and ``fields`` for programs.

        A line may contain text of strangers: it stays one line, and every invisible character is escaped.
        """
        self.event_at(logging.INFO, name, *lines, **fields)

    def detail(self, name: str, *lines: str, **fields: object) -> None:
        """Report an event that people read where they have asked for details; see `event`."""
        self.event(name, *(lines if self._is_verbose else ()), **fields)

    def event_at(self, level: int, name: str, *lines: str, **fields: object) -> None:
        """Report an event with a level of Python's ``logging``; see `event`."""
        if level < self._level:
            return
        for listener in self.listeners:
            listener(level, lines)
        if self._is_json:
            self._write_json(name, fields)
            return
        self.finish()
        for line in lines:
            self._print(printable(line))

    def event_once(self, level: int, name: str, reason: str, **fields: object) -> None:
        """Report an event, unless the same reason was reported before: what is looked at every second may last."""
        if reason not in self._reasons:
            self._reasons.add(reason)
            self.event_at(level, name, reason, reason=reason, **fields)

    def begin(self, name: str, work: str, **fields: object) -> None:
        """Name long work at the end of progress lines from now on; an empty ``work`` ends it. JSON gets a line."""
        self._work = work and f"; {work}"
        if self._is_json and work:
            self._write_json(name, fields)

    def progress(self, name: str, text: str, **fields: object) -> None:
        """Show the present state of the work; ``text`` is escaped as a line of `event`."""
        text += self._work
        if self._is_json:
            self._write_json(name, fields)
        elif self._is_living:
            self._print(f"\r\x1b[2K{printable(text)}", end="")
            self._is_line_open = True
        elif self._clock() - self._progress_s >= _PLAIN_PAUSE_S:
            self._progress_s = self._clock()
            self._print(printable(text))

    @property
    def pause_s(self) -> float:
        """Return the seconds between progress lines."""
        return _SCREEN_PAUSE_S if self._is_living else _LINE_PAUSE_S

    def finish(self) -> None:
        """End an open progress line."""
        if self._is_line_open:
            self._is_line_open = False
            self._print("")

    @contextmanager
    def unhurried(self) -> Iterator[None]:
        """Let a thread write within the block, so that nobody waits for a terminal that is stopped or a pipe not read.

        It writes to the file itself: the interpreter would wait at its end for the lock of a buffered one.
        """
        try:
            file = self._stream.fileno()
        except (OSError, ValueError):  # it is in memory, or closed
            yield
            return
        waiting: queue.Queue[bytes] = queue.Queue(_UNREAD_MAX)
        failed: list[OSError] = []

        def write_waiting() -> None:
            while not failed and (unwritten := waiting.get()):
                try:
                    while unwritten:
                        unwritten = unwritten[os.write(file, unwritten) :]
                except OSError as error:
                    failed.append(error)

        def write(text: str) -> None:
            if failed:
                raise failed[0]
            with suppress(queue.Full):
                waiting.put_nowait(text.encode(self._stream.encoding))

        writer = threading.Thread(target=write_waiting, name="output", daemon=True)
        writer.start()
        self._write = write
        try:
            yield
        finally:
            self._write = self._write_now
            with suppress(queue.Full):
                waiting.put(b"", timeout=_LAST_LINES_S)  # no line is empty
                writer.join(_LAST_LINES_S)

    def _write_json(self, name: str, fields: Mapping[str, object]) -> None:
        self._print(json.dumps({"event": name, "time": round(time.time(), 3), **fields}))

    def _print(self, text: str, end: str = "\n") -> None:
        encoding = self._stream.encoding or "utf-8"  # None for a stream in memory, which takes all characters
        shown = text.encode(encoding, "backslashreplace").decode(encoding)
        try:
            self._write(shown + end)
        except OSError as error:  # the disk is full, or the reader of our output is gone
            abandon(self._stream)
            self._stream, self._write = io.StringIO(), self._write_now  # nobody reads what is printed on the way out
            raise cannot_write(error) from None

    def _write_now(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


@contextmanager
def telling(clock: Callable[[], float] = time.monotonic) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that long work calls with its text, the bytes done, and the total (0: unknown).

    It shows a line on standard error, but only after the work has taken `_PATIENCE_S`.
    """
    reporter = Reporter(stream=sys.stderr)
    started = shown = clock()

    def show(text: str, done: int, total: int) -> None:
        nonlocal shown
        now = clock()
        if now - started < _PATIENCE_S or now - shown < reporter.pause_s:
            return
        shown = now
        share = f" of {total / 1e6:,.0f}" if total else ""
        reporter.progress("working", f"{text}: {done / 1e6:,.0f}{share} MB", what=text, bytes=done, bytes_in_all=total)

    try:
        yield show
    finally:
        reporter.finish()


@contextmanager
def counting(
    text: str, unit: str, clock: Callable[[], float] = time.monotonic, *, is_json: bool = False
) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that counted work calls with how many of how many ``unit`` are done (0: of an unknown number).

    It shows a line on standard error, of JSON or with the speed and the time left, after `_PATIENCE_S`. A lower count
    than before begins another part of the work, whose speed is measured anew.
    """
    reporter = Reporter(stream=sys.stderr, is_json=is_json)
    started = shown = clock()
    last = 0

    def show(done: int, total: int) -> None:
        nonlocal started, shown, last
        now = clock()
        started, last = now if done < last else started, done
        if now - started < _PATIENCE_S or now - shown < reporter.pause_s:
            return
        shown, rate = now, done / (now - started)
        line = f"{text}: {done:,}{f' of {total:,}' if total else ''} {unit}, {rate:,.1f} a second"
        if total:
            line += f", {format_seconds((total - done) / rate) if rate else '?'} left"
        reporter.progress("working", line, what=text, done=done, in_all=total)

    try:
        yield show
    finally:
        reporter.finish()


@contextmanager
def waiting(text: str, *, is_json: bool = False) -> Iterator[None]:
    """Show a line on standard error, with the seconds, while the block takes longer than `_PATIENCE_S`."""
    reporter, started, is_over = Reporter(stream=sys.stderr, is_json=is_json), time.monotonic(), threading.Event()

    def show() -> None:
        with suppress(OperatorError):  # nobody reads it any more
            while not is_over.wait(reporter.pause_s if time.monotonic() - started > _PATIENCE_S else _PATIENCE_S):
                seconds = round(time.monotonic() - started)
                reporter.progress("working", f"{text}, {seconds} s", what=text, seconds=seconds)

    shower = threading.Thread(target=show, name="waiting", daemon=True)
    shower.start()
    try:
        yield
    finally:
        is_over.set()
        shower.join()
        reporter.finish()


def counted(count: int, noun: str) -> str:
    """Return a number and what it counts: "1 peer", "2 peers", "1,200 updates"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_seconds(seconds: float) -> str:
    """Return a duration in words: "45 s", "3 min 20 s", "2 h 5 min", "40 days"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_rest = divmod(minutes, 60)
    if hours >= 72:
        return f"{hours / 24:.0f} days"
    if hours:
        return f"{hours} h {minutes_rest} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def cannot_write(error: OSError) -> OperatorError:
    """Return the error for a standard output that cannot be written."""
    return OperatorError(f"cannot write to the standard output: {disk.describe_os_error(error)}")


def abandon(stream: TextIO) -> None:
    """Point a stream that cannot be written to /dev/null, so that the interpreter's last flush does not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def printable(text: str) -> str:
    """Return ``text`` with every invisible character escaped.

    Names and reasons come from peers: they must not move the cursor, forge a line or reverse the direction of writing.
    """
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def format_rate(bytes_per_second: float) -> str:
    """Return bytes per second in words: "3.1 kB/s"."""
    for unit in ("B/s", "kB/s", "MB/s"):
        if bytes_per_second < 1_000:
            return f"{bytes_per_second:.1f} {unit}"
        bytes_per_second /= 1_000
    return f"{bytes_per_second:.1f} GB/s"


def described_bytes(done: int, total: int) -> str:
    """Return two sizes in one unit, such as "120 of 270 MB" or "1.2 of 2.6 GB"."""
    if total >= 1_000_000_000:
        return f"{done / 1e9:.1f} of {total / 1e9:.1f} GB"
    if total >= 1_000_000:
        return f"{done / 1e6:.0f} of {total / 1e6:.0f} MB"
    return f"{done / 1e3:.0f} of {total / 1e3:.0f} kB"
