"""A worker that comes back to a node of weeks: what it once had, and does not find now, ends nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trio.testing

from protocol.events import EstimateLost, WorkerReady
from sfnode.worker.noise_budget import NoiseBudget
from sfnode.worker_protocol.messages import EstimateRequest, OpenSession, WorkerFailure
from tests.worker.test_trainer import HANG_UP, Bench, failing, running


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


@pytest.mark.parametrize("has_noise", [False, True])
async def test_trainer__rows_are_others_when_a_worker_comes_back__is_said_once_and_not_done_with_noise(
    has_noise: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault once: a worker that came back read a file that had been replaced, and an epsilon counted on the old."""
    monkeypatch.chdir(tmp_path)
    rows = tmp_path / "train.jsonl"
    rows.write_text("old")
    async with running(tmp_path, failing(EstimateRequest, HANG_UP, HANG_UP)) as bench:
        assert await bench.next() == WorkerReady()
        rows.write_text("others")
        if has_noise:
            bench.trainer.rows_sha256 = hashlib.sha256(b"old").hexdigest()
            bench.trainer._budget = cast(NoiseBudget, SimpleNamespace(admits=admits, spent=""))
        assert await bench.outcome(0) == EstimateLost(step=0)
        if has_noise:
            await lost_twice(bench)
            assert "train.jsonl has changed since this node read it" in bench.told("worker_lost")[1]["reason"]
            return
        assert await bench.next() == WorkerReady()
        assert await bench.outcome(1) == EstimateLost(step=1)
        assert await bench.next() == WorkerReady()
        assert [each["data"] for each in bench.told("rows_changed")] == ["train.jsonl"]


async def lost_twice(bench: Bench) -> None:
    while len(bench.told("worker_lost")) < 2:
        await trio.sleep(0.05)


async def admits(_message: object) -> bool:
    return True
