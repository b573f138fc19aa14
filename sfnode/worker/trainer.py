"""Keeps a training worker busy for one node: sends it jobs and coefficients, and survives its crashes."""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import trio

from protocol import events
from protocol.crypto import Author
from protocol.errors import NumericError, OperatorError, WorkerError, WorkerMemoryError
from protocol.run import DATA_PRIVATE, SignedManifest
from protocol.state import Coefficients
from sfnode.quality_figures import Quality
from sfnode.reporter import Reporter, counted
from sfnode.storage import EvaluatedStep, evaluations, example_files
from sfnode.worker.held_out_measuring import evaluated_step
from sfnode.worker.noise_budget import NoiseBudget, PrivacyStatistics
from sfnode.worker.supervisor import supervise
from sfnode.worker.worker_client import WorkerSession, coefficients_of
from sfnode.worker_protocol import TrainingConfig, messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """Asks for the accuracy on the evaluation data, for the curve at ``step``."""

    step: int


Job = events.StartEstimate | Evaluate
Inbox = trio.MemorySendChannel[events.Event]

_REST_FACTOR = 9  # times the time of a round with changed old epochs: these take a tenth of the time at most


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStatistics:
    """Holds what the worker has done for this node.

    Attributes:
        is_training: whether the node should contribute; False for a relay.
        loss: mean loss of the last estimate's forward rows; where the run learns from rewards, one minus the next two.
        reward: mean reward of the answers that the last estimate sampled; None where the run has none.
        chance: how likely a token of the right answers was that its rows name; None where they name none.
        accuracy: share of right answers when last measured.
        forward_rows: of estimates that were made; not of skipped steps, nor of zeros that stand for the last one.
        worker_restarts: times that the worker was started anew.
        trouble: a fault that keeps the node from measuring; empty if the last measurement succeeded.
        privacy: what the noise on the messages guarantees; None without noise, and before the model is loaded.
    """

    is_training: bool = False
    loss: float | None = None
    reward: float | None = None
    chance: float | None = None
    accuracy: float | None = None
    forward_rows: int = 0
    worker_restarts: int = 0
    trouble: str = ""
    privacy: PrivacyStatistics | None = None


