"""What all tests share: a quiet, offline, repeatable process, and where optional data lies. Nothing of one subject."""

from __future__ import annotations

import atexit
import gc
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from benchmarks import places

# Before anything imports torch or transformers: several test processes share few cores, and nothing may be downloaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as sfnode.training does: set later, no fork would heed it
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# What killed nodes leave among the temporary files goes with the tests; pytest's own folders stay where they are.
# Processes of pytest-xdist share the folder of the one that starts them. Its path is short, as sockets lie in it.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="sf-")
    os.chmod(tempfile.tempdir, 0o711)  # another user plants files in what tests make there

    @atexit.register
    def _remove_temporary_files(made: str = tempfile.tempdir, by: int = os.getpid()) -> None:
        if os.getpid() == by:  # and not a fork
            shutil.rmtree(made, ignore_errors=True)


import pytest
import pytest_timeout
import trio
from hypothesis import HealthCheck, settings

from tests.support.forked_children import read_at_start
from tests.support.patience import alarmed

# The same examples in every run: a test that fails by chance is broken. HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("repeat", derandomize=True, deadline=None, database=None, max_examples=50)
settings.register_profile("explore", deadline=None, max_examples=2_000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """The folder beside the checkout with real models and data (`models/`, `data/`); skips loudly when it is absent."""
    folder = places.ROOT
    for part in ("models", "data"):
        if not (folder / part).is_dir():
            pytest.skip(f"{folder / part} does not exist: run `make data`; models: docs/research.md")
    return folder


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Two threads on cores that others use too spin at every small product: 60 times slower, measured."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Let a test's time count as all waiting in tests does: what a busy machine keeps from it is given back."""
    if settings.method != "signal" or threading.current_thread() is not threading.main_thread():
        return None  # as the plugin does it

    def ring() -> None:
        token: trio.lowlevel.TrioToken | None = None
        with suppress(RuntimeError):
            token = trio.lowlevel.current_trio_token()
            trio.lowlevel.current_task()
            token = None
        if token is None:
            pytest_timeout.timeout_sigalrm(item, settings)
        else:  # trio waits for events: raised there, the failure would leave a run behind that fails all later tests
            token.run_sync_soon(pytest_timeout.timeout_sigalrm, item, settings)

    alarm = ExitStack()
    alarm.enter_context(alarmed(settings.timeout, ring))
    vars(item)["cancel_timeout"] = alarm.close  # the plugin's name for it
    return True


# What is collected, thousands of tests, stays to the end: to look for garbage in it takes as long as to collect it.
gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()
    _READ_AT_START.update(read_at_start(os.environ))


_READ_AT_START: dict[str, str] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Refuse a file that leaves a variable changed: later commands would be new interpreters in the place of forks."""
    yield
    now = read_at_start(os.environ)
    if now != _READ_AT_START and (nextitem is None or nextitem.path != item.path):
        changed = dict(now.items() ^ _READ_AT_START.items()).keys()
        pytest.fail(f"{item.path.name} leaves {', '.join(sorted(changed))} changed in the environment")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The promise of the project comes first: a live node equals a node that only replays. Then the longest tests."""
    items.sort(key=lambda item: (not item.nodeid.startswith("tests/test_convergence.py"), not _is_long(item)))


def _is_long(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("process")
    return mark is not None and bool(mark.kwargs.get("is_long"))


_BEGAN_S = time.monotonic()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seconds", type=float, default=math.inf, help="Skip the tests that would begin later than that.")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() - _BEGAN_S > item.config.getoption("seconds"):
        pytest.skip("LEFT OUT for want of time")
