"""What strangers say is shown on a terminal, never obeyed: no escape sequence, no forged line, no crash."""

from __future__ import annotations

import io
import json

import pytest

from sfnode.reporter import Reporter

ESCAPE = "\x1b]0;title\x07"
FORGED = "bye\n2 updates\rError: all is lost"
# C0, DEL, C1 (0x9b is an escape sequence's start in one byte), directions of writing, separators, invisible marks
CONTROLS = "\x00\x07\x08\x09\x0b\x1b\x7f\x85\x9b\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ufeff"


class TerminalBytes(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def said(text: str, encoding: str = "utf-8") -> str:
    """What a terminal of that encoding gets to see of an event and of a progress line."""
    raw = io.BytesIO()
    stream = TerminalBytes(raw, encoding=encoding, newline="")
    reporter = Reporter(is_json=False, stream=stream)
    reporter.event("dial_failed", f"cannot reach it: {text}")
    reporter.progress("progress", text)
    reporter.finish()
    return raw.getvalue().decode(encoding)


def test_reporter__reason_with_line_breaks__stays_on_its_line() -> None:
    """A fault once: only callers that thought of it took line breaks out, and the one that reports failed dials did
    not. A node that refused us could write lines of its own into our terminal, such as a false error."""
    assert said(FORGED) == (
        "cannot reach it: bye\\n2 updates\\rError: all is lost\n"
        "\r\x1b[2Kbye\\n2 updates\\rError: all is lost\n"
    )  # fmt: skip


@pytest.mark.parametrize("control", CONTROLS, ids=lambda character: f"U+{ord(character):04X}")
def test_reporter__control_character__is_written_as_its_code(control: str) -> None:
    """A fault once: names and reasons of peers went to the terminal as they came."""
    ours = said("")
    assert said(control).count(control) == ours.count(control)
    assert said(f"a{control}b").count(control.encode("unicode_escape").decode()) == 2


def test_reporter__visible_text_of_any_language__is_left_as_it_is() -> None:
    assert "déjà vu, 訓練, ключ, עברית" in said("déjà vu, 訓練, ключ, עברית")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_reporter__text_that_the_terminal_cannot_show__is_escaped_and_ends_nothing(encoding: str) -> None:
    """A fault once: on a terminal that is not UTF-8 a peer's farewell in other letters ended our node."""
    assert said("訓練", encoding).startswith("cannot reach it: \\u8a13\\u7df4\n")


def test_reporter__event_of_several_lines__escapes_each_for_itself() -> None:
    stream = io.StringIO()
    Reporter(is_json=False, stream=stream).event("started", f"run {ESCAPE}", "listening on A", "listening on B")
    assert stream.getvalue() == "run \\x1b]0;title\\x07\nlistening on A\nlistening on B\n"


def test_reporter__json__carries_the_text_itself() -> None:
    stream = io.StringIO()
    Reporter(is_json=True, stream=stream).event("peer_left", "peer left", reason=ESCAPE + FORGED)
    (line,) = stream.getvalue().splitlines()
    assert line.isprintable()
    assert json.loads(line)["reason"] == ESCAPE + FORGED
