"""Every command with every kind of wrong value: it says what is wrong and where, ends, and touches nothing of yours."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click
import pytest

from sfnode.cli.exit_codes import ExitCode
from sfnode.cli.option_values import Whole
from sfnode.reporter import abandon
from tests.operators.called import REACHED, Called, call, names_of, short_of_work
from tests.operators.planted_folder import Guard, plant
from tests.operators.wrong_values import GOOD_CALLS, Case, cases_of, commands, good_call

COMMANDS = commands()
NEEDS_A_RUNNING_NODE = ("status", "stop", "top")
# What a command may change in a data directory that was there: its own files, never a key, a manifest or a record.
ITS_OWN = {
    "config set": ("node.toml",),
    "config unset": ("node.toml",),
    "join": ("node.toml", "end.json"),
    "start": ("node.toml", "end.json"),
}
_TOO_SHORT = 2  # "", "@", "..": an error calls them by other names
SHOWN = 60  # characters of a long value that an error shows at least


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    """The planted folder, which is the current one."""
    home, folder, backup = (tmp_path_factory.mktemp(name) for name in ("home", "planted", "backup"))
    before = Path.cwd()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("HF_HUB_OFFLINE", "1")
        plant(folder)
        os.chdir(folder)
        with short_of_work():
            assert call("log", "export", "good.sflog", "--data-dir", "node").code == 0
            backed_up = call("id", "backup", "good.backup", "--data-dir", "node", "--passphrase-file", "passphrase")
            assert backed_up.code == 0, backed_up
            yield Guard(folder, backup)
        os.chdir(before)


def test_good_calls__each_command__has_one() -> None:
    assert GOOD_CALLS.keys() == COMMANDS.keys()


def test_numbers__each_integer_of_a_command_line__has_a_bound() -> None:
    """The work of a number may grow with it: `run invite --count 2147483648` signed for days."""
    kinds = [each.type for command in COMMANDS.values() for each in command.params]
    whole = [kind for kind in kinds if isinstance(kind, click.types.IntParamType)]
    assert whole and all(isinstance(kind, Whole) or getattr(kind, "max", None) is not None for kind in whole)


@pytest.mark.parametrize("name", COMMANDS)
def test_command__right_values__does_its_work(name: str, guard: Guard) -> None:
    """So that the table finds what is wrong with one value and not with the rest."""
    outcome = call(*good_call(name))
    assert outcome.is_accepted or (name in NEEDS_A_RUNNING_NODE and outcome.code == 1 and not outcome.crash), outcome
    guard.restore()


TO_PROGRAMS = [name for name, each in COMMANDS.items() if any("--json" in param.opts for param in each.params)]


@pytest.mark.parametrize("name", TO_PROGRAMS)
def test_command__with_json__writes_nothing_but_json_to_its_output(name: str, guard: Guard) -> None:
    """Programs read every line of it. Warnings for people stand on the standard error."""
    outcome = call(*good_call(name), "--json")
    lines = outcome.stdout.splitlines()
    assert outcome.crash is None and all(isinstance(json.loads(line), dict | list) for line in lines), outcome
    assert lines or REACHED in outcome.stderr or name in NEEDS_A_RUNNING_NODE, outcome
    guard.restore()


# Commands share most of their parameters: a value that one half leaves out at one command is tried at the next.
@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", COMMANDS)
def test_command__any_wrong_value__is_named_and_nothing_is_lost(name: str, half: int, guard: Guard) -> None:
    found = []
    first = (half + [*COMMANDS].index(name)) % 2
    for case in islice(cases_of(name, COMMANDS[name]), first, None, 2):
        outcome = call(*case.arguments)
        made, lost = guard.changes()
        faults = [*_faults(name, case, outcome), *_losses(name, lost)]
        found += [f"{case.parameter.opts[0]} {case.value[:SHOWN]!r}: {fault}" for fault in faults]
        if made or lost:
            guard.restore()
    assert not found, "\n".join(found)


def _faults(name: str, case: Case, outcome: Called) -> Iterator[str]:
    """What is wrong with how the command ended."""
    if outcome.crash is not None:
        yield f"a traceback: {outcome.crash!r:.300}"
        return
    allowed = set(ExitCode) if name == "status" else {ExitCode.DONE, ExitCode.FAILED, ExitCode.USAGE}
    if outcome.code not in allowed:
        yield f"exit code {outcome.code}"
    if outcome.is_accepted or (name == "top" and outcome.code == 1):
        return
    if len(outcome.errors) != 1 or not outcome.stderr.endswith(f"{outcome.errors[0]}\n"):
        yield f"no error at the end: {outcome.stderr[-300:]!r}"
    elif len(case.value) > _TOO_SHORT and not any(part in outcome.errors[0] for part in _names(case)):
        yield f"it does not say what is wrong: {outcome.errors[0][:300]!r}"


def _names(case: Case) -> Iterator[str]:
    """What an error may name: the parameter, the value, where that leads to, or what else was given."""
    yield from names_of(case.parameter)
    for text in (case.value, *case.arguments):
        plain = text.removeprefix("@")[:SHOWN]
        if len(plain) > 1:
            yield from (plain, plain.encode("unicode_escape").decode("ascii"))
    with_links = os.path.realpath(case.value.removeprefix("@")[:SHOWN])
    yield from (with_links, os.path.dirname(with_links))


def _losses(name: str, lost: list[str]) -> Iterator[str]:
    for path in lost:
        if Path(path).name not in ITS_OWN.get(name, ()) or not path.startswith("node"):
            yield f"{path} was changed or removed"


@pytest.mark.parametrize("is_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("place", ["left", "full"])
@pytest.mark.parametrize("name", COMMANDS)
def test_command__output_cannot_be_written__ends_without_traceback(
    name: str, place: str, is_json: bool, guard: Guard
) -> None:
    if is_json and not any("--json" in each.opts for each in COMMANDS[name].params):
        pytest.skip("it has no --json")
    stdout = _unwritable(place)
    outcome = call(*good_call(name), *(["--json"] if is_json else []), stdout=stdout)
    abandon(stdout)
    stdout.close()
    assert outcome.crash is None and outcome.code in (0, 1), outcome
    assert "Traceback" not in outcome.stderr and (place == "left" or outcome.code == 1 or "Error" not in outcome.stderr)
    guard.restore()


def _unwritable(place: str) -> io.TextIOWrapper:
    """A standard output whose reader has left, or whose disk is full."""
    if place == "full":
        return io.TextIOWrapper(io.BufferedWriter(io.FileIO("/dev/full", "w")))
    reader, writer = os.pipe()
    os.close(reader)
    return io.TextIOWrapper(io.BufferedWriter(io.FileIO(writer, "w")))
