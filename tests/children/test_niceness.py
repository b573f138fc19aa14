"""A training worker takes little of the cores where the system lets it, and works where it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NoReturn

import pytest

from sfnode.children.child_program import yield_to_others


def test_yield_to_others__container_that_forbids_it__works_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_niceness: int) -> NoReturn:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "nice", refuse)
    yield_to_others(10)


@pytest.mark.parametrize(("before", "expected"), [(0, 10), (10, 10), (15, 15)])
def test_yield_to_others__process_that_is_nice_already__gets_no_nicer(before: int, expected: int) -> None:
    """With `nice` in front of the command ten was added: on a busy machine the worker had a hundredth of a core."""
    program = (
        "import os; from sfnode.children.child_program import yield_to_others; "
        f"os.nice({before} - os.nice(0)); yield_to_others(10); print(os.nice(0))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) == max(expected, os.nice(0))
