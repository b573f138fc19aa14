"""What the effects of the core lead to beyond the core."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from protocol.events import StartEstimate, StoreRecords
from sfnode.node.effect_executor import Executor
from sfnode.worker.trainer import Evaluate


def test_executor__node_is_not_admitted_yet__its_first_evaluation_waits_for_that() -> None:
    """A fault once: an evaluation was asked for while no worker ran and was lost, and with it the model alone."""
    admitted = False
    clock, own_steps = SimpleNamespace(next_step=0), SimpleNamespace(is_admitted_for=lambda _step: admitted)
    config: Any = SimpleNamespace(eval_every_steps=10)
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
    config: Any = SimpleNamespace(eval_every_steps=10)
    executor = Executor(config, nothing, node, nothing, nothing, nothing)
    first = StartEstimate(step=0, seed=1, directions=1)
    executor.carry_out([first])
    assert executor.jobs.receive_nowait() == Evaluate(step=0) and executor.jobs.receive_nowait() == first
    clock.next_step = 1
    executor.carry_out([StoreRecords(records=(), is_own=True), StartEstimate(step=1, seed=1, directions=1)])
    assert executor.jobs.receive_nowait().step == 1
    with pytest.raises(trio.WouldBlock):
        executor.jobs.receive_nowait()
