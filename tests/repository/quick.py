"""make quick: style, types, and the tests of what changed and of what stands on it, as far as 90 s go."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import click

from tests import REPOSITORY
from tests.repository.affected import Selection, affected_tests, is_process_test, within
from tests.repository.architecture import OURS, Module, read_modules
from tests.repository.durations import CORES, PROCESSES, stored_seconds

TESTS_S = 45.0  # for the tests; style, types and starting pytest take the rest of the 90 s on a slow day
WORKERS = min(os.cpu_count() or 1, 4)
COMPUTING = "not process and not slow"
BIN = os.path.dirname(sys.executable)


@click.command()
@click.option("--seconds", type=float, default=TESTS_S, show_default=True, help="How long the tests may take.")
@click.option(
    "--since", help="Take what differs from this commit. Default: where the branch left origin/main, or HEAD."
)
@click.option("--list", "is_list", is_flag=True, help="Only say which tests would run.")
def main(seconds: float, since: str | None, is_list: bool) -> None:
    """Check style and types, and run the tests of what changed and of what stands on it, within 90 seconds."""
    started_s = time.monotonic()
    base = since or branch_point()
    changed = changed_files(base)
    click.echo(f"==> {_count(changed, 'file')} differ from {base[:10]}: {_shortened(changed)}")
    if is_list:
        explain(*select(changed, seconds))
        return
    passes = style() and types_and_tests(changed, seconds)
    click.echo(f"==> {'passed' if passes else 'FAILED'} after {time.monotonic() - started_s:.0f} s")
    sys.exit(0 if passes else 1)


# --- what changed


def branch_point() -> str:
    """The commit at which this branch left origin/main; HEAD where there is no such branch, or we are on it."""
    found = subprocess.run(
        ["git", "merge-base", "HEAD", "origin/main"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() if found.returncode == 0 else _git("rev-parse", "HEAD")[0]


def changed_files(base: str) -> list[str]:
    """Paths that differ from `base`, whether committed, not committed or not known to git."""
    return sorted({*_git("diff", "--name-only", base), *_git("ls-files", "--others", "--exclude-standard")})


def _git(*arguments: str) -> list[str]:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()


# --- what is run


def style() -> bool:
    """Whether ruff has nothing to say of any file."""
    return all(_start(command).wait() == 0 for command in ("ruff check --quiet .", "ruff format --check --quiet ."))


def types_and_tests(changed: Sequence[str], seconds: float) -> bool:
    """Whether mypy finds nothing (it remembers what it found out about unchanged files), and then the tests pass.

    Its daemon would be no quicker for most changes, and crashes on types of torch and peft.
    """
    types = _start("mypy")
    selection, processes = select(changed, seconds)
    return types.wait() == 0 and run_tests(selection, processes)


def _start(command: str) -> subprocess.Popen[bytes]:
    click.echo(f"==> {command}")
    tool, *arguments = command.split()
    return subprocess.Popen([f"{BIN}/{tool}", *arguments], cwd=REPOSITORY)


def select(changed: Sequence[str], seconds: float) -> tuple[Selection, Sequence[str]]:
    """The files with tests that compute, as far as the time goes, and those with tests of real processes."""
    modules = read_modules(*OURS, "benchmarks", "tests")
    computing, processes = by_kind(affected_tests(changed, modules, stored_seconds(CORES)), modules)
    return within(computing, stored_seconds(CORES), seconds * WORKERS), processes


def run_tests(selection: Selection, processes: Sequence[str]) -> bool:
    """Say what is run and what is left out, and run it."""
    explain(selection, processes)
    if not selection.taken:
        return True
    arguments = ["-q", "-m", COMPUTING, "-n", str(WORKERS), "--dist", "worksteal", "--durations=0", *selection.taken]
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=REPOSITORY, check=False).returncode == 0


def by_kind(paths: Sequence[str], modules: tuple[Module, ...]) -> tuple[list[str], list[str]]:
    """The files with tests that compute, and those with tests of real processes; a file may be both."""
    computing, both = stored_seconds(CORES), stored_seconds(PROCESSES)
    marked = {module.path for module in modules if is_process_test(module)}
    is_new = {path for path in marked if path not in computing and path not in both}
    return (
        [path for path in paths if path not in marked or path in computing or path in is_new],
        [path for path in paths if path in marked],
    )


# --- what is said


def explain(selection: Selection, processes: Sequence[str]) -> None:
    """Say how many tests run, and with which commands those run that do not."""
    for line in (*_explain_computing(selection), *_explain_processes(processes)):
        click.echo(line)


def _explain_computing(selection: Selection) -> Iterator[str]:
    if not selection.taken:
        yield "==> pytest: no test that computes stands on what changed"
        return
    about_s = selection.seconds_taken / WORKERS
    yield f"==> pytest: {_count(selection.taken, 'test file')} that stand on it, about {about_s:.0f} s"
    if selection.left:
        left_s = selection.seconds_left / WORKERS
        yield f"  LEFT OUT for want of time: {_count(selection.left, 'test file')}, about {left_s:.0f} s. To run them:"
        yield f"  {_command(COMPUTING, selection.left)}"


def _explain_processes(paths: Sequence[str]) -> Iterator[str]:
    if paths:
        seconds = stored_seconds(PROCESSES)
        about_s = sum(seconds.get(path, 0.0) for path in paths) / 2
        yield f"  LEFT OUT, tests of real processes in {_count(paths, 'file')}, about {about_s:.0f} s. To run them:"
        yield f"  {_command('process and not slow', paths)}"


def _command(marks: str, paths: Sequence[str]) -> str:
    dist = "loadfile" if marks.startswith("process") else "worksteal"
    tool = os.path.relpath(f"{BIN}/pytest", REPOSITORY)
    return f"{tool} -m {shlex.quote(marks)} -n 2 --dist {dist} {' '.join(paths)}"


def _count(things: Sequence[str], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def _shortened(paths: Sequence[str], most: int = 6) -> str:
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return " ".join(paths[:most]) + more


if __name__ == "__main__":
    main()
