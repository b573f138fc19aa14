"""A child's command line, its environment, and how it ends: by itself, with its parent, and on time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from sfnode.children import child_program as program_module
from sfnode.children.async_child import printed_lines, running
from sfnode.children.child_program import Program, Stillness, end
from tests import REPOSITORY
from tests.children.made_up_programs import made_up
from tests.support.running_nodes import is_alive, wait_until

# Each says that it is up, and would then go on for long.
LONG_RUNNING = {"sfnode.training": ("--socket", "worker.sock", "--threads", "1")}
SLEEPS = "import time\nprint('up', flush=True)\ntime.sleep(600)"
PARENT = """
import subprocess, sys, time
from sfnode.children.child_program import Program
child = Program(module="made_up_program", leave_s={leave_s}).start(stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""
AWAITING_PARENT = """
import trio
from sfnode.children.async_child import printed_lines, running
from sfnode.children.child_program import Program
async def main():
    async with running(Program(module="made_up_program"), is_heard=True) as child:
        async for line in printed_lines(child):
            print(child.pid, flush=True)
trio.run(main)
"""


# --- environment


def test_environment__pythonpath__keeps_what_it_names_and_loses_what_means_the_current_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(REPOSITORY)])
    for value, expected in (("/a::/b:", "/a:/b"), (":", None), ("", None), ("/a", "/a")):
        monkeypatch.setenv("PYTHONPATH", value)
        assert Program(module="any").environment.get("PYTHONPATH") == expected
    monkeypatch.delenv("PYTHONPATH")
    assert "PYTHONPATH" not in Program(module="any").environment


def test_environment__sfnode_run_from_a_clone__is_found_by_its_children_and_installed_it_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for folder, is_added in ((tmp_path / "clone", True), (tmp_path / "site-packages", False)):
        monkeypatch.setattr(program_module, "_ROOT", folder)
        monkeypatch.setattr(sys, "path", [str(folder)])
        assert ("PYTHONPATH" in Program(module="any").environment) is is_added


@pytest.mark.process
def test_program__on_pythonpath__is_run_with_its_arguments_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shown.py").write_text("import os, sys; print(sys.argv[1:], os.environ['EXTRA']); sys.exit('no')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = Program(module="shown", arguments=("a", "-b"), variables={"EXTRA": "c"}).run(30.0)
    assert (done.returncode, done.stdout, done.stderr) == (1, "['a', '-b'] c\n", "no\n")


@pytest.mark.process
def test_program__takes_too_long__is_ended_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        made_up(tmp_path, SLEEPS).run(0.3)


@pytest.mark.process
def test_program__current_folder_has_been_removed__starts_at_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries of a worker could not be loaded, and it was started again for ever."""
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert made_up(tmp_path, "import os; print(os.getcwd())").run(30.0).stdout == "/\n"


# --- the end


@pytest.mark.process
@pytest.mark.parametrize("module", LONG_RUNNING)
def test_child__its_parent_lets_go__ends_quietly(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    process = Program(module=module, arguments=LONG_RUNNING[module]).start(
        stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdout.readline()
    process.stdin.close()
    assert process.wait(20) == 1
    assert process.stderr.read() == b""
    for stream in (process.stdout, process.stderr):
        stream.close()


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "arguments", "code"),
    [
        ("sfnode.model_files.resolve_process", ("embedded:tiny-opt",), 0),
        ("sfnode.training.conversion.process", ("gguf", "nowhere", "nowhere"), 3),
        pytest.param("sfnode.training.devices", (), 0, marks=pytest.mark.slow),  # it measures for seconds
    ],
)
def test_child__left_alone_until_it_is_done__ends_quietly(
    module: str, arguments: tuple[str, ...], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolver once ended by SIGABRT, 20 times of 20: a thread of it was reading when the interpreter ended."""
    monkeypatch.chdir(tmp_path)
    done = Program(module=module, arguments=arguments).run(60.0)
    assert done.returncode == code and "Fatal" not in done.stderr, done.stderr


@pytest.mark.process
@pytest.mark.parametrize("text", [PARENT.format(leave_s=0), AWAITING_PARENT], ids=["blocking", "trio"])
def test_child__its_parent_is_killed_hard__ends(text: str, tmp_path: Path) -> None:
    child = left_by(text, SLEEPS, tmp_path)
    wait_until(lambda: not is_alive(child), "the end of the child", 10.0)


