"""A signal at any moment of a command has one meaning: of a node it is a good end, of others an interrupt."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from protocol.errors import OperatorError
from sfnode.cli.joining import node_run
from sfnode.node import Life
from sfnode.reporter import Reporter
from tests.support.cli_calls import signals_as_they_were
from tests.support.daemons import demo_run, write_run

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EARLY = ("sfnode.children.command_line_secrets", "sfnode.cli")

# Sends itself a signal when a module is imported for the first time. Its parent may have it ignored, as nohup has.
_PROGRAM = """
import os, signal, sys
name, number = sys.argv[1], int(sys.argv[2])
del sys.argv[1:3]
signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
class Interrupt:
    def find_spec(self, asked, *ignored):
        if asked == name:
            os.kill(os.getpid(), number)
sys.meta_path.insert(0, Interrupt())
from sfnode.__main__ import main
main()
"""


def interrupted(module: str, number: signal.Signals, *words: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command that gets the signal as it imports the module."""
    command = [sys.executable, "-c", _PROGRAM, module, str(int(number)), *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize("module", [*EARLY, "sfnode.cli.join", "sfnode.cli.joining.node_run"])
@pytest.mark.parametrize("number", STOPS)
def test_join__signal_while_it_is_imported__ends_well(number: signal.Signals, module: str, tmp_path: Path) -> None:
    """It ended with 1, now and then by SIGINT: on a busy machine a supervisor saw a node fail that it had stopped."""
    write_run(demo_run(steps=8), tmp_path / "a.run")
    join = ("join", "--run", str(tmp_path / "a.run"), "--data-dir", str(tmp_path / "node"), "--relay")
    said = f"stopping on {number.name}: the node had not started\n"
    assert interrupted(module, number, *join) == (0, said, "")
    code, output, errors = interrupted(module, number, *join, "--json")
    event = json.loads(output)
    assert (code, event["event"], event["signal"], errors) == (0, "stopping", number.name, "")
    assert not (tmp_path / "node").exists()


@pytest.mark.parametrize("module", [*EARLY, "sfnode.cli.list"])
@pytest.mark.parametrize("number", STOPS)
def test_list__signal_while_it_is_imported__is_interrupted(number: signal.Signals, module: str) -> None:
    assert interrupted(module, number, "list") == (1, "", "Aborted!\n")
    error = {"code": "aborted", "message": "interrupted", "exit_code": 1}
    assert interrupted(module, number, "list", "--json") == (1, "", json.dumps({"error": error}) + "\n")


def test_ending__interrupt_while_python_executes_a_text__has_the_exit_code_of_any_other(tmp_path: Path) -> None:
    """As it makes a dataclass. Run as a module, Python then ended by SIGINT, after the command had tidied up."""
    (tmp_path / "interrupted.py").write_text("""
from sfnode.cli import exit_codes
with exit_codes.ending():
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        raise SystemExit(1)  # as click does
""")
    command = [sys.executable, "-m", "interrupted"]
    assert subprocess.run(command, check=False, capture_output=True, cwd=tmp_path).returncode == 1


# --- a node that runs


def run_until_stopped(reporter: Reporter) -> None:
    options: Any = SimpleNamespace(source=None)
    with signals_as_they_were():
        trio.run(node_run._run_until_stopped, options, frozenset(), reporter, Life())


def test_run_node__before_its_first_step__hears_signals_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the first wait of the start a signal killed the node, and Ctrl-C was an error: `interrupted`."""
    handlers: list[Any] = []

    def look(*_arguments: object) -> None:
        handlers.extend(signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT))
        raise OperatorError("enough")

    monkeypatch.setattr(node_run, "_tell_string", look)
    monkeypatch.setattr(sys, "argv", ["sfnode", "join"])  # a node hears SIGINT even where a shell has it ignored
    usual = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(BaseExceptionGroup):
        run_until_stopped(Reporter(is_json=True, stream=io.StringIO()))
    assert len(handlers) == 2 and not set(handlers) & {*usual, signal.default_int_handler, signal.SIG_DFL}


@pytest.mark.parametrize("second", STOPS)
def test_run_node__second_signal_while_it_says_goodbye__changes_nothing(
    second: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was an error, `interrupted`, or killed the node: `uv run` and `make` send a second signal."""
    said = io.StringIO()

    async def leave(*_arguments: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                signal.raise_signal(second)
                await trio.sleep(0.01)

    monkeypatch.setattr(node_run, "_tell_string", lambda *_: None)
    monkeypatch.setattr(node_run, "find_manifest", leave)
    run_until_stopped(Reporter(is_json=True, stream=said))
    assert [json.loads(line)["signal"] for line in said.getvalue().splitlines()] == ["SIGTERM"]


def test_run_node__once_it_has_ended__no_signal_changes_how(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python gives handlers up on its way out: SIGTERM in these 0.2 s killed a node that had said goodbye."""

    async def end(*_arguments: object) -> None:
        pass

    monkeypatch.setattr(node_run, "_run_until_stopped", end)
    monkeypatch.setattr(node_run, "show_log", lambda *_: None)
    options: Any = None
    with signals_as_they_were():
        node_run.run_node(options, frozenset(), "info", is_json=True, is_verbose=False)
        assert {signal.getsignal(each) for each in STOPS} == {signal.SIG_IGN}
