"""What a node prints: JSON lines for programs, a living line for people, one clear error when nobody can read it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from protocol.errors import OperatorError
from sfnode import reporter as reporter_module
from sfnode.reporter import Reporter, counting, format_rate, format_seconds, telling, waiting


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_reporter__pipe_without_json__gets_text_and_a_line_of_progress_every_half_minute() -> None:
    stream, now = io.StringIO(), iter([0.0, 0.0, 1.0, 29.0, 30.0, 30.0])
    reporter = Reporter(stream=stream, clock=lambda: next(now))
    reporter.event("started", "hello", port=4001)
    for step in range(4):
        reporter.progress("progress", f"step {step}", step=step)
    reporter.finish()
    assert stream.getvalue() == "hello\nstep 0\nstep 3\n"


def test_reporter__json_asked_for__gets_an_object_on_each_line() -> None:
    stream = Terminal()
    reporter = Reporter(stream=stream, is_json=True)
    reporter.event("started", "hello", port=4001)
    reporter.progress("progress", "step 1", step=1)
    reporter.finish()
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["port"]) == ("started", 4001) and first["time"] > 1e9
    assert (second["event"], second["step"]) == ("progress", 1)


def test_reporter__terminal__keeps_events_and_replaces_progress() -> None:
    stream = Terminal()
    reporter = Reporter(stream=stream)
    reporter.progress("progress", "step 1")
    reporter.progress("progress", "step 2")
    reporter.event("peer_joined", "a peer joined")
    reporter.progress("progress", "step 3")
    reporter.finish()
    reporter.finish()
    assert stream.getvalue() == "\r\x1b[2Kstep 1\r\x1b[2Kstep 2\na peer joined\n\r\x1b[2Kstep 3\n"


def test_reporter__long_work__ends_each_progress_line_until_it_is_over() -> None:
    stream, machine = Terminal(), io.StringIO()
    for reporter in (Reporter(stream=stream), Reporter(stream=machine, is_json=True)):
        reporter.begin("evaluating", "evaluating: 3 of 8 rows", done=3)
        reporter.progress("progress", "step 1", step=1)
        reporter.begin("", "")
        reporter.progress("progress", "step 2", step=2)
    assert stream.getvalue() == "\r\x1b[2Kstep 1; evaluating: 3 of 8 rows\r\x1b[2Kstep 2"
    lines = [json.loads(line) for line in machine.getvalue().splitlines()]
    assert [(line["event"], line.get("done"), line.get("step")) for line in lines] == [
        ("evaluating", 3, None), ("progress", None, 1), ("progress", None, 2)
    ]  # fmt: skip


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux: /dev/full is a disk that is always full")
def test_reporter__output_on_a_full_disk__is_an_error_and_then_silence() -> None:
    with open("/dev/full", "w") as full:
        reporter = Reporter(stream=full)
        with pytest.raises(OperatorError, match=r"cannot write to the standard output: the disk is full"):
            reporter.event("started", "hello")
        reporter.event("stopping", "goodbye")


def test_reporter__reader_gone__leaves_no_traceback_at_exit() -> None:
    script = "from sfnode.reporter import Reporter\nimport sys\nsys.stdin.read()\nReporter().event('a', 'b')\n"
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.close()
    process.stdin.close()
    last = process.stderr.read().splitlines()[-1]
    process.stderr.close()
    assert process.wait() == 1
    assert last == b"protocol.errors.OperatorError: cannot write to the standard output: Broken pipe"


@pytest.mark.parametrize(
    ("stream", "seconds", "said"),
    [
        (Terminal(), [1.9], ""),
        (Terminal(), [2.1], "\r\x1b[2Kfetching a model: 3 of 1,000 MB\n"),
        (Terminal(), [2.1, 2.2, 2.7], "\r\x1b[2Kfetching a model: 3 of 1,000 MB" * 2 + "\n"),
    ],
    ids=["soon done", "long", "longer"],
)
def test_telling__work_on_a_terminal__is_a_line_from_the_third_second_on(
    stream: Terminal, seconds: list[float], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _told_on(stream, seconds, monkeypatch) == said


def test_telling__work_elsewhere__is_a_line_every_five_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _told_on(io.StringIO(), [1, 3, 5, 8, 9], monkeypatch) == "fetching a model: 3 of 1,000 MB\n"


def _told_on(stream: io.StringIO, seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> str:
    """What is written when work of a gigabyte is told of after so many seconds."""
    now = iter([0.0, *seconds])
    monkeypatch.setattr(sys, "stderr", stream)
    with telling(lambda: next(now)) as tell:
        for _ in seconds:
            tell("fetching a model", 3_000_000, 10**9)
    return stream.getvalue()


def test_format_rate__any_size__has_a_fitting_unit() -> None:
    rates = [0.0, 999.0, 3_100.0, 2.5e6, 7e12]
    assert [format_rate(rate) for rate in rates] == ["0.0 B/s", "999.0 B/s", "3.1 kB/s", "2.5 MB/s", "7000.0 GB/s"]


def test_counting__long_work__says_how_fast_it_goes_and_how_long_it_will_take(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = Terminal(), iter([0.0, 1.0, 4.0])
    monkeypatch.setattr(sys, "stderr", stream)
    with counting("looking", "rows", lambda: next(now)) as tell:
        tell(100, 1_300)
        tell(400, 1_300)
    assert stream.getvalue() == "\r\x1b[2Klooking: 400 of 1,300 rows, 100.0 a second, 9 s left\n"


def test_counting__for_programs__is_lines_of_json(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, now = Terminal(), iter([0.0, 6.0])
    monkeypatch.setattr(sys, "stderr", stream)
    with counting("looking", "rows", lambda: next(now), is_json=True) as tell:
        tell(400, 1_300)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["what"], line["done"], line["in_all"]) == ("working", "looking", 400, 1_300)


def test_counting__another_part_begins__has_a_speed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial after a calibration of two minutes said "3 of 768 forward passes, 0.0 a second, 14 h 16 min left"."""
    stream, now = Terminal(), iter([0.0, 100.0, 160.0, 164.0])
    monkeypatch.setattr(sys, "stderr", stream)
    with counting("looking", "rows", lambda: next(now)) as tell:
        tell(900, 950)
        tell(3, 768)
        tell(43, 768)
    assert "3 of 768" not in stream.getvalue().replace("43 of 768", "")
    assert "looking: 43 of 768 rows, 10.8 a second, 1 min 7 s left" in stream.getvalue()


