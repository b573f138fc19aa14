"""A node's own command: what it prints is the reward; it is restarted a few times, and its faults teach."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from protocol.errors import OperatorError
from sfnode.rewards import RewardCommand
from tests import REPOSITORY
from tests.support.running_nodes import is_alive, wait_until

ROW = {"answer": "42", "n": 7}
LOOP = "import json, sys, time\nfor line in sys.stdin:\n    asked = json.loads(line)\n"
RIGHT = LOOP + "    print(float(asked['ended'] and asked['answer'] == asked['row']['answer']), flush=True)\n"


def command(folder: Path, source: str) -> str:
    path = folder / "reward.py"
    path.write_text(source)
    return shlex.join([sys.executable, str(path)])


def test_reward_command__a_line_for_each_answer__gives_its_number(tmp_path: Path) -> None:
    with closing(RewardCommand(command(tmp_path, RIGHT))) as own:
        assert [own.reward(answer, True, ROW) for answer in ("42", "41\n\ud800", "4" * 300_000)] == [1.0, 0.0, 0.0]
        assert own.reward("42", False, ROW) == 0.0


def test_reward_command__ends_once_in_a_while__is_restarted(tmp_path: Path) -> None:
    count = tmp_path / "starts"
    source = f"open({str(count)!r}, 'a').write('x')\n" + LOOP
    source += "    if asked['answer'] == 'end' and asked['row']['n'] > len(open(" + repr(str(count)) + ").read()):\n"
    source += "        sys.exit(1)\n    print(0.5, flush=True)\n"
    with closing(RewardCommand(command(tmp_path, source))) as own:
        assert own.reward("a", True, {"n": 0}) == 0.5
        assert own.reward("end", True, {"n": 4}) == 0.5
        assert count.read_text() == "xxxx"
        with pytest.raises(OperatorError, match=r"--private-reward .* ended, after 3 restarts: for each line such as"):
            own.reward("end", True, {"n": 9})


def test_reward_command__loads_a_model_first__has_longer_for_its_first_answer_alone(tmp_path: Path) -> None:
    count = tmp_path / "starts"
    source = f"import time\ntime.sleep(1)\nopen({str(count)!r}, 'a').write('x')\n" + LOOP
    source += f"    time.sleep(60 * (asked['row']['n'] > len(open({str(count)!r}).read())))\n"
    source += "    print(0.5, flush=True)\n"
    with closing(RewardCommand(command(tmp_path, source), limit_s=0.3, first_limit_s=30.0)) as own:
        assert own.reward("a", True, {"n": 0}) == own.reward("a", True, {"n": 1}) == 0.5
        assert count.read_text() == "x"
        assert own.reward("a", True, {"n": 2}) == 0.5
        assert count.read_text() == "xx"


def test_reward_command__in_a_shell_that_hangs__leaves_nothing_that_runs(tmp_path: Path) -> None:
    """A fault once: of `sh -c 'cd X && check; true'` only the shell was ended, and the check computed for ever."""
    pid = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {shlex.quote(str(pid))}; wait"
    with closing(RewardCommand(shlex.join(["sh", "-c", script]), first_limit_s=0.3)) as own:
        with pytest.raises(OperatorError, match=r"said nothing for 0\.3 s, after 3 restarts"):
            own.reward("a", True, ROW)
        gone = psutil.wait_procs([each for each in psutil.process_iter() if each.pid == int(pid.read_text())], 5.0)
    assert gone[1] == []


@pytest.mark.process
def test_reward_command__its_process_is_killed_hard__ends_with_all_that_it_has_started(tmp_path: Path) -> None:
    """A command that hung, and children of one that had ended, ran on for ever, and held the node's errors."""
    script = f"sleep 600 & echo $! > {shlex.quote(str(tmp_path / 'pid'))}; read _; echo 1; wait"
    asks = f"from sfnode.rewards import RewardCommand; own = RewardCommand({shlex.join(['sh', '-c', script])!r})\n"
    asks += "own.reward('a', True, {}); print('up', flush=True); own.reward('a', True, {})"
    with subprocess.Popen([sys.executable, "-c", asks], stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.kill()
    child = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(child), "the end of the command's child", 10.0)


def test_reward_command__says_nothing__is_ended_and_teaches_and_each_restart_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    silent = RewardCommand(command(tmp_path, LOOP + "    time.sleep(60)\n"), first_limit_s=0.2)
    with pytest.raises(OperatorError, match=r"said nothing for 0\.2 s, after 3 restarts: for each line such as"):
        silent.reward("a", True, ROW)
    said = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert said == [f"said nothing for 0.2 s; it is started again, {number} of 3" for number in (1, 2, 3)]


@pytest.mark.parametrize("said", ["good", "nan", "1.5", "-0.1", "", "inf", "1\n1"])
def test_reward_command__says_no_number_of_0_to_1__teaches(tmp_path: Path, said: str) -> None:
    odd = RewardCommand(command(tmp_path, f"{LOOP}    print({said!r}, flush=True)\n"))
    with pytest.raises(OperatorError) as refusal:
        odd.reward("a", True, ROW)
    assert f"said {said!r}: for each line such as" in str(refusal.value)
    assert "a number of 0 to 1" in str(refusal.value)


def test_reward_command__two_lines_for_an_answer__teaches_and_gives_no_answer_that_of_another(tmp_path: Path) -> None:
    source = f"{LOOP}    print(1, flush=True); time.sleep(0.05); print(0, flush=True)\n"
    with closing(RewardCommand(command(tmp_path, source))) as twice:
        assert twice.reward("a", True, ROW) == 1.0
        time.sleep(0.5)
        with pytest.raises(OperatorError, match=r"said '0\\n\.\.\. before it was asked'"):
            twice.reward("a", True, ROW)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("", "name a program"),
        ("'a", "check its quotes"),
        ("/nowhere/reward", "/nowhere/reward is not found; no shell reads"),
    ],
)
def test_reward_command__no_command__teaches_before_a_model_is_loaded(words: str, fault: str) -> None:
    with pytest.raises(OperatorError) as refusal:
        RewardCommand(words)
    assert str(refusal.value).startswith(f"--private-reward {words!r}: ")
    assert fault in str(refusal.value)


def test_reward_command__file_that_is_no_program__says_how_to_start_it(tmp_path: Path) -> None:
    script = tmp_path / "check.py"
    script.write_text("print(1)\n")
    with pytest.raises(OperatorError, match=r"is no program: chmod \+x makes a file one, or begin with python3"):
        RewardCommand(str(script))
