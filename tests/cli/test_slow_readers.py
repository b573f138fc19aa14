"""A node's output that nobody reads: a terminal stopped by Ctrl-S, or a pipe into a program that waits."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest

from protocol.errors import OperatorError
from sfnode.reporter import Reporter

LINES = 3_000  # far more than a pipe holds


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends."""
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_output__nobody_reads_it__keeps_nobody_waiting_and_comes_in_order_later(pipe: tuple[int, int]) -> None:
    """All of the node stood still: sessions, flood and page."""
    read, write = pipe
    with open(write, "w", closefd=False) as stream:
        reporter = Reporter(is_json=True, stream=stream)
        with reporter.unhurried():
            for number in range(LINES):
                reporter.event("step", number=number, text="x" * 100)
            with open(read, closefd=False) as lines:
                assert [json.loads(next(lines))["number"] for _ in range(LINES)] == list(range(LINES))


def test_output__nobody_ever_reads_it__the_program_ends(pipe: tuple[int, int]) -> None:
    _, write = pipe
    started_s = time.monotonic()
    with open(write, "w", closefd=False) as stream:
        reporter = Reporter(stream=stream)
        with reporter.unhurried():
            for _ in range(20_000):
                reporter.event("step", "x" * 100)
    assert time.monotonic() - started_s < 30.0


def test_output__its_reader_is_gone__is_an_error_at_one_of_the_next_lines() -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as stream:
        reporter = Reporter(stream=stream)
        with reporter.unhurried():
            reporter.event("step", "a line that is lost")
            with pytest.raises(OperatorError, match="cannot write to the standard output: Broken pipe"):
                report_patiently(reporter)
            reporter.event("step", "a line on the way out, which nobody reads")


def report_patiently(reporter: Reporter) -> None:
    for _ in range(1_000):
        reporter.event("step", "a line")
        time.sleep(0.01)
