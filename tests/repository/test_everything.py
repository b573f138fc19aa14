"""make test: its lanes run side by side, what they say comes in one piece, and a failure of any phase is a failure."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import REPOSITORY
from tests.repository import everything
from tests.repository.durations import CORES
from tests.repository.everything import Driver, Ended, Phase

AUTOGROUP = Path("/proc/self/autogroup")
INTERRUPTED = """
import signal
from tests.repository import everything
from tests.repository.everything import Driver, Phase
for number in (signal.SIGINT, signal.SIGTERM):  # a shell that starts this in the background has SIGINT ignored
    signal.signal(number, signal.default_int_handler)
wait = ("sh", "-c", {script!r}, "{pid}", "{ended}")
everything.STOP_S = {stop_s}
Driver().run((Phase(name="waits", command=wait), Phase(name="never", command=("touch", "{never}"))))
"""


INTERRUPTED_ANYWHERE = """
import itertools, os, signal, sys
from tests.repository import everything
from tests.repository.everything import Driver, Phase
everything.STOP_S = 0.05

def interrupt_at(place):
    places = itertools.count()
    def trace(frame, event, _):
        if event == "line" and "concurrent" in frame.f_code.co_filename and next(places) == place:
            sys.settrace(None)
            os.kill(os.getpid(), signal.SIGINT)
        return trace
    sys.settrace(trace)

signal.signal(signal.SIGINT, signal.default_int_handler)
for place in range(60, 120, 4):
    interrupt_at(place)
    try:
        Driver().run((Phase(name="waits", command=("sleep", "60")),))
    except KeyboardInterrupt:
        continue
    sys.exit(f"not interrupted at {place}")
"""


def shell(name: str, script: str, *arguments: object) -> Phase:
    return Phase(name=name, command=("sh", "-c", script, *map(str, arguments)))


def test_driver__two_lanes__run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for the other's file: one after the other they would never end."""
    meet = 'touch "$0"; while [ ! -e "$1" ]; do sleep 0.01; done'
    left, right = tmp_path / "left", tmp_path / "right"
    assert Driver().run((shell("left", meet, left, right),), (shell("right", meet, right, left),))


def test_driver__phase_fails__the_others_run_and_the_whole_has_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver = Driver()
    after = tmp_path / "after"
    lane = (shell("bad", "echo out; echo err >&2; exit 3"), shell("after", 'touch "$0"', after))
    assert not driver.run(lane, (shell("good", "true"),))
    assert after.exists()
    assert {phase.name: phase.code for phase in driver.ended} == {"bad": 3, "after": 0, "good": 0}
    assert "==> bad\nout\nerr\n==> bad: FAILED (exit code 3) after 0 s" in capsys.readouterr().out


