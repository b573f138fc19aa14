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
from tests.repository.everything import Ended, Phase, run

AUTOGROUP = Path("/proc/self/autogroup")
INTERRUPTED = """
import signal
from tests.repository import everything
from tests.repository.everything import Phase, run
for number in (signal.SIGINT, signal.SIGTERM):  # a shell that starts this in the background has SIGINT ignored
    signal.signal(number, signal.default_int_handler)
wait = ("sh", "-c", {script!r}, "{pid}", "{ended}")
everything.STOP_S = {stop_s}
run((Phase(name="waits", command=wait), Phase(name="never", command=("touch", "{never}"))))
"""


def shell(name: str, script: str, *arguments: object) -> Phase:
    return Phase(name=name, command=("sh", "-c", script, *map(str, arguments)))


def test_run__two_lanes__run_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for the other's file: one after the other they would never end."""
    meet = 'touch "$0"; while [ ! -e "$1" ]; do sleep 0.01; done'
    left, right = tmp_path / "left", tmp_path / "right"
    ended = run((shell("left", meet, left, right),), (shell("right", meet, right, left),))
    assert sorted((phase.name, phase.code) for phase in ended) == [("left", 0), ("right", 0)]


def test_run__phase_fails__the_others_run_and_the_failure_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    after = tmp_path / "after"
    lane = (shell("bad", "echo out; echo err >&2; exit 3"), shell("after", 'touch "$0"', after))
    ended = run(lane, (shell("good", "true"),))
    assert after.exists()
    assert {phase.name: phase.code for phase in ended} == {"bad": 3, "after": 0, "good": 0}
    assert "==> bad\nout\nerr\n==> bad: FAILED (exit code 3) after" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run__interrupted__phase_has_time_to_end_in_good_order_and_nothing_more_starts(
    tmp_path: Path, number: signal.Signals
) -> None:
    tidy = 'trap \'sleep 0.3; touch "$1"; exit 1\' INT; echo $$ > "$0"; for _ in $(seq 3000); do sleep 0.01; done'
    assert not is_alive(interrupt(tmp_path, number, tidy, stop_s=10.0))
    assert {path.name for path in tmp_path.iterdir()} == {"pid", "ended"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run__interrupted__phase_that_heeds_no_signal_is_killed(tmp_path: Path, number: signal.Signals) -> None:
    deaf = "trap '' INT TERM; echo $$ > \"$0\"; exec sleep 60"
    assert not is_alive(interrupt(tmp_path, number, deaf, stop_s=0.2))
    assert {path.name for path in tmp_path.iterdir()} == {"pid"}


def interrupt(folder: Path, number: signal.Signals, script: str, *, stop_s: float) -> int:
    """Send the signal to a runner of the script; return the script's process number when the runner has ended."""
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


def test_run__busy_phase__its_computing_is_counted() -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    ended = run((Phase(name="busy", command=(sys.executable, "-c", busy)), shell("idle", "sleep 0.2")))
    assert ended[0].computed_s >= 0.2 > ended[1].computed_s


def test_phase__with_a_niceness__has_it_within_its_session_and_among_sessions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not AUTOGROUP.exists():
        pytest.skip("this system has no autogroups: nothing to be seen here")
    shown = "import os\nprint('nice', os.nice(0))\nprint(open('/proc/self/autogroup').read())"
    run((Phase(name="shows", command=(sys.executable, "-c", shown), niceness=19),))
    assert re.search(r"nice 19\n/autogroup-\d+ nice 19\n", capsys.readouterr().out)


def test_folders__disk_in_memory_with_room_or_without__are_there_or_where_they_always_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(everything, "MEMORY_BYTES_MIN", 1)
    assert everything.folders_in_memory(tmp_path) == {"PYTEST_DEBUG_TEMPROOT": str(tmp_path)}
    assert everything.folders_in_memory(tmp_path / "none") == {}
    monkeypatch.setattr(everything, "MEMORY_BYTES_MIN", 1 << 60)
    assert everything.folders_in_memory(tmp_path) == {}


def test_lanes__of_make_test__every_kind_of_check_is_in_one_of_them() -> None:
    waiting, computing, last = everything.lanes_of(300, ["-x"])
    assert [phase.name for phase in waiting] == ["pytest, real processes", "make simulate SEEDS=300"]
    assert [phase.name for phase in computing] == ["pytest, all other tests"]
    assert [phase.name for phase in last] == ["mypy"]
    assert [phase.niceness for phase in (*waiting, *computing, *last)] == [0, 19, 10, 19]
    assert "process and not slow" in waiting[0].command
    assert "tests/processes/test_kill_restart.py" in waiting[0].command
    assert "not process and not slow" in computing[0].command
    assert all("-x" in phase.command for phase in (waiting[0], *computing))


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


@pytest.mark.parametrize("code", [0, 1])
def test_command__lanes_pass_or_not__exit_code_says_so(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everything, "lanes_of", lambda seeds, _: ((shell("sim", f"exit {seeds}"),),))
    assert CliRunner().invoke(everything.main, ["--seeds", str(code)]).exit_code == code
