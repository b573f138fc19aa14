"""Whether a node works: the decision by its properties, and what the overseer makes of it."""

from __future__ import annotations

import io
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest
import trio
import trio.testing
from hypothesis import given, strategies as st

from protocol.errors import OperatorError
from protocol.events import EstimateLost, Event, StartEstimate, TrainingSwitched
from protocol.run.manifest import sign_manifest
from protocol.state.coefficients import Coefficients
from sfnode.node.control.battery_and_load import MachineWatch
from sfnode.node.control.overseer import Overseer
from sfnode.node.control.work_or_pause import Moment, PauseReason, WorkLimits, decide, work_limits
from sfnode.reporter import Reporter
from sfnode.run.node_options import LimitOptions, OnBattery
from sfnode.run.working_hours import DAY_MINUTES, parse_hours
from sfnode.storage.data_directory import DataDirectory
from sfnode.unexpected_errors import Slips
from sfnode.worker.trainer import Job, Trainer
from sfnode.worker_protocol.training_config import TrainingConfig
from tests.support.manifests import OWNER, small_manifest

MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
SIGNED = sign_manifest(small_manifest(), OWNER)

minutes = st.integers(0, DAY_MINUTES - 1)
spans = st.tuples(minutes, minutes).filter(lambda span: span[0] != span[1])
hours = st.lists(spans, min_size=1, max_size=3).map(
    lambda each: parse_hours(",".join(f"{a // 60}:{a % 60:02}-{b // 60}:{b % 60:02}" for a, b in each))
)
moments = st.builds(
    Moment,
    now=minutes.map(lambda minute: MIDNIGHT + timedelta(minutes=minute)),
    held_until_s=st.sampled_from((0.0, 1.0, MIDNIGHT.timestamp() + 86_400, math.inf)),
    program=st.sampled_from(("", "blender")),
    is_working=st.booleans(),
    memory_peak_bytes=st.integers(0, 10**10),
    is_on_battery=st.booleans(),
    load_of_others=st.none() | st.floats(0, 1),
)
limits = st.builds(
    WorkLimits,
    hours=st.none() | hours,
    memory_bytes_max=st.none() | st.integers(1, 10**10),
    only_when_idle=st.booleans(),
    works_on_battery=st.booleans(),
)


# --- the decision


@given(moment=moments)
def test_decide__nothing_limited__only_the_operator_and_a_named_program_pause(moment: Moment) -> None:
    pause = decide(WorkLimits(works_on_battery=True), moment)
    assert (pause is not None) == (moment.held_until_s > moment.now.timestamp() or bool(moment.program))


@given(limits=limits, moment=moments)
def test_decide__any_moment__works_exactly_where_no_limit_forbids_it(limits: WorkLimits, moment: Moment) -> None:
    busy = 0.25 if moment.is_working else 0.10
    minute = 60 * moment.now.hour + moment.now.minute
    forbidden = {
        PauseReason.OPERATOR: moment.held_until_s > moment.now.timestamp(),
        PauseReason.MEMORY: limits.memory_bytes_max is not None and moment.memory_peak_bytes > limits.memory_bytes_max,
        PauseReason.BATTERY: moment.is_on_battery and not limits.works_on_battery,
        PauseReason.HOURS: limits.hours is not None and not limits.hours.covers(minute),
        PauseReason.PROGRAM: bool(moment.program),
        PauseReason.LOAD: limits.only_when_idle and (moment.load_of_others is None or moment.load_of_others > busy),
    }
    pause = decide(limits, moment)
    assert (None if pause is None else pause.reason) == next((why for why, holds in forbidden.items() if holds), None)
    assert pause is None or pause.text