@pytest.mark.process
def test_child__that_may_take_leave__hears_sigterm_first_and_is_ended_if_it_does_nothing(tmp_path: Path) -> None:
    said = tmp_path / "said"
    leaves = f"import signal, sys\ndef leave(*_):\n open({str(said)!r}, 'w').close()\n{{}}\nsignal.signal(15, leave)\n"
    child = left_by(PARENT.format(leave_s=60), leaves.format(" sys.exit()") + SLEEPS, tmp_path)
    wait_until(lambda: not is_alive(child), "the end of the child", 10.0)
    assert said.exists()
    stubborn = leaves.format("") + SLEEPS + "\ntime.sleep(600)"
    child = left_by(PARENT.format(leave_s=0.2), stubborn, tmp_path)
    wait_until(lambda: not is_alive(child), "the end of the stubborn child", 10.0)


def left_by(parent: str, text: str, folder: Path) -> int:
    """The process id of a child that runs ``text``, and whose parent has just been killed."""
    (folder / "made_up_program.py").write_text(text)
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{REPOSITORY}"}
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
    return child


@pytest.mark.process
async def test_running__block_ends__child_has_ended_however_it_behaves(tmp_path: Path) -> None:
    for prelude, code in (("", -signal.SIGTERM), ("import signal\nsignal.signal(15, signal.SIG_IGN)\n", None)):
        program = made_up(tmp_path, prelude + SLEEPS, leave_s=60)
        async with running(program, is_heard=True, leave_s=0.3) as process, aclosing(printed_lines(process)) as lines:
            assert await anext(lines) == b"up"
        assert process.returncode in ((code,) if code else (-signal.SIGKILL, 1))


@pytest.mark.process
async def test_printed_lines__child_that_says_much_at_once_and_half_a_line__gives_whole_lines(tmp_path: Path) -> None:
    text = "import sys; sys.stdout.write('a\\nb\\n' + 'c' * 200_000 + '\\nhalf')"
    async with running(made_up(tmp_path, text), is_heard=True) as process:
        with trio.fail_after(30.0):
            assert [len(line) async for line in printed_lines(process)] == [1, 1, 200_000]


# --- patience


@pytest.mark.process
def test_stillness__process_that_computes__is_none_and_one_that_sleeps_grows_still(tmp_path: Path) -> None:
    text = "print('up', flush=True)\nwhile True: pass"
    process = made_up(tmp_path, text).start(stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    stillness = Stillness(process.pid)
    wait_until(lambda: stillness.look() >= 0 and stillness.computed_s > 1.0, "a second of computing", 60.0)
    assert stillness.look() < 1.0
    process.send_signal(signal.SIGSTOP)
    wait_until(lambda: stillness.look() > 0.5, "half a second of nothing", 10.0)
    end(process)
    process.stdout.close()


@pytest.mark.parametrize(("share", "is_still"), [(0.005, True), (0.05, False)])
def test_stillness__process_that_only_looks_round__is_still(
    share: float, is_still: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that hangs may have a thread that wakes up ten times a second."""
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr("psutil.Process.cpu_times", lambda _self: SimpleNamespace(user=share * now, system=0.0))
    stillness = Stillness(os.getpid())
    for number in range(1_000):
        now = 0.1 * number
        still_s = stillness.look()
    assert (still_s > 90.0) is is_still


@pytest.mark.parametrize("waits", [True, False])
def test_stillness__process_that_gets_no_core_on_a_busy_machine__does_not_hang(
    waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training worker, at the lowest priority, was killed after five minutes in which others had all cores."""
    now, still_s = 0.0, 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr("psutil.Process.cpu_times", lambda _self: SimpleNamespace(user=0.001 * now, system=0.0))
    monkeypatch.setattr(program_module, "_PROCESSES", tmp_path)
    for thread in ("1", "2"):
        (tmp_path / str(os.getpid()) / "task" / thread).mkdir(parents=True)
    stillness = Stillness(os.getpid())
    for now in (float(second) for second in range(400)):
        for each in (tmp_path / str(os.getpid()) / "task").iterdir():
            (each / "schedstat").write_text(f"0 {int(waits * now * 1e9)} 7\n")
        still_s = stillness.look()
    assert (still_s < 5.0) is waits


def test_stillness__starter_stood_still_itself__does_not_count_that_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker pause` for five minutes killed a worker that had computed all the time."""
    times = iter((0.0, 5.0, 10.0, 610.0, 615.0))
    monkeypatch.setattr("time.monotonic", lambda: next(times))
    monkeypatch.setattr("psutil.Process.cpu_times", lambda _self: SimpleNamespace(user=0.0, system=0.0))
    monkeypatch.setattr(program_module, "_PROCESSES", tmp_path)
    stillness = Stillness(os.getpid())
    assert [stillness.look() for _ in range(4)] == [5.0, 10.0, 10.0, 15.0]


def test_stillness__process_of_which_nothing_is_known__counts_from_the_start() -> None:
    stillness = Stillness(1 << 30)
    before = stillness.look()
    time.sleep(0.02)
    assert stillness.look() > before and stillness.computed_s == 0
