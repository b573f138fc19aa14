"""What the effects of the core lead to beyond the core."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from protocol.events import StoreRecords
from sfnode.node.effect_executor import Executor


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
