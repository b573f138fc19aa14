"""The trainer: what reaches the worker, what comes back as events, and how it outlives a worker's crashes."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
import trio.testing

from protocol.crypto.keys import Signer
from protocol.errors import OperatorError
from protocol.events import EstimateFinished, EstimateLost, EstimateSkipped, Event, StartEstimate, WorkerReady
from protocol.ledger.envelope import EnvelopeCodec
from protocol.run.manifest import SignedManifest, sign_manifest
from protocol.state.coefficients import Coefficients
from sfnode.quality_figures import AnswerSpread
from sfnode.reporter import Reporter
from sfnode.storage.evaluations import EvaluatedStep
from sfnode.worker.trainer import Evaluate, Job, Trainer
from sfnode.worker_protocol.messages import (
    EstimateRequest,
    Evaluated,
    EvaluateRequest,
    Evaluating,
    Message,
    OpenSession,
    Reply,
    SetCoefficients,
    WorkerFailure,
    encode_frame,
)
from sfnode.worker_protocol.training_config import TrainingConfig
from tests.support.fake_worker import FakeWorker, Script, fake_worker, healthy
from tests.support.manifests import OWNER, small_manifest
from tests.support.reward_runs import rewarded

SIGNED = sign_manifest(small_manifest(), OWNER)
REWARDED = replace(small_manifest(core="dense"), task=rewarded(small_manifest(core="dense").task))
OVERFLOW = WorkerFailure(error="NumericError", message="the loss is not finite")
AUTHOR = Signer(b"alice".ljust(32, b"."))


@dataclass
class Bench:
    """A trainer on a fake worker, its inbox, and the state that it trains on."""

    worker: FakeWorker
    trainer: Trainer
    coefficients: Coefficients
    jobs: trio.MemorySendChannel[Job]
    inbox: trio.MemoryReceiveChannel[Event]
    output: io.StringIO
    signed: SignedManifest

    async def next(self) -> Event:
        """The next event for the node."""
        with trio.fail_after(1_000):  # of virtual time
            return await self.inbox.receive()

    def told(self, name: str) -> list[dict[str, Any]]:
        """The reported events of that name."""
        events = [json.loads(line) for line in self.output.getvalue().splitlines()]
        return [event for event in events if event["event"] == name]

    def epochs_sent(self) -> list[list[int]]:
        """The epochs that the worker was told, request by request."""
        asked = self.worker.asked(SetCoefficients)
        return [[each.epoch for each in request.epochs] for request in asked if isinstance(request, SetCoefficients)]

    def estimate(self, step: int) -> None:
        self.jobs.send_nowait(StartEstimate(step=step, seed=step + 100, directions=4))

    async def outcome(self, step: int) -> Event:
        """What the node hears of a step that it has measured."""
        self.estimate(step)
        return await self.next()

    def add_update(self, step: int) -> None:
        """Another node's update arrives."""
        numbers = self.signed.manifest.numbers
        self.coefficients.add([EnvelopeCodec(self.signed.manifest).seal(AUTHOR, step, (7,) * numbers)])


@asynccontextmanager
async def running(
    folder: Path, script: Script = healthy, inbox_events: int = 8, signed: SignedManifest = SIGNED
) -> AsyncIterator[Bench]:
    """The trainer at work; ends with the body. ``inbox_events``: how many the inbox holds while nobody reads it."""
    coefficients = Coefficients(signed.manifest)
    output = io.StringIO()
    jobs_in, jobs_out = trio.open_memory_channel[Job](8)
    inbox_in, inbox_out = trio.open_memory_channel[Event](inbox_events)
    async with fake_worker(folder, script) as worker:
        config = TrainingConfig(model=None, data=Path("train.jsonl"), worker_socket=worker.path)
        reporter = Reporter(is_json=True, stream=output)
        trainer = Trainer(config, signed, lambda: bench.coefficients, reporter, AUTHOR.author)
        bench = Bench(worker, trainer, coefficients, jobs_in, inbox_out, output, signed)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trainer.run, "model", jobs_out, inbox_in)
            yield bench
            nursery.cancel_scope.cancel()


def failing(kind: type[Message], *replies: Reply | bytes) -> Script:
    """Healthy, but the first requests of ``kind`` get ``replies``."""
    left = list(replies)
    return lambda request: left.pop(0) if left and isinstance(request, kind) else healthy(request)


def slow(clock: trio.testing.MockClock) -> Script:
    """Healthy; each estimate takes a second."""

    def answer(request: Message) -> Reply | bytes:
        clock.jump(1.0 if isinstance(request, EstimateRequest) else 0.0)
        return healthy(request)

    return answer


