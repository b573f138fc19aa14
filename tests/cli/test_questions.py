"""What `sfnode init` asks at a terminal, a pseudo-terminal here, and that it asks nothing anywhere else."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import termios
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from sfnode.storage import decode_run_file
from tests.support.cli_calls import assert_teaches, call
from tests.support.fork_server import start

pytestmark = pytest.mark.slow  # processes of their own, which import torch

SECONDS_MAX = 60.0
DEMO = ("--model", "embedded:tiny-opt", "--task", "embedded:reviews")
PROMPT = re.compile(r"[^\n]*: \Z")  # what waits for an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a person sees of a command, their own answers among it."""

    code: int
    text: str

    @property
    def unasked(self) -> list[str]:
        """The arguments of the command that would have asked nothing."""
        (line,) = (line for line in self.text.splitlines() if line.startswith("unasked  "))
        words = shlex.split(line.removeprefix("unasked  "))
        assert words[:2] == ["sfnode", "init"]
        return words[2:]


def at_terminal(folder: Path, answers: list[str], *arguments: object) -> Seen:
    """Run ``sfnode init`` in ``folder`` and give one of ``answers`` to each question; fails if they are too few."""
    terminal, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, 1_000))  # so that no line is broken
    before = Path.cwd()
    os.chdir(folder)
    try:
        process = start(["init", *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=theirs)
    finally:
        os.chdir(before)
    os.close(theirs)
    text, left, until = "", list(answers), time.monotonic() + SECONDS_MAX
    try:
        while (read := _read(terminal, until)) is not None:
            text += read
            if PROMPT.search(text):
                os.write(terminal, f"{left.pop(0)}\n".encode())
    finally:
        os.close(terminal)
        if process.poll() is None and time.monotonic() > until:
            process.kill()
    assert not left, (left, text)
    return Seen(code=process.wait(timeout=SECONDS_MAX), text=text.replace("\r", ""))


def _read(terminal: int, until: float) -> str | None:
    """What came next; None: the other side has closed."""
    assert select.select([terminal], [], [], max(0.0, until - time.monotonic()))[0], "nothing came any more"
    try:
        return os.read(terminal, 65_536).decode() or None
    except OSError:  # EIO: Linux's way to say it
        return None


def test_init__nothing_given_at_a_terminal__defaults_make_a_run_and_are_told_as_a_command(tmp_path: Path) -> None:
    seen = at_terminal(tmp_path, ["", "", "", ""], "--plain", "--steps", "7")
    assert seen.code == 0, seen
    manifest = decode_run_file(tmp_path / "my.run").manifest
    assert (manifest.name, manifest.model.id, manifest.task.data) == ("my", "embedded:tiny-opt", "embedded:reviews")
    assert manifest.steps == 7
    assert "[embedded:tiny-opt]: " in seen.text and "[my.run]: " in seen.text
    assert seen.unasked == ["--plain", "--steps", "7", *DEMO, "--out", "my.run", "--name", "my"]
    assert "written  my.run" in seen.text


def test_init__command_that_was_told__asks_nothing_and_makes_the_same_manifest(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "label": 0}\n{"text": "b", "label": 1}\n', "utf-8")
    answers = ["", "own", "{text} It was", " no, yes", "rows.jsonl", "my first.run", "the first"]
    seen = at_terminal(tmp_path, answers, "--plain")
    assert seen.code == 0, seen
    first = decode_run_file(tmp_path / "my first.run").manifest
    assert (first.name, first.task.template, first.task.label_words) == ("the first", "{text} It was", (" no", " yes"))
    for made in ("my first.run", "my first.invite"):
        (tmp_path / made).unlink()
    again = at_terminal(tmp_path, [], *seen.unasked)
    assert again.code == 0 and "unasked" not in again.text, again
    assert decode_run_file(tmp_path / "my first.run").manifest == first


def test_init__wrong_answers__are_told_as_of_options_and_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "old.run").write_text("", "utf-8")
    answers = [
        "embedded:huge", "", "films", "own",
        "It was", " no, yes", "{sentence} It was", " no", "", " no, yes",
        "absent.jsonl", "private", "old.run", "new.run", "",
    ]  # fmt: skip
    seen = at_terminal(tmp_path, answers)
    assert seen.code == 0, seen
    errors = [line for line in seen.text.splitlines() if line.startswith("Error: ")]
    wanted = (
        "huge",
        "'films' is not one of",
        "in braces",
        "two or more",
        "no data file absent.jsonl",
        "old.run exists",
    )
    assert len(errors) == len(wanted) and all(part in line for part, line in zip(wanted, errors, strict=True)), errors
    manifest = decode_run_file(tmp_path / "new.run").manifest
    assert manifest.task.data == "private" and manifest.task.template == "{sentence} It was"
    assert "--private-data" in seen.unasked


