"""How torch's threads wait for each other."""

import os
import subprocess
import sys

import pytest

_PROGRAM = "import sfnode.training, torch"


@pytest.mark.parametrize(
    ("asked", "found"), [(None, "PASSIVE"), pytest.param("ACTIVE", "ACTIVE", marks=pytest.mark.slow)]
)
def test_training__torch_is_loaded__its_threads_sleep_at_barriers_unless_told_otherwise(
    asked: str | None, found: str
) -> None:
    """`init` spun for minutes beside other work (issue 16), which has no settings of its own as the worker had."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if asked is not None:
        environment["OMP_WAIT_POLICY"] = asked
    environment["OMP_DISPLAY_ENV"] = "TRUE"
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, env=environment)
    assert f"OMP_WAIT_POLICY = '{found}'" in done.stderr + done.stdout
