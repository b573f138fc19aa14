"""How torch's libraries are set before they are loaded: how threads wait, and how many kernels are kept."""

import os
import subprocess
import sys

import pytest

_PROGRAM = "import sfnode.training, torch"
_KERNELS, _DESCRIPTIONS = "ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"


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


@pytest.mark.parametrize(
    ("name", "asked", "found"),
    [(_KERNELS, None, "128"), (_KERNELS, "7", "7"), (_DESCRIPTIONS, None, "64"), (_DESCRIPTIONS, "7", "7")],
)
def test_training__bf16_kernels_for_many_sizes__few_are_kept_unless_told_otherwise(
    name: str, asked: str | None, found: str
) -> None:
    """A worker grew by 2.4 MB for good with each new width of a batch; half of that is the libraries' own affair."""
    environment = {each: value for each, value in os.environ.items() if each != name} | ({name: asked} if asked else {})
    program = f"import os, sfnode.training; print(os.environ[{name!r}])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == found