HANG_UP = b""


async def test_trainer__estimates__come_back_with_what_they_were_asked(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        assert await bench.next() == WorkerReady()
        for step in (0, 3):
            assert await bench.outcome(step) == EstimateFinished(step=step, scalars=(step + 1,))
        (opened,) = bench.worker.asked(OpenSession)
        training = TrainingConfig(model="model", data=Path("train.jsonl"), worker_socket=bench.worker.path)
        assert opened == OpenSession(manifest=SIGNED.encode(), training=training, author=AUTHOR.author)
        asked = bench.worker.asked(EstimateRequest)
        assert asked == [EstimateRequest(step=step, seed=100 + step, directions=4) for step in (0, 3)]
        assert (bench.trainer.statistics().loss, bench.trainer.statistics().forward_rows) == (0.5, 64)
        assert bench.told("worker_ready")[0]["data_rows"] == 16


async def test_trainer__snapshot_goes__worker_is_told_all_that_differs(tmp_path: Path) -> None:
    """Its revisions say nothing about those of the node's own state."""
    async with running(tmp_path) as bench:
        await bench.next()
        for step in (0, 20):  # two epochs
            bench.add_update(step)
        await bench.outcome(0)
        bench.coefficients = Coefficients(SIGNED.manifest)
        bench.add_update(0)
        for step in (1, 2):
            await bench.outcome(step)
        first, second = bench.worker.asked(SetCoefficients)
        assert isinstance(first, SetCoefficients) and isinstance(second, SetCoefficients)
        (same, gone), before = second.epochs, first.epochs[0]
        assert same == before and gone.epoch == 1 and not any(gone.values)


async def test_trainer__coefficients__are_sent_when_they_changed_and_only_then(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.next()
        sent = []
        for step, is_changed in enumerate((False, True, False, True)):
            if is_changed:
                bench.add_update(step)
            await bench.outcome(step)
            sent.append(len(bench.worker.asked(SetCoefficients)))
        assert sent == [0, 1, 1, 2]
        last = bench.worker.asked(SetCoefficients)[-1]
        assert isinstance(last, SetCoefficients)
        (epoch,) = last.epochs
        assert np.array_equal(np.frombuffer(epoch.values, "<i8"), bench.coefficients.flat(epoch.epoch))


async def test_trainer__old_epoch_that_changes_all_the_time__is_sent_in_every_tenth_round(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The worker folds all that is over into its weights again, and anybody can void a slot of theirs at any time."""

    async with running(tmp_path, slow(autojump_clock)) as bench:
        await bench.next()
        for step in range(16, 32):
            bench.add_update(step - 16)
            bench.add_update(step)
            await bench.outcome(step)
        assert bench.epochs_sent() == [[0, 1] if number % 10 == 0 else [1] for number in range(16)]


async def test_trainer__dense_core__each_round_is_measured_on_all_updates_before_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Each step is an epoch there. All earlier ones counted as old, so nodes trained on a model of ten rounds ago."""

    async with running(
        tmp_path, slow(autojump_clock), signed=sign_manifest(small_manifest(core="dense"), OWNER)
    ) as bench:
        await bench.next()
        for step in range(1, 5):
            bench.add_update(step - 1)
            await bench.outcome(step)
        assert bench.epochs_sent() == [[0], [1], [2], [3]]


async def test_trainer__evaluation__is_reported(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        await bench.next()
        bench.jobs.send_nowait(Evaluate(step=5))
        assert await bench.outcome(5) == EstimateFinished(step=5, scalars=(6,))
        (told,) = bench.told("evaluated")
        assert (told["step"], told["accuracy"], told["loss"], told["rows"]) == (5, 0.75, 0.25, 8)
        assert bench.trainer.statistics().accuracy == 0.75


async def test_trainer__evaluation_of_many_rows__says_how_far_it_is(tmp_path: Path) -> None:
    parts: list[Message] = [
        Evaluating(done=4, rows=8),
        Evaluating(done=0, rows=0),  # an answer was judged
        Evaluating(done=8, rows=8),
        Evaluated(accuracy=1.0, f1=1.0, loss=0.5, rows=8, predictions=()),
    ]
    frames = b"".join(encode_frame(part) for part in parts)
    async with running(tmp_path, failing(EvaluateRequest, frames)) as bench:
        await bench.next()
        bench.jobs.send_nowait(Evaluate(step=5))
        await bench.outcome(5)
        rows = [(told["step"], told["done"], told["in_all"]) for told in bench.told("evaluating")]
        assert rows == [(5, 4, 8), (5, 8, 8)]
        assert bench.told("evaluated")[0]["accuracy"] == 1.0


async def test_trainer__rewards__are_reported_in_the_place_of_losses_and_no_answer_is(tmp_path: Path) -> None:
    """The log goes to collectors, and what a model writes to a private prompt tells of the prompt."""
    plain = small_manifest(core="dense")
    signed = sign_manifest(replace(plain, task=rewarded(plain.task)), OWNER)
    spread = AnswerSpread(distinct=2, commonest="a private answer", share=0.5)
    found = Evaluated(accuracy=0.75, f1=None, loss=0.25, rows=8, predictions=(), spread=spread)
    async with running(tmp_path, failing(EvaluateRequest, found), signed=signed) as bench:
        await bench.next()
        bench.jobs.send_nowait(Evaluate(step=5))
        await bench.outcome(5)
        (told,) = bench.told("evaluated")
        assert (told["reward"], told["loss"], told["accuracy"]) == (0.75, 0.25, 0.75) and "answers" not in told
        assert told["spread"] == {"distinct": 2, "commonest": "", "share": 0.5}
        assert bench.trainer.statistics().reward == 0.5
        (kept,) = bench.trainer.evaluations
        assert kept == EvaluatedStep(step=5, accuracy=0.75, loss=0.25, rows=8, reward=0.75, spread=spread)


async def test_trainer__evaluation_at_step_0__is_of_the_model_alone_or_left_out(tmp_path: Path) -> None:
    """Others had gone ahead while the model was loaded, and 97 % were called the model alone, which has 51 %."""
    async with running(tmp_path) as bench:
        await bench.next()
        bench.add_update(0)
        bench.jobs.send_nowait(Evaluate(step=0))
        bench.estimate(0)
        bench.jobs.send_nowait(Evaluate(step=0))  # the session has the other's update by now
        bench.estimate(1)
        assert [await bench.next() for _ in range(2)] == [
            EstimateFinished(step=0, scalars=(1,)),
            EstimateFinished(step=1, scalars=(2,)),
        ]
        kinds = [type(request) for request in bench.worker.requests]
        assert kinds == [OpenSession, EvaluateRequest, SetCoefficients, EstimateRequest, EstimateRequest]
        assert [told["step"] for told in bench.told("evaluated")] == [0]


async def test_trainer__loss_that_is_not_finite__skips_the_step_and_keeps_the_session(tmp_path: Path) -> None:
    async with running(tmp_path, failing(EstimateRequest, OVERFLOW)) as bench:
        await bench.next()
        assert await bench.outcome(0) == EstimateSkipped(step=0)
        assert await bench.outcome(1) == EstimateFinished(step=1, scalars=(2,))
        assert bench.worker.connections == 1
        (skipped,) = bench.told("step_skipped")
        assert (skipped["step"], skipped["reason"]) == (0, "the loss is not finite")


async def test_trainer__last_step_of_answers_taught_nothing__sends_zeros_so_that_nobody_waits(tmp_path: Path) -> None:
    script, last = failing(EstimateRequest, OVERFLOW, OVERFLOW), REWARDED.steps - 1
    async with running(tmp_path, script, signed=sign_manifest(REWARDED, OWNER)) as bench:
        await bench.next()
        bench.estimate(last - 1)
        assert await bench.next() == EstimateSkipped(step=last - 1)
        assert await bench.outcome(last) == EstimateFinished(step=last, scalars=(4, *[0] * (REWARDED.numbers - 1)))


@pytest.mark.parametrize(
    "reply", [HANG_UP, b"\0\0", b"\xff" * 4, WorkerFailure(error="WorkerError", message="KeyError: 3")]
)
async def test_trainer__worker_lost_in_an_estimate__loses_the_step_and_comes_back(
    reply: Reply | bytes, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(tmp_path, failing(EstimateRequest, reply)) as bench:
        await bench.next()
        bench.add_update(0)
        assert await bench.outcome(0) == EstimateLost(step=0)
        assert await bench.next() == WorkerReady()
        assert await bench.outcome(1) == EstimateFinished(step=1, scalars=(2,))
        assert bench.trainer.statistics().worker_restarts == len(bench.told("worker_lost")) == 1
        assert len(bench.worker.asked(SetCoefficients)) == 2  # the new session starts from nothing


async def test_trainer__worker_lost_in_an_evaluation__loses_no_step(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(tmp_path, failing(EvaluateRequest, HANG_UP)) as bench:
        await bench.next()
        bench.jobs.send_nowait(Evaluate(step=5))
        assert await bench.outcome(5) == WorkerReady()
        assert await bench.next() == EstimateFinished(step=5, scalars=(6,))


async def test_trainer__worker_that_dies_again_and_again__is_tried_less_and_less_often(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(tmp_path, failing(OpenSession, *[HANG_UP] * 8)) as bench:
        assert await bench.next() == WorkerReady()
        assert [event["pause_s"] for event in bench.told("worker_lost")] == [2, 4, 8, 16, 32, 60, 60, 60]
        assert 242 <= trio.current_time() <= 250
        await trio.sleep(61)
        bench.worker.script = failing(EstimateRequest, HANG_UP)
        assert await bench.outcome(0) == EstimateLost(step=0)
        assert bench.told("worker_lost")[-1]["pause_s"] == 1  # it had worked for a minute


async def test_trainer__memory_runs_out_in_mid_run__costs_a_step_and_a_restart(tmp_path: Path) -> None:
    refusal = WorkerFailure(error="WorkerMemoryError", message="not enough memory")
    async with running(tmp_path, failing(EstimateRequest, refusal)) as bench:
        assert await bench.next() == WorkerReady()
        assert await bench.outcome(0) == EstimateLost(step=0)
        assert "not enough memory" in bench.told("worker_lost")[-1]["reason"]


@pytest.mark.parametrize("kind", ["OperatorError", "WorkerMemoryError"])
async def test_trainer__model_that_cannot_be_used__ends_the_node_with_the_reason(kind: str, tmp_path: Path) -> None:
    refusal = WorkerFailure(error=kind, message="model.safetensors is not the run's file")
    with pytest.RaisesGroup(pytest.RaisesExc(OperatorError, match="not the run's file"), flatten_subgroups=True):
        async with running(tmp_path, failing(OpenSession, refusal)) as bench:
            await bench.next()


@pytest.mark.parametrize(
    "reply",
    [
        HANG_UP,
        WorkerFailure(error="WorkerError", message="KeyError: 3"),
        WorkerFailure(error="WorkerMemoryError", message="not enough memory"),
    ],
    ids=["hangs up", "fails inside", "no memory"],
)
@pytest.mark.parametrize("is_opening", [False, True])
async def test_trainer__worker_lost_before_it_measures__loses_the_step_and_comes_back(
    is_opening: bool, reply: Reply | bytes, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The core once waited for ever for a step that nobody measured. ``is_opening``: the next worker is lost, too."""
    async with running(tmp_path) as bench:
        assert await bench.next() == WorkerReady()
        opening, sending = (failing(kind, reply) for kind in (OpenSession, SetCoefficients))
        bench.worker.script = lambda request: (
            opening(request) if is_opening and isinstance(request, OpenSession) else sending(request)
        )
        bench.add_update(0)
        assert await bench.outcome(0) == EstimateLost(step=0)
        assert await bench.next() == WorkerReady()
        assert len(bench.worker.asked(OpenSession)) == 2 + is_opening
        assert await bench.outcome(1) == EstimateFinished(step=1, scalars=(2,))
        assert bench.trainer.statistics().trouble == ""


@pytest.mark.parametrize("kind", [SetCoefficients, EvaluateRequest])
async def test_trainer__evaluation_fails_in_numbers__is_skipped_and_the_next_step_measured(
    kind: type[Message], tmp_path: Path
) -> None:
    async with running(tmp_path, failing(kind, OVERFLOW)) as bench:
        await bench.next()
        bench.add_update(0)
        bench.jobs.send_nowait(Evaluate(step=5))
        assert await bench.outcome(5) == EstimateFinished(step=5, scalars=(6,))
        assert bench.told("evaluation_skipped")[0]["reason"] == "the loss is not finite"
        assert bench.trainer.statistics().worker_restarts == 0


async def test_trainer__cancelled_before_the_node_has_heard_of_a_step__still_holds_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """A pause for memory ends the worker at any moment; the overseer then says which step is lost."""
    async with running(tmp_path, inbox_events=1) as bench:
        bench.estimate(0)
        await trio.sleep(10)  # WorkerReady fills the inbox, the result waits
        assert len(bench.worker.asked(EstimateRequest)) == 1
    assert bench.trainer.estimating == 0
    (tmp_path / "again").mkdir()
    async with running(tmp_path / "again", inbox_events=2) as bench:
        bench.estimate(0)
        await trio.sleep(10)
    assert bench.trainer.estimating is None
