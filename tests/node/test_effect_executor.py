"""What the effects of the core lead to beyond the core."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import trio

from protocol.errors import StateMismatchError
from protocol.events import FetchSnapshot, Halt, StartEstimate, StoreRecords, StoreSnapshot
from protocol.state.replica import Replica
from sfnode.node.effect_executor import Executor
from sfnode.node.snapshot_files import SnapshotFiles
from sfnode.reporter import Reporter
from sfnode.storage.data_directory import DataDirectory
from sfnode.worker.trainer import Evaluate
from tests.support.manifests import small_manifest


def test_executor__node_is_not_admitted_yet__its_first_evaluation_waits_for_that() -> None:
    """A fault once: an evaluation was asked for while no worker ran and was lost, and with it the model alone."""
    admitted = False
    clock, own_steps = SimpleNamespace(next_step=0), SimpleNamespace(is_admitted_for=lambda _step: admitted)
    config: Any = SimpleNamespace(eval_every_steps=10, signed=SimpleNamespace(manifest=small_manifest()))
    node: Any = SimpleNamespace(clock=clock, own_steps=own_steps)
    nothing: Any = SimpleNamespace(add=lambda _records, *, is_durable: None)
    executor = Executor(config, nothing, node, nothing, nothing, nothing)
    stored = [StoreRecords(records=(), is_own=False)]
    executor.carry_out(stored)
    with pytest.raises(trio.WouldBlock):
        executor.jobs.receive_nowait()
    admitted = True
    executor.carry_out(stored)
    executor.carry_out(stored)
    assert executor.jobs.receive_nowait().step == 0
    with pytest.raises(trio.WouldBlock):
        executor.jobs.receive_nowait()


def test_executor__node_makes_the_first_step_of_a_run__evaluates_the_model_alone_before_it() -> None:
    """It measured step 1 first, so that no figure of the run had one to be compared with."""
    clock, own_steps = SimpleNamespace(next_step=0), SimpleNamespace(is_admitted_for=lambda _step: True)
    node: Any = SimpleNamespace(clock=clock, own_steps=own_steps)
    nothing: Any = SimpleNamespace(add=lambda _records, *, is_durable: None)
    config: Any = SimpleNamespace(eval_every_steps=10, signed=SimpleNamespace(manifest=small_manifest()))
    executor = Executor(config, nothing, node, nothing, nothing, nothing)
    first = StartEstimate(step=0, seed=1, directions=1)
    executor.carry_out([first])
    assert executor.jobs.receive_nowait() == Evaluate(step=0) and executor.jobs.receive_nowait() == first
    clock.next_step = 1
    executor.carry_out([StoreRecords(records=(), is_own=True), StartEstimate(step=1, seed=1, directions=1)])
    assert executor.jobs.receive_nowait().step == 1
    with pytest.raises(trio.WouldBlock):
        executor.jobs.receive_nowait()


def test_executor__fetch_of_a_snapshot_lasts_for_hours__leaves_out_what_cannot_wait() -> None:
    """A neighbour that trickled held it up; the ninth snapshot of its own then ended the node."""
    nothing: Any = None
    executor = Executor(nothing, nothing, nothing, nothing, nothing, nothing)
    made = [StoreSnapshot(step=step, sha256="ab" * 32, data=b"") for step in range(1_024, 12 * 1_024, 1_024)]
    executor.carry_out([*made, wanted := FetchSnapshot(sha256="cd" * 32, file_bytes=1)])
    held = [executor.snapshots.receive_nowait() for _ in range(executor.snapshots.statistics().current_buffer_used)]
    assert held == [*made[:7], wanted]


def test_executor__state_is_wrong_and_the_disk_full__says_what_is_wrong(tmp_path: Path) -> None:
    """All that its operator read was to free some space and start again."""
    disk_is_full = mock.patch("os.replace", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    files = SnapshotFiles(DataDirectory(tmp_path), Reporter())
    nothing: Any = None
    node: Any = SimpleNamespace(replica=Replica(small_manifest()))
    executor = Executor(nothing, nothing, node, nothing, files, nothing)
    wrong = [Halt(detail="the state does not follow from the ledger")]
    with disk_is_full, pytest.raises(StateMismatchError, match=r"does not follow .*\. Evidence: none \(.*disk is full"):
        executor.carry_out(wrong)
    with pytest.raises(StateMismatchError, match=rf"does not follow .*\. Evidence: {tmp_path}/halt\.json$"):
        executor.carry_out(wrong)
