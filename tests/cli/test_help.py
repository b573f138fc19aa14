"""What `--help` prints is plain English: each command and each option explains itself in whole sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from sfnode.cli import cli
from tests.support.commands import commands_below

# The word that each help begins with: it says what the command or the option does. Add a verb when you need one.
VERBS = frozenset(
    "Add Allow Apply Ask Change Check Compare Compute Count Dial Do Draw Encrypt Examine Exclude Fail "
    "Fine-tune Give Hold Join Keep Learn Let Listen Load Look Lower Make Measure Pause Print Put "
    "Read Remove Repeat Replace Restore Resume Run Say Scale Search Send Serve Show Sign Start Stop Take Tell Train "
    "Try Use Verify Wait Write".split()
)
WORDS_MIN = 4
DEFAULT = re.compile(r"\s*\[default: [^]]*\]$")


def faults(text: str | None) -> Iterator[str]:
    """What keeps a help from being a sentence that a newcomer understands."""
    said = DEFAULT.sub("", text or "").strip()
    words = said.split()
    if not words:
        yield "says nothing"
        return
    if words[0].rstrip(",") not in VERBS:
        yield f"begins with {words[0]!r}: say what it does, with a verb"
    if not said.endswith("."):
        yield "does not end with a period"
    if len(words) < WORDS_MIN:
        yield f"has fewer than {WORDS_MIN} words"
    if re.search(r"\b(he|his|him)\b", said, re.IGNORECASE):
        yield "speaks of men: say they"
    if re.search(r"(?<!there )\b(is|are) no\b", said):
        yield 'says "is no": say "is not a"'


def helps() -> Iterator[tuple[str, str | None]]:
    """Every text that `--help` prints, with the place where it stands."""
    for path, command in [((), cli), *commands_below(cli)]:
        name = " ".join(("sfnode", *path))
        yield name, (command.help or "").split("\n\n")[0].replace("\n", " ")
        for option in command.params:
            if isinstance(option, click.Option) and option.name not in ("help", "version"):
                yield f"{name} {option.opts[0]}", option.help


HELPS = tuple(helps())


@pytest.mark.parametrize(("place", "text"), HELPS, ids=[place for place, _ in HELPS])
def test_help__command_or_option__is_a_plain_sentence(place: str, text: str | None) -> None:
    assert list(faults(text)) == [], f"{place}: {text}"


def test_help__range_of_an_option__names_the_bounds_that_it_has() -> None:
    """`testnet --points-min` had "[x<=None]"."""
    for path, command in commands_below(cli):
        shown = command.get_help(click.Context(command))
        assert "=None" not in shown, path


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "says nothing"),
        ("  [default: 3]", "says nothing"),
        ("Of the weights.", "begins with 'Of'"),
        ("A direction's: one sign, or all.", "begins with 'A'"),
        ("How many invitations there are.", "begins with 'How'"),
        ("train on this JSONL file.", "begins with 'train'"),
        ("Train on this JSONL file", "period"),
        ("Train on this JSONL file  [default: none]", "period"),
        ("Train on this.", "words"),
        ("Ask the owner for his key.", "speaks of men"),
        ("Stop when a file is no manifest.", "is not a"),
    ],
)
def test_help__fragment__is_refused_with_the_reason(text: str | None, fault: str) -> None:
    assert any(fault in found for found in faults(text))


@pytest.mark.parametrize(
    "text", ["Train on this JSONL file.  [default: that of the demo]", "Stop where there is no way on."]
)
def test_help__sentence__is_taken(text: str) -> None:
    assert list(faults(text)) == []


def test_help__of_sfnode__shows_every_command_once_in_a_section_and_cuts_no_sentence() -> None:
    listed = CliRunner().invoke(cli, ["--help"], terminal_width=80).output
    assert all(
        len(re.findall(rf"^  {name} +[A-Z]", listed, re.MULTILINE)) == 1
        for name in cli.list_commands(click.Context(cli))
    )
    assert "Commands:" not in listed and "..." not in listed.partition("Options:")[2]
