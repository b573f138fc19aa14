"""A worker that comes back to a node of weeks: what it once had, and does not find now, ends nothing."""

from __future__ import annotations

from pathlib import Path

import trio.testing

from protocol.events import EstimateLost, WorkerReady
from sfnode.worker_protocol.messages import EstimateRequest, OpenSession, WorkerFailure
from tests.worker.test_trainer import HANG_UP, failing, running


async def test_trainer__file_is_out_of_reach_when_a_worker_comes_back__is_tried_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A disk in the network was away for a minute, and so was the worker: that ended a node of weeks."""
    gone = WorkerFailure(error="OperatorError", message="no data file train.jsonl")
    async with running(tmp_path, failing(EstimateRequest, HANG_UP)) as bench:
        assert await bench.next() == WorkerReady()
        losing, opening = bench.worker.script, failing(OpenSession, gone, gone)
        bench.worker.script = lambda asked: opening(asked) if isinstance(asked, OpenSession) else losing(asked)
        assert await bench.outcome(0) == EstimateLost(step=0)
        assert await bench.next() == WorkerReady()
        assert [event["reason"] for event in bench.told("worker_lost")][1:] == ["no data file train.jsonl"] * 2
