"""Watches the operator's limits, and switches the node's training off and on."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

import trio

from protocol.events import EstimateLost, Event, StartEstimate, TrainingSwitched
from sfnode.node.control.battery_and_load import MachineWatch
from sfnode.node.control.work_or_pause import Moment, Pause, PauseReason, WorkLimits, decide
from sfnode.reporter import Reporter
from sfnode.unexpected_errors import Slips
from sfnode.worker import Job, Trainer

_LOOK_S = 1.0


class Overseer:
    """Pauses and resumes one node. The core pauses between two steps: the measurement that runs still counts.

    Attributes:
        is_needed: whether the run takes this node's updates; while it does not, no worker runs and no model is loaded.
    """

    def __init__(
        self,
        held_until_s: Callable[[], float],
        limits: WorkLimits,
        reporter: Reporter,
        slips: Slips,
        machine: MachineWatch | None = None,
    ) -> None:
        self._held_until_s = held_until_s
        self._limits = limits
        self._reporter = reporter
        self._slips = slips
        self._machine = machine or MachineWatch()
        self._memory_peak_bytes, self._is_out_of_memory = 0, False
        self._trainer: Trainer | None = None
        self._pause: Pause | None = None
        self._heard: Pause | None = None  # the pause that the core has heard of, also if a slip ends `_watch`
        with slips.contained("overseer"):
            self._pause = decide(limits, self._look())  # so that the first status shows it
        self._training = trio.CancelScope()
        self.is_needed = True

    @property
    def paused(self) -> str:
        """Return in words why the node does not work now; empty if it works."""
        return "" if self._pause is None else self._pause.text

    async def run(
        self,
        train: Callable[[], Awaitable[None]],
        trainer: Trainer,
        jobs: trio.MemoryReceiveChannel[Job],
        inbox: trio.MemorySendChannel[Event],
        is_admitted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Let ``train`` work on ``jobs`` while the node ``is_admitted``, and check every second whether it may."""
        self._trainer, self.is_needed = trainer, is_admitted()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._slips.outlive, "overseer", partial(self._watch, inbox, is_admitted))
            while True:
                while not self.is_needed or self._is_out_of_memory:
                    await self._give_up_steps(trainer, jobs, inbox)
                    await trio.sleep(_LOOK_S)
                with trio.CancelScope() as self._training:
                    await self._slips.outlive("training", train)

    async def _give_up_steps(
        self, trainer: Trainer, jobs: trio.MemoryReceiveChannel[Job], inbox: trio.MemorySendChannel[Event]
    ) -> None:
        """Report to the core that what it has asked for is lost: no worker runs."""
        trainer.loading_since_s = None
        await trainer.give_up_step(inbox)
        with suppress(trio.WouldBlock):
            while True:
                job = jobs.receive_nowait()
                if isinstance(job, StartEstimate):
                    await inbox.send(EstimateLost(step=job.step))

    async def _watch(self, inbox: trio.MemorySendChannel[Event], is_admitted: Callable[[], bool]) -> None:
        """Report changes to the core and to the operator; end a worker that takes too much memory or is not needed."""
        while True:
            previous = self._heard
            if self._pause is None:
                if previous is not None:
                    self._reporter.event("resumed", "not paused any more: the node measures again")
            elif previous is None or previous.reason is not self._pause.reason:
                text = f"paused: {self._pause.text}. The node stores, serves and passes on"
                self._reporter.event("paused", text, reason=self._pause.reason.value)
            if (previous is None) != (self._pause is None):
                await inbox.send(TrainingSwitched(is_on=self._pause is None))
            self._heard = self._pause
            self._is_out_of_memory |= self._pause is not None and self._pause.reason is PauseReason.MEMORY
            self.is_needed = is_admitted()
            if not self.is_needed or self._is_out_of_memory:
                self._training.cancel()
            await trio.sleep(_LOOK_S)
            self._pause = decide(self._limits, self._look())

    def _look(self) -> Moment:
        if self._limits.memory_bytes_max is not None:
            self._memory_peak_bytes = max(self._memory_peak_bytes, self._machine.memory_bytes())
        return Moment(
            now=datetime.now(tz=UTC).astimezone(),
            held_until_s=self._held_until_s(),
            is_working=self._pause is None,
            memory_peak_bytes=self._memory_peak_bytes,
            is_on_battery=not self._limits.works_on_battery and self._machine.is_on_battery(),
            load_of_others=self._machine.load_of_others() if self._limits.only_when_idle else None,
            program=self._machine.running_program(self._limits.pause_when),
            spent="" if self._trainer is None else self._trainer.spent,
        )
