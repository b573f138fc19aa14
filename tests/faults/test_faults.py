"""The search for exceptions that end a node finds none in its first plans, and finds the old ones that are put back."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests import REPOSITORY
from tests.faults.put_back import PUT_BACK
from tests.mutants.patch import switched_on


def searched(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m tests.faults` with these arguments, run to its end."""
    command = [sys.executable, "-m", "tests.faults", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", PUT_BACK)
def test_put_back__old_fault__fits_the_product_of_today(name: str) -> None:
    """The search for each takes a minute or two (docs/testing.md); here only that it is a fault of today's code."""
    with switched_on(PUT_BACK[name]):
        pass


@pytest.mark.process(is_long=True)
@pytest.mark.timeout(300)
def test_faults__first_plans__end_no_node_and_leave_equal_digests() -> None:
    done = searched("--plans", "15", "--first", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 found" in done.stdout and " faults struck" in done.stdout, done.stdout