class Trainer:
    """Handles jobs one by one with the worker that is alive at the time."""

    def __init__(
        self,
        config: TrainingConfig,
        signed: SignedManifest,
        coefficients: Callable[[], Coefficients],
        reporter: Reporter,
        author: Author,
        budget: NoiseBudget | None = None,
    ) -> None:
        self.loading_since_s: float | None = None  # by trio's clock; None once the model is loaded
        self.evaluations: list[EvaluatedStep] = []  # not fetched yet
        self._statistics = TrainingStatistics(is_training=True)
        self._config, self._signed = config, signed
        self._quality = Quality.of(signed.manifest.task)
        self._coefficients = coefficients
        self._reporter = reporter
        self._author = author if signed.manifest.task.data == DATA_PRIVATE else None
        self._budget = budget
        self._shown: Coefficients | None = None
        self._sent: set[int] = set()  # epochs that the present session has
        self._unsent: set[int] = set()  # those of them, and others, that have changed since, up to ``_revision``
        self._revision = 0
        self._old_rest_until_s = 0.0  # until then the worker keeps its old epochs
        self._has_fitted = False  # whether a session has been opened before
        self.rows_sha256 = ""  # of the rows on which an epsilon counts; empty without noise
        self._rows_seen: tuple[int, int] | None = None  # size and time of the private rows that a worker read last
        self.estimating: int | None = None  # the step in work, until the node has heard of its end
        self._served: trio.MemoryReceiveChannel[Job] | None = None  # by the worker that is there

    def statistics(self) -> TrainingStatistics:
        """Return what the worker has done so far."""
        return self._statistics if self._budget is None else replace(self._statistics, privacy=self._budget.statistics)

    @property
    def is_busy(self) -> bool:
        """Return whether a worker is measuring, or is about to."""
        return self._served is not None and not self._served.statistics().tasks_waiting_receive

    @property
    def spent(self) -> str:
        """Return in words why the noise allows no further message; empty while it does."""
        return "" if self._budget is None else self._budget.spent

    async def run(self, model: Path | str, jobs: trio.MemoryReceiveChannel[Job], inbox: Inbox) -> None:
        """Work on ``model``, a folder or a reference that the worker resolves, until cancelled.

        OperatorError if the model, the data or the device cannot be used.
        """
        self._config = replace(self._config, model=str(model))  # text, as TrainingConfig has it
        self.loading_since_s = trio.current_time()
        await self.give_up_step(inbox)  # of an earlier call of `run`, which an exception ended
        serve = partial(self._serve, jobs=jobs, inbox=inbox)
        await supervise(self._config, serve, partial(self._tell_lost, inbox=inbox))

    async def give_up_step(self, inbox: Inbox) -> None:
        """Report to the node that the worker's step is lost, if it had one."""
        if self.estimating is not None:
            await inbox.send(events.EstimateLost(step=self.estimating))
            self.estimating = None

    async def _tell_lost(self, error: WorkerError, pause_s: float, inbox: Inbox) -> None:
        restarts = self._statistics.worker_restarts + 1
        self._statistics = replace(self._statistics, worker_restarts=restarts, trouble=str(error))
        self.loading_since_s = trio.current_time()
        text = f"training worker lost: {error}. Starting it again in {pause_s:.0f} s; the network goes on"
        self._reporter.event("worker_lost", text, reason=str(error), pause_s=pause_s)
        await self.give_up_step(inbox)

    async def _serve(self, session: WorkerSession, jobs: trio.MemoryReceiveChannel[Job], inbox: Inbox) -> None:
        try:
            await self._open(session)
            await inbox.send(events.WorkerReady())
            self._served = jobs
            async for job in jobs:
                # The trainer owns the job from here on: if anything fails, the node hears that its step is lost.
                self.estimating = job.step if isinstance(job, events.StartEstimate) else None
                if isinstance(job, Evaluate):
                    await self._evaluate(session, job)
                else:
                    await self._measure(session, job, inbox)
                self.estimating = None  # not earlier: a cancellation while the event waits would lose it
        finally:
            self._served = None
            with trio.CancelScope(shield=True):
                await session.aclose()

    async def _measure(self, session: WorkerSession, job: events.StartEstimate, inbox: Inbox) -> None:
        started_s = trio.current_time()
        event = await self._estimate(session, job)
        took_ms = int(1_000 * (trio.current_time() - started_s))
        if self.spent and isinstance(event, events.EstimateSkipped):
            await inbox.send(events.TrainingSwitched(is_on=False))  # before it: the next step would begin at once
        await inbox.send(replace(event, took_ms=took_ms) if isinstance(event, events.EstimateFinished) else event)

    async def _open(self, session: WorkerSession) -> None:
        request = messages.OpenSession(manifest=self._signed.encode(), training=self._config, author=self._author)
        try:
            opened = await session.request(request, messages.SessionOpened)
        except (OperatorError, WorkerMemoryError) as error:
            # What has been there once, room or a file, a new worker may find again.
            raise (WorkerError if self._has_fitted else OperatorError)(str(error)) from None
        await self._look_at_rows()
        self._sent, self._shown, self._has_fitted, self._old_rest_until_s = set(), None, True, 0.0
        since_s, self.loading_since_s = self.loading_since_s, None
        seconds = 0.0 if since_s is None else trio.current_time() - since_s
        how = f"{opened.dtype}, multiplied in fp32," if opened.is_widened else opened.dtype
        text = f"model ready after {seconds:.0f} s: {opened.model_parameters:,} parameters, {how} on {opened.device}"
        fields = {"seconds": round(seconds, 3), **asdict(opened)}
        self._reporter.event("worker_ready", f"{text}, {opened.data_rows} training rows", **fields)
        if self._budget is not None:
            privacy = await self._budget.begin(opened.data_rows)
            self._reporter.event("privacy", privacy.in_words(), **asdict(privacy))

    async def _look_at_rows(self) -> None:
        """Report that private rows are others than a worker read before. WorkerError: an epsilon counts on those."""
        if self._author is None or (data := self._config.data) is None:
            return
        before, self._rows_seen = self._rows_seen, _size_and_time(data)
        text = f"{data} has changed since this node read it"
        if self._budget is None and before not in (None, self._rows_seen):
            self._reporter.event_at(logging.WARNING, "rows_changed", f"{text}: these count now", data=str(data))
        elif self.rows_sha256 and await trio.to_thread.run_sync(example_files.sha256_of, data) != self.rows_sha256:
            raise WorkerError(f"{text}, and its epsilon counts how often each row was used. Give the file as it was")

    async def _estimate(self, session: WorkerSession, job: events.StartEstimate) -> events.Event:
        if self._budget is not None and not await self._budget.admits((job.step, job.directions)):
            return events.EstimateSkipped(step=job.step)
        method = self._signed.manifest.method
        first = 0 if method.is_dense else job.step // method.epoch_steps  # the worker folds no dense core
        started_s = trio.current_time()
        is_resting = started_s < self._old_rest_until_s
        try:
            sent = await self._set_coefficients(session, first if is_resting else 0)
            request = messages.EstimateRequest(step=job.step, seed=job.seed, directions=job.directions)
            estimated = await session.request(request, messages.Estimated)
        except NumericError as error:
            self._statistics = replace(self._statistics, trouble=f"step {job.step} was skipped: {error}")
            self._reporter.event("step_skipped", f"step {job.step} skipped: {error}", step=job.step, reason=str(error))
            if (zeros := self._signed.manifest.scalars_of_nothing(job.step, job.directions)) is None:
                return events.EstimateSkipped(step=job.step)
            return events.EstimateFinished(step=job.step, scalars=zeros)
        # Changed old epochs made this round slow: send no more of them for a while.
        if any(epoch < first for epoch in sent):
            now_s = trio.current_time()
            self._old_rest_until_s = now_s + _REST_FACTOR * (now_s - started_s)
        was, (reward, chance) = self._statistics, self._quality.of_training(estimated.loss)
        was = replace(was, trouble="", forward_rows=was.forward_rows + estimated.rows)
        self._statistics = replace(was, loss=estimated.loss, reward=reward, chance=chance)
        if self._budget is not None:
            self._budget.spend((job.step, job.directions))
        return events.EstimateFinished(step=job.step, scalars=estimated.scalars)

    async def _evaluate(self, session: WorkerSession, job: Evaluate) -> None:
        if job.step == 0 and self._sent:
            return  # this session has no longer the model of step 0, which is the model alone

        def report(done: int, rows: int) -> None:
            text = f"evaluating: {done:,} of {rows:,} rows"
            self._reporter.begin("evaluating", text, step=job.step, done=done, in_all=rows)

        try:
            if job.step > 0:  # others may have gone ahead: their updates are no part of step 0
                await self._set_coefficients(session)
            removals = self._shown.removals if self._shown else ()
            result = await session.request(messages.EvaluateRequest(), messages.Evaluated, report)
        except NumericError as error:
            text = f"evaluation at step {job.step} skipped: {error}"
            self._reporter.event("evaluation_skipped", text, step=job.step, reason=str(error))
            return
        finally:
            self._reporter.begin("", "")
        self._statistics = replace(self._statistics, accuracy=result.accuracy)
        found = evaluated_step(result, job.step, self._quality, evaluations.removed_before(removals, job.step))
        self.evaluations.append(found)
        share, figure = self._quality.share(found.accuracy), self._quality.figure(found.loss, 3)
        shown = asdict(found.without_answers())  # the log goes further than the rows may
        fields = {name: value for name, value in shown.items() if value not in (None, (), "")}
        text = f"step {job.step}: {share}, {self._quality.name} {figure} on {counted(found.rows, 'row')}"
        self._reporter.event("evaluated", text, **fields)

    async def _set_coefficients(self, session: WorkerSession, first: int = 0) -> list[int]:
        """Send the epochs from ``first`` on that have changed since they were sent; return their numbers.

        When an old epoch changes, the worker has to fold all of them into its weights again. Anybody can change old
        epochs at any time, by updates that come late or become void.
        """
        coefficients = self._coefficients()
        if coefficients is not self._shown:  # a snapshot came or went, with other revisions; or the session is new
            self._shown, self._unsent, self._revision, first = coefficients, set(self._sent), 0, 0
        self._unsent.update(coefficients.changed_since(self._revision))
        self._revision = coefficients.revision
        changed = sorted(epoch for epoch in self._unsent if epoch >= first)
        if changed:
            await session.request(coefficients_of(coefficients, changed), messages.CoefficientsSet)
            self._sent.update(changed)
            self._unsent.difference_update(changed)
        return changed


def _size_and_time(path: Path) -> tuple[int, int]:
    """Return what changes with a file's content, at no cost; zeros where the file is out of reach."""
    with suppress(OSError):
        found = path.stat()
        return found.st_size, found.st_mtime_ns
    return 0, 0