def test_waiting__work_of_more_than_two_seconds__is_named_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sfnode ask` loads its model on each call, and was silent for as long as that took."""
    monkeypatch.setattr(reporter_module, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(sys, "stderr", stream := io.StringIO())
    with waiting("loading the model"):
        assert stream.getvalue() == ""
        deadline = time.monotonic() + 20.0
        while not stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert stream.getvalue() == "loading the model, 0 s\n"
    with waiting("loading the model"):
        pass
    assert stream.getvalue().count("loading") == 1


def test_waiting__reader_of_stderr_is_gone__the_work_goes_on_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread that shows the line ended in a traceback, for which the interpreter looked for a stderr, too."""
    monkeypatch.setattr(reporter_module, "_PATIENCE_S", 0.01)
    ends = list[threading.ExceptHookArgs]()
    monkeypatch.setattr(threading, "excepthook", ends.append)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with waiting("loading the model"):
            deadline = time.monotonic() + 20.0
            while any(each.name == "waiting" for each in threading.enumerate()) and time.monotonic() < deadline:
                time.sleep(0.01)
    assert ends == [] and time.monotonic() < deadline


def test_format_seconds__any_length__has_fitting_units() -> None:
    told = ["0 s", "1 min 0 s", "3 min 20 s", "2 h 5 min", "71 h 59 min", "40 days"]
    assert [format_seconds(each) for each in (0.4, 59.6, 200, 7_500, 259_199, 3_456_000)] == told