@given(hours=hours, minute=minutes)
def test_hours__wait_until_the_next_span__is_exact(hours: Any, minute: int) -> None:
    left = hours.minutes_until(minute)
    inside = [hours.covers((minute + later) % DAY_MINUTES) for later in range(left + 1)]
    assert inside[-1] and not any(inside[:-1])


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("22-7", ("22:00", "23:59", "0:00", "6:59"), ("7:00", "12:00", "21:59")),
        ("12-13,22:30-6", ("12:00", "22:30", "5:59"), ("13:00", "22:29", "6:00")),
        ("0-24", ("0:00", "23:59"), ()),
        ("20-24", ("20:00", "23:59"), ("0:00", "19:59")),
    ],
)
def test_hours__spans__hold_in_local_time(text: str, inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    def covers(clock: str) -> bool:
        hour, minute = map(int, clock.split(":"))
        return parse_hours(text).covers(60 * hour + minute)

    assert [covers(clock) for clock in (*inside, *outside)] == [True] * len(inside) + [False] * len(outside)


@pytest.mark.parametrize("text", ["", "22", "22-", "7-7", "25-3", "22-7:60", "24-3", "22-7;8-9", "-1-3"])
def test_hours__not_spans__are_refused_with_an_example(text: str) -> None:
    with pytest.raises(OperatorError, match="22-7"):
        parse_hours(text)


def test_decide__outside_the_hours__says_when_it_goes_on() -> None:
    told = decide(
        WorkLimits(hours=parse_hours("22-7")), Moment(now=MIDNIGHT + timedelta(hours=18, minutes=49, seconds=30))
    )
    assert told is not None and told.text == "outside 22-7, again in 3 h 11 min"
    told = decide(WorkLimits(hours=parse_hours("22-7")), Moment(now=MIDNIGHT + timedelta(hours=21, minutes=59)))
    assert told is not None and told.text == "outside 22-7, again in 1 min"


@pytest.mark.parametrize(
    ("hours_later", "text"),
    [
        (4, "by `sfnode pause`, until 04:00, or until `sfnode resume`"),
        (30, "by `sfnode pause`, until 06:00 on 2026-03-02, or until `sfnode resume`"),
        (math.inf, "by `sfnode pause`, until `sfnode resume`"),
    ],
)
def test_decide__paused_for_a_time__says_when_it_goes_on(hours_later: float, text: str) -> None:
    told = decide(WorkLimits(), Moment(now=MIDNIGHT, held_until_s=MIDNIGHT.timestamp() + 3_600 * hours_later))
    assert told is not None and told.text == text


def test_pause__for_a_time__ends_by_itself_and_a_damaged_one_does_not(tmp_path: Path) -> None:
    control = DataDirectory(tmp_path).control
    assert control.paused_until_s() == 0
    control.pause(time.time() + 60)
    assert control.is_paused() and 0 < control.paused_until_s() - time.time() < 61
    control.pause(time.time() - 60)
    assert not control.is_paused()
    (tmp_path / "paused").write_text("soon")
    assert control.paused_until_s() == math.inf


def test_work_limits__options__are_understood() -> None:
    told = work_limits(LimitOptions(hours="22-7", max_memory="2GB", on_battery=OnBattery.WORK))
    more = work_limits(LimitOptions(pause_when=("blender",), max_disk="3GB", keep_awake=True))
    assert (more.pause_when, more.disk_bytes_max, more.keeps_awake) == (("blender",), 3 * 10**9, True)
    assert told.hours == parse_hours("22-7") and told.works_on_battery and not told.only_when_idle
    assert told.memory_bytes_max == 2 * 10**9


# --- the overseer


class Machine(MachineWatch):
    """Says what it is told to say."""

    def __init__(self) -> None:
        super().__init__()
        self.battery, self.memory = False, 0

    def is_on_battery(self) -> bool:
        return self.battery

    def memory_bytes(self) -> int:
        return self.memory


class Bench:
    """An overseer of a training that lasts until it is cancelled."""

    def __init__(self, directory: Path, limits: WorkLimits) -> None:
        self.output, self.machine, self.is_training = io.StringIO(), Machine(), False
        self.is_admitted = True
        reporter = Reporter(is_json=True, stream=self.output)
        self.overseer = Overseer(
            DataDirectory(directory).control.paused_until_s, limits, reporter, Slips(), self.machine
        )
        config = TrainingConfig(model=None, data=Path("train.jsonl"))
        self.trainer = Trainer(config, SIGNED, lambda: Coefficients(SIGNED.manifest), reporter, OWNER.author)
        self.jobs_in, self.jobs_out = trio.open_memory_channel[Job](8)
        self.inbox_in, self.inbox_out = trio.open_memory_channel[Event](8)

    async def train(self) -> None:
        with self._training():
            await trio.sleep_forever()

    @contextmanager
    def _training(self) -> Iterator[None]:
        self.is_training = True
        try:
            yield
        finally:
            self.is_training = False

    async def run(self) -> None:
        await self.overseer.run(self.train, self.trainer, self.jobs_out, self.inbox_in, lambda: self.is_admitted)

    async def next(self) -> Event:
        with trio.fail_after(100):  # of virtual time
            return await self.inbox_out.receive()

    @property
    def told(self) -> list[tuple[str, str]]:
        events = [json.loads(line) for line in self.output.getvalue().splitlines()]
        return [(event["event"], event.get("reason", "")) for event in events]


async def test_overseer__paused_and_resumed__switches_training_and_says_so_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path, WorkLimits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(5)
        assert bench.overseer.paused == "" and bench.told == []
        DataDirectory(tmp_path).control.pause()
        assert await bench.next() == TrainingSwitched(is_on=False)
        await trio.sleep(5)
        assert "sfnode resume" in bench.overseer.paused and bench.is_training
        bench.machine.battery = True  # a second reason below the first: nothing new is said
        await trio.sleep(5)
        DataDirectory(tmp_path).control.resume()
        await trio.sleep(2)
        bench.machine.battery = False
        assert await bench.next() == TrainingSwitched(is_on=True)
        assert bench.told == [("paused", "operator"), ("paused", "battery"), ("resumed", "")]
        nursery.cancel_scope.cancel()


async def test_overseer__slip_as_a_pause_ends__the_core_hears_that_it_has(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The overseer that began anew knew of no pause, and the node measured nothing until it was paused again."""
    bench = Bench(tmp_path, WorkLimits())

    def slip(_level: int, lines: tuple[str, ...]) -> None:
        if "measures again" in lines[0]:
            bench.overseer._reporter.listeners.remove(slip)
            raise ValueError("a bug")

    bench.overseer._reporter.listeners.append(slip)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        DataDirectory(tmp_path).control.pause()
        assert await bench.next() == TrainingSwitched(is_on=False)
        DataDirectory(tmp_path).control.resume()
        assert await bench.next() == TrainingSwitched(is_on=True)
        nursery.cancel_scope.cancel()


async def test_overseer__paused_before_the_start__trains_nothing_at_first(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    DataDirectory(tmp_path).control.pause()
    bench = Bench(tmp_path, WorkLimits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        assert await bench.next() == TrainingSwitched(is_on=False)
        nursery.cancel_scope.cancel()


async def test_overseer__memory_reached__ends_the_worker_for_good_and_gives_its_steps_up(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path, WorkLimits(memory_bytes_max=10**9))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        bench.machine.memory = 10**9
        await trio.sleep(3)
        assert bench.is_training
        bench.trainer.estimating, bench.machine.memory = 7, 10**9 + 1
        bench.jobs_in.send_nowait(StartEstimate(step=9, seed=1, directions=1))
        assert await bench.next() == TrainingSwitched(is_on=False)
        assert [await bench.next(), await bench.next()] == [EstimateLost(step=7), EstimateLost(step=9)]
        assert "1,000 MB of 1,000 MB (--max-memory)" in bench.overseer.paused
        bench.machine.memory = 0
        await trio.sleep(5)
        assert (bench.told, bench.is_training) == ([("paused", "memory")], False)
        nursery.cancel_scope.cancel()


async def test_overseer__node_not_admitted_or_excluded__has_no_worker_and_gives_its_steps_up(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    bench = Bench(tmp_path, WorkLimits())
    bench.is_admitted = False
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run)
        await trio.sleep(5)
        assert [bench.is_training, bench.overseer.is_needed, bench.overseer.paused] == [False, False, ""]
        bench.is_admitted = True
        await trio.sleep(3)
        assert (bench.is_training, bench.overseer.is_needed) == (True, True)
        bench.trainer.estimating, bench.is_admitted = 7, False
        bench.jobs_in.send_nowait(StartEstimate(step=9, seed=1, directions=1))
        assert [await bench.next(), await bench.next()] == [EstimateLost(step=7), EstimateLost(step=9)]
        await trio.sleep(1)
        assert (bench.is_training, bench.overseer.is_needed) == (False, False)
        bench.is_admitted = True  # the owner has admitted by name whom a used invitation had shut out
        await trio.sleep(3)
        assert (bench.is_training, bench.overseer.is_needed) == (True, True)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "failure",
    [
        FileNotFoundError(2, "No such file or directory", "/sys/class/power_supply"),
        PermissionError(13, "Permission denied", "/proc/stat"),
        psutil.AccessDenied(),
        NotImplementedError("can't find the battery"),
        ValueError("could not convert string to float"),
        IndexError("list index out of range"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_machine_watch__system_hides_everything__knows_nothing_and_raises_nothing(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container without /sys/class/power_supply once kept every node from starting."""

    def refuse(*_arguments: object, **_named: object) -> NoReturn:
        raise failure

    before = MachineWatch()
    for name in ("sensors_battery", "cpu_times", "cpu_count", "Process.memory_info", "Process.cpu_times"):
        monkeypatch.setattr(f"psutil.{name}", refuse)
    monkeypatch.setattr("psutil.Process.children", refuse)
    for machine in (before, _without_processes(monkeypatch, refuse)):
        assert machine.is_on_battery() is False
        assert machine.load_of_others() is machine.load_of_others() is None
        assert machine.memory_bytes() == 0


def _without_processes(monkeypatch: pytest.MonkeyPatch, refuse: Callable[..., NoReturn]) -> MachineWatch:
    monkeypatch.setattr("psutil.Process", refuse)
    return MachineWatch()


def test_machine_watch__cores_cannot_be_counted__still_says_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: None)
    machine = MachineWatch()
    assert machine.load_of_others() is None
    load = machine.load_of_others()
    assert load is not None and 0 <= load <= 1


def test_overseer__machine_without_a_place_for_batteries__works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> NoReturn:
        raise FileNotFoundError(2, "No such file or directory", "/sys/class/power_supply")

    monkeypatch.setattr("psutil.sensors_battery", refuse)
    reporter = Reporter(is_json=True, stream=io.StringIO())
    assert Overseer(DataDirectory(tmp_path).control.paused_until_s, WorkLimits(), reporter, Slips()).paused == ""


def test_machine_watch__this_machine__says_what_is_possible() -> None:
    machine = MachineWatch()
    assert machine.load_of_others() is None
    load = machine.load_of_others()
    assert load is not None and 0 <= load <= 1
    assert 10 << 20 < machine.memory_bytes() < 1 << 40
    assert machine.is_on_battery() in (True, False)


class _Process:
    def __init__(self, pid: int, name: str | None) -> None:
        self.pid, self.info = pid, {"name": name}


def test_machine_watch__named_programs__are_found_among_the_others_only(monkeypatch: pytest.MonkeyPatch) -> None:
    running = [_Process(os.getpid(), "python"), _Process(7, "Blender.exe"), _Process(8, None)]
    monkeypatch.setattr("psutil.process_iter", lambda _names: iter(running))
    assert MachineWatch().running_program(("steam", "blender")) == "blender"
    assert MachineWatch().running_program(("python",)) == ""  # the node itself
    machine = MachineWatch()
    assert machine.running_program(()) == ""
    assert machine.running_program(("blender",)) == "blender"
    running.clear()
    assert machine.running_program(("blender",)) == "blender"  # the next look comes some seconds later