def test_init__label_words_that_run_into_the_prompt__get_their_space_and_that_is_said(tmp_path: Path) -> None:
    given = ("--model", "embedded:tiny-opt", "--template", "{sentence} It was", "--private-data", "--out", "a.run")
    seen = at_terminal(tmp_path, ["no,yes"], *given)
    assert seen.code == 0 and "Note: taken as --labels ' no, yes' after" in seen.text, seen
    assert decode_run_file(tmp_path / "a.run").manifest.task.label_words == (" no", " yes")


def test_init__free_text__is_a_task_without_template_and_label_words(tmp_path: Path) -> None:
    given = ("--model", "embedded:tiny-opt", "--private-data", "--out", "a.run")
    seen = at_terminal(tmp_path, ["own", "", "", "{text}"], *given)
    assert seen.code == 0, seen
    assert seen.unasked == [*given, "--completion", "{text}"]
    assert decode_run_file(tmp_path / "a.run").manifest.task.completion == "{text}"


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (("--model", "embedded:huge"), "huge"),
        (("--steps", "many"), "'many' is not a valid integer"),
        (("--stpes", "7"), "No such option"),
        (("--data", "absent.jsonl", *DEMO), "absent.jsonl"),
        (("--template", "{a} b", "--labels", " no", *DEMO[:2]), "two or more"),
        (("--out", "."), "is a directory"),
    ],
    ids=str,
)
def test_init__something_given_is_wrong__is_told_before_any_question(
    given: tuple[str, ...], part: str, tmp_path: Path
) -> None:
    seen = at_terminal(tmp_path, [], *given)
    assert seen.code != 0 and part in seen.text, seen


def test_init__rows_that_do_not_fit__fails_and_the_answers_are_not_lost(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "label": 0}\n', "utf-8")
    seen = at_terminal(tmp_path, ["sst2", "rows.jsonl"], *DEMO[:2], "--out", "a.run")
    assert seen.code == 1 and "'sentence' is missing" in seen.text, seen
    assert seen.unasked == [*DEMO[:2], "--out", "a.run", "--task", "sst2", "--data", "rows.jsonl"]


@pytest.mark.parametrize("arguments", [("--json",), ("--help",), ("--task", "list")], ids=str)
def test_init__at_a_terminal_where_nobody_may_be_asked__asks_nothing(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    seen = at_terminal(tmp_path, [], *arguments)
    assert "unasked" not in seen.text
    assert ("Missing option '--out'" in seen.text) == (arguments == ("--json",))


def test_init__end_of_input_at_a_question__is_an_abort(tmp_path: Path) -> None:
    seen = at_terminal(tmp_path, ["\4"])
    assert seen.code == 1 and "Aborted!" in seen.text and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("missing", "part"),
    [("--out", "Missing option '--out'"), ("--model", "Missing option '--model'"), ("--task", "say what to learn")],
)
def test_init__off_a_terminal__the_error_names_what_is_missing(missing: str, part: str, tmp_path: Path) -> None:
    given = {"--model": DEMO[1], "--task": DEMO[3], "--out": str(tmp_path / "a.run")}
    words = [word for option, value in given.items() if option != missing for word in (option, value)]
    assert_teaches(call("init", *words), part)
