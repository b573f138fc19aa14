"""make quick, once style and types are right: the tests of what changed and of what stands on it, as far as 90 s go.

Of pytest's plugins testmon would first have to run every test once, and sees neither other processes nor files that are
read; picked takes the test files that changed themselves. What a test stands on is therefore read off the imports."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence

import click

from tests import REPOSITORY
from tests.repository.affected import affected_tests
from tests.repository.architecture import OURS, read_modules
from tests.repository.everything import files_with_process_tests

TESTS_S = 50.0  # from the start of pytest on; style and types take the rest of the 90 s on a slow day
COMPUTING, PROCESSES = "not process and not slow", "process and not slow"
BIN = os.path.relpath(os.path.dirname(sys.executable), REPOSITORY)
_NONE_COLLECTED = 5  # pytest's exit code where all tests of the files are of another kind


@click.command()
@click.option("--seconds", type=float, default=TESTS_S, show_default=True, help="How long the tests may take.")
@click.option(
    "--since", help="Take what differs from this commit. Default: where the branch left origin/main, or HEAD."
)
@click.option("--list", "is_list", is_flag=True, help="Only say which tests would run.")
def main(seconds: float, since: str | None, is_list: bool) -> None:
    """Run the tests of what changed and of what stands on it."""
    changed = changed_files(since or branch_point())
    tests = affected_tests(changed, read_modules(*OURS, "benchmarks", "tests"))
    processes = [path for path in files_with_process_tests() if path in tests]
    click.echo(f"==> {len(changed)} files differ, {len(tests)} test files stand on them, the closest first")
    if is_list:
        click.echo("\n".join(tests))
    passes = is_list or run_tests(tests, seconds)
    if processes:
        click.echo("  LEFT OUT, tests of real processes. To run them:")
        click.echo(f"  {BIN}/pytest -m {shlex.quote(PROCESSES)} -n 2 --dist loadfile {' '.join(processes)}")
    sys.exit(0 if passes else 1)


def branch_point() -> str:
    """Return the commit at which this branch left origin/main; HEAD where there is no such branch, or we are on it."""
    command = ["git", "merge-base", "HEAD", "origin/main"]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else "HEAD"


def changed_files(base: str) -> list[str]:
    """Return the paths that differ from `base`, whether committed, not committed or not known to git."""
    commands = ["git", "diff", "--name-only", base], ["git", "ls-files", "--others", "--exclude-standard"]
    outputs = (subprocess.run(each, cwd=REPOSITORY, capture_output=True, text=True, check=True) for each in commands)
    return sorted({path for output in outputs for path in output.stdout.splitlines()})


def run_tests(tests: Sequence[str], seconds: float) -> bool:
    """Run those that compute until the time is over; pytest says how many it has skipped for that."""
    how = f"-n {min(os.cpu_count() or 1, 4)} --dist loadfile --no-loadscope-reorder --seconds {seconds}".split()
    command = [f"{BIN}/pytest", "-q", "-m", COMPUTING, *how, *tests]
    return not tests or subprocess.run(command, cwd=REPOSITORY, check=False).returncode in (0, _NONE_COLLECTED)


if __name__ == "__main__":
    main()