def test_driver__several_runs__each_has_its_own_verdict() -> None:
    driver = Driver()
    assert driver.run((shell("style", "true"),))
    assert not driver.run((shell("types", "exit 1"),), (shell("tests", "true"),))
    assert len(driver.ended) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_driver__interrupted__phase_has_time_to_end_in_good_order_and_nothing_more_starts(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Once all three signals were sent at a stroke: to Python, a thread whose join was interrupted is a dead one."""
    tidy = 'trap \'sleep 0.3; touch "$1"; exit 1\' INT; echo $$ > "$0"; for _ in $(seq 3000); do sleep 0.01; done'
    assert not is_alive(interrupt(tmp_path, number, tidy, stop_s=10.0))
    assert {path.name for path in tmp_path.iterdir()} == {"pid", "ended"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_driver__interrupted__phase_that_heeds_no_signal_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    deaf = "trap '' INT TERM; echo $$ > \"$0\"; exec sleep 60"
    assert not is_alive(interrupt(tmp_path, number, deaf, stop_s=0.2))
    assert {path.name for path in tmp_path.iterdir()} == {"pid"}


def test_driver__interrupted_wherever_its_main_thread_is__ends() -> None:
    """A KeyboardInterrupt once came while `concurrent.futures.wait` took its locks: the lane waited for ever."""
    subprocess.run([sys.executable, "-c", INTERRUPTED_ANYWHERE], cwd=REPOSITORY, check=True, timeout=60)


def interrupt(folder: Path, number: signal.Signals, script: str, *, stop_s: float) -> int:
    """Send the signal to a driver that runs the script; the process number of the script when the driver has ended."""
    files = {name: folder / name for name in ("pid", "ended", "never")}
    command = [sys.executable, "-c", INTERRUPTED.format(script=script, stop_s=stop_s, **files)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not files["pid"].exists() or not files["pid"].read_text():
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(30) != 0
    return int(files["pid"].read_text())


def is_alive(process: int) -> bool:
    return subprocess.run(["kill", "-0", str(process)], capture_output=True, check=False).returncode == 0


def test_driver__busy_phase__its_computing_is_told() -> None:
    driver = Driver()
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    assert driver.run((Phase(name="busy", command=(sys.executable, "-c", busy)), shell("idle", "sleep 0.2")))
    assert driver.ended[0].computed_s >= 0.2 > driver.ended[1].computed_s


def test_nice__phase__has_the_niceness_within_its_session_and_among_sessions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not AUTOGROUP.exists():
        pytest.skip("this system has no autogroups: nothing to be seen here")
    shown = "import os\nprint('nice', os.nice(0))\nprint(open('/proc/self/autogroup').read())"
    assert Driver().run((everything.nice(Phase(name="shows", command=(sys.executable, "-c", shown)), 19),))
    assert re.search(r"nice 19\n/autogroup-\d+ nice 19\n", capsys.readouterr().out)


def test_lanes__of_make_test__every_kind_of_check_is_in_one_of_them() -> None:
    waiting, computing, last = everything.lanes_of(300, ["-x"])
    assert [phase.name for phase in waiting] == ["pytest, real processes"]
    assert [phase.name for phase in computing] == ["mypy", "pytest, all other tests"]
    assert [phase.name for phase in last] == ["make simulate SEEDS=300"]
    assert {phase.command[2:4] for phase in computing} == {("tests.repository.niced", "10")}
    assert last[0].command[2:4] == ("tests.repository.niced", "19")
    assert "process and not slow" in waiting[0].command
    assert "not process and not slow" in computing[1].command
    assert all("-x" in phase.command for phase in (*waiting, computing[1]))


def test_process_tests__files_of_all_kinds__are_those_with_the_mark(tmp_path: Path) -> None:
    sources = {"test_a": "x = [pytest.mark.process]\n", "test_b": "x = 'mark.process'\n", "c": "pytest.mark.process\n"}
    for name, source in sources.items():
        (tmp_path / "tests" / name).mkdir(parents=True)
        (tmp_path / "tests" / name / f"{name}.py").write_text(source)
    assert everything.read_process_tests(tmp_path / "tests") == ["tests/test_a/test_a.py"]
    assert "tests/processes/test_kill_restart.py" in everything.read_process_tests()


def test_longest_first__files__new_ones_and_then_the_longest() -> None:
    assert everything.longest_first(["a", "b", "new"], {"a": 1.0, "b": 2.0}) == ["new", "b", "a"]


def test_summary__phases__one_line_each_and_the_verdict_on_all() -> None:
    ended = [
        Ended(name="mypy", code=0, wall_s=20.4, computed_s=19.0),
        Ended(name="tests", code=2, wall_s=9, computed_s=8),
    ]
    lines = list(everything.summary(ended, 30.0))
    assert lines[1:3] == [
        "  mypy: passed after 20 s, 19 s of computing",
        "  tests: FAILED (exit code 2) after 9 s, 8 s of computing",
    ]
    assert lines[3].startswith("  all: FAILED: tests; after 30 s, 27 s of computing on ")


@pytest.mark.parametrize(("code", "arguments"), [(0, []), (1, ["--store"])])
def test_command__lanes_pass_or_not__exit_code_says_so(
    code: int, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = shell("good", "true"), shell("bad", "false")
    monkeypatch.setattr(everything, "style", lambda: (good,))
    monkeypatch.setattr(everything, "lanes_of", lambda seeds, given: ((good,), (shell("sim", f"exit {seeds}"),)))
    monkeypatch.setattr(everything, "computing_tests", lambda given: good)
    monkeypatch.setattr(everything, "process_tests", lambda given, files: bad)
    monkeypatch.setattr(everything, "store_seconds", lambda reports: pytest.fail(f"{CORES} stored after a failure"))
    result = CliRunner().invoke(everything.main, ["--seeds", "0", *arguments])
    assert result.exit_code == code, result.output


def test_command__style_fails__nothing_else_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everything, "style", lambda: (shell("style", "false"),))
    monkeypatch.setattr(everything, "lanes_of", lambda seeds, given: pytest.fail("lanes"))
    result = CliRunner().invoke(everything.main, [])
    assert result.exit_code == 1
    assert "FAILED: style" in result.output
