"""Fixtures of tests with real nodes, for modules that name this one in ``pytest_plugins``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.daemons import demo_run, write_run
from tests.support.running_nodes import Joins
from tests.support.worker_process import WorkerProcess, paced_worker

PACE_MS: Final = 100


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One worker that serves the nodes of all tests: joining is then a matter of half a second."""
    with WorkerProcess(tmp_path_factory.mktemp("worker")) as process:
        yield process.path


@pytest.fixture(scope="session")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """As `worker`, for tests that look at nodes and not at what they learn: it computes nothing, ten steps a second.

    One that trains computes for as long as a test lasts.
    """
    socket = tmp_path_factory.mktemp("paced") / "worker.sock"
    with paced_worker(socket, demo_run(steps=1).manifest, PACE_MS):
        yield socket


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run so long that no test sees its end."""
    path = tmp_path_factory.mktemp("run") / "long.run"
    write_run(demo_run(steps=100_000), path)
    return path


@pytest.fixture
def joins(tmp_path: Path) -> Iterator[Joins]:
    """Nodes below the test's own folder."""
    with Joins(tmp_path) as started:
        yield started
