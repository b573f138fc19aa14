"""How commands end: exit codes as the documents say, errors as JSON where that is asked for, completion in bash."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from protocol import errors
from protocol.run.manifest import sign_manifest
from sfnode import cli as cli_package
from sfnode.cli import cli
from sfnode.cli.exit_codes import MEANINGS, ExitCode
from sfnode.cli.join import GROUPS, join
from sfnode.status import Health
from sfnode.storage.data_directory import DataDirectory
from tests import REPOSITORY
from tests.support.cli_calls import call
from tests.support.commands import commands_below
from tests.support.manifests import OWNER, small_manifest

TABLE = (REPOSITORY / "docs" / "commands.md").read_text("utf-8")


def rows(heading: str) -> dict[str, str]:
    """First and second column of the table below a heading."""
    section = TABLE.split(f"## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| (?!-)([^|]+?) +\| (.+?) +\|$", section, re.MULTILINE)
    return dict(found[1:])


# --- exit codes


def test_exit_codes__table_of_the_documents__is_that_of_the_code() -> None:
    assert rows("Exit codes") == {str(code.value): text for code, text in MEANINGS.items()}
    assert set(MEANINGS) == {*ExitCode, *Health}


def test_exit_codes__help__lists_all() -> None:
    told = " ".join(call("--help").stdout.split())
    assert all(f"{code.value} {text}" in told for code, text in MEANINGS.items())


def exits_by_number(source: str) -> list[str]:
    """Calls of exit, or raised SystemExits, whose code is a bare number."""
    return [
        ast.unparse(node)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("SystemExit", "sys.exit", "exit")
        and any(isinstance(each, ast.Constant) and isinstance(each.value, int) for each in node.args)
    ]


def test_exit_codes__all_commands__use_the_names() -> None:
    assert exits_by_number("raise SystemExit(7)\nsys.exit(ExitCode.DONE)") == ["SystemExit(7)"]
    files = sorted(Path(cli_package.__path__[0]).rglob("*.py"))
    assert len(files) > 20
    assert {str(file): found for file in files if (found := exits_by_number(file.read_text("utf-8")))} == {}


# --- errors as JSON


def failure(*arguments: object) -> tuple[int, dict[str, object]]:
    outcome = call(*arguments)
    assert outcome.stdout == ""
    (line,) = outcome.stderr.splitlines()
    told = json.loads(line)
    assert set(told) == {"error"} and told["error"]["exit_code"] == outcome.code
    return outcome.code, told["error"]


def test_errors__with_json__are_json_with_code_and_message(tmp_path: Path) -> None:
    code, error = failure("join", "--run", tmp_path / "none.run", "--json")
    assert (code, error["code"]) == (1, "operator") and "none.run" in str(error["message"])


def test_errors__about_a_node_in_another_state__are_told_apart_by_their_codes(tmp_path: Path) -> None:
    """All were `operator`: only its prose told a supervisor whether to wait, to start the node or to join."""

    def code_of(*arguments: object) -> object:
        return failure(*arguments, "--json")[1]["code"]

    node = DataDirectory(tmp_path / "node")
    node.path.mkdir(mode=0o700)
    assert code_of("status", "--data-dir", node) == code_of("start", "--data-dir", node) == "no_node"
    start = node.lock_start()
    assert code_of("status", "--data-dir", node) == code_of("pause", "--data-dir", node) == "starting"
    os.close(start)
    node.adopt(sign_manifest(small_manifest(), OWNER))
    assert code_of("status", "--data-dir", node) == code_of("stop", "--data-dir", node) == "not_running"
    lock = node.lock()
    try:
        assert code_of("status", "--data-dir", node) == "not_reporting"
        assert code_of("forget", node) == code_of("stop", "--data-dir", node, "--wait", "1") == "in_use"
    finally:
        os.close(lock)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("join", "--json", "--nope"), "--nope"),
        (("stop", "--wait", "x", "--json"), "--wait"),
        (("nope", "--json"), "nope"),
        (("join", "--json", "--hours", "22-"), "22-7"),
        (("join", "--json", "--threads", "0"), "--threads"),
    ],
)
def test_errors__of_the_command_line_with_json__are_json_too(arguments: tuple[str, ...], message: str) -> None:
    code, error = failure(*arguments)
    assert (code, error["code"]) == (ExitCode.USAGE, "usage") and message in str(error["message"])


def test_errors__without_json__are_text(tmp_path: Path) -> None:
    assert call("status", "--data-dir", tmp_path).stderr.startswith("Error: ")
    outcome = call("join", "--nope")
    assert outcome.code == ExitCode.USAGE and outcome.stderr.startswith("Usage: ")


def test_errors__their_codes__stand_in_the_documents() -> None:
    def leaves(kind: type[Exception]) -> list[str]:
        below = [name for each in kind.__subclasses__() for name in leaves(each)]
        return [kind.__name__, *below]

    ours = [name for name in leaves(errors.SfnodeError) if name in vars(errors)]
    named = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Error")).lower() for name in ours}
    of_status = {each.name.lower() for each in Health if each}
    never = {"sfnode", "reject", "other_release", "ignore", "numeric"}
    sources = [path.read_text("utf-8") for path in (REPOSITORY / "sfnode").rglob("*.py")]
    of_a_node = {code for source in sources for code in codes_of_operator_errors(source)}
    assert codes_of_operator_errors("raise OperatorError(text, 'in_use')\nOperatorError(text)") == {"in_use"}
    told = {code.strip("` ") for codes in rows("Errors as JSON") for code in codes.split(",")}
    assert told == (named - never) | {"usage", "aborted"} | of_status | of_a_node


def codes_of_operator_errors(source: str) -> set[str]:
    """The codes that a file gives to its OperatorErrors."""
    calls = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Call) and len(each.args) > 1]
    return {ast.literal_eval(each.args[1]) for each in calls if ast.unparse(each.func) == "OperatorError"}


# --- help of join


def test_join_help__options__come_in_groups_and_none_is_lost() -> None:
    text = call("join", "--help").stdout
    titles = re.findall(r"^(\S.*):$", text, re.MULTILINE)
    assert titles == [*GROUPS, "Other options"] and len(GROUPS[titles[0]]) == 10
    shown = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE)
    assert sorted(shown) == sorted(
        [*(param.opts[-1] for param in join.params if isinstance(param, click.Option)), "--help"]
    )
    assert not [name for names in GROUPS.values() for name in names if name not in shown]


# --- completion


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_completion__in_bash__completes_commands_and_options(tmp_path: Path) -> None:
    code = "import sys; sys.argv[0] = 'sfnode'; from sfnode.cli import main; main()"
    program = tmp_path / "sfnode"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$@"\n')
    program.chmod(0o755)
    script = f"""
    PATH={tmp_path}:$PATH
    eval "$(_SFNODE_COMPLETE=bash_source sfnode)"
    try() {{
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
        _sfnode_completion "$1"
        echo "${{COMPREPLY[*]}}"
    }}
    try sfnode resu
    try sfnode join --only
    try sfnode join --on-battery ""
    """
    outcome = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert outcome.stdout.splitlines() == ["resume", "--only-when-idle", "work pause"], outcome


def test_completion__every_command__can_be_completed() -> None:
    assert {"pause", "resume", "stop"} <= {path[0] for path, _ in commands_below(cli)}
