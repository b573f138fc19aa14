"""Slips: what nobody has foreseen ends a turn, never a node; what must end a node, and a cancellation, go through."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from protocol.errors import OperatorError, StateMismatchError, StorageDamagedError, UnsettledError
from sfnode.event_log import show_log
from sfnode.reporter import Reporter
from sfnode.unexpected_errors import ENDINGS, KINDS_MAX, PAUSE_MAX_S, Slips, split


@contextmanager
def shown() -> Iterator[io.StringIO]:
    """The lines of the log, as JSON, down to errors."""
    stream = io.StringIO()
    handler = show_log(Reporter(is_json=True, stream=stream), logging.ERROR)
    try:
        yield stream
    finally:
        logging.getLogger("sfnode").removeHandler(handler)


def test_contained__exception_nobody_has_foreseen__is_counted_and_named_with_its_place() -> None:
    slips = Slips()
    with slips.contained("upkeep"):
        "nothing".index("x")
    assert slips.state.count == 1
    assert slips.state.last.startswith("ValueError in upkeep, test_slips.py:")


@pytest.mark.parametrize("ending", ENDINGS)
def test_contained__what_must_end_a_node__goes_through(ending: type[Exception]) -> None:
    slips = Slips()
    with pytest.raises(ending), slips.contained("upkeep"):
        raise ending("a person must act")
    assert slips.state.count == 0


def test_contained__ending_and_slip_in_one_group__only_the_ending_goes_through() -> None:
    slips = Slips()
    with pytest.raises(ExceptionGroup) as caught, slips.contained("upkeep"):
        raise ExceptionGroup("both", [KeyError("bug"), ExceptionGroup("inner", [OperatorError("disk full")])])
    assert slips.state.count == 1
    assert split(caught.value)[0] is None


async def test_contained__slip_while_cancelled__is_counted_and_the_cancellation_goes_on() -> None:
    """Else a bug in a clean-up, at the very moment of Ctrl-C, would end the node with a traceback."""

    async def slip_at_the_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError("in a clean-up")

    slips, is_beyond = Slips(), False
    with trio.CancelScope() as scope:
        with slips.contained("a session"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(slip_at_the_end)
                nursery.start_soon(trio.sleep_forever)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        await trio.lowlevel.checkpoint()
        is_beyond = True
    assert scope.cancelled_caught and not is_beyond
    assert slips.state.count == 1


async def test_outlive__work_that_slips__is_begun_again_after_growing_pauses(autojump_clock: MockClock) -> None:
    slips, begun = Slips(), list[float]()

    async def work() -> None:
        begun.append(trio.current_time())
        if len(begun) < 9:
            raise ValueError("again")

    await slips.outlive("discovery", work)
    pauses = [round(later - earlier) for earlier, later in pairwise(begun)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert slips.state.count == 8


async def test_outlive__long_without_a_slip__pauses_as_at_first(autojump_clock: MockClock) -> None:
    slips, begun = Slips(), list[float]()

    async def work() -> None:
        begun.append(trio.current_time())
        if len(begun) == 4:
            return
        await trio.sleep(2 * PAUSE_MAX_S if len(begun) == 3 else 0)
        raise ValueError("again")

    await slips.outlive("discovery", work)
    assert round(begun[3] - begun[2] - 2 * PAUSE_MAX_S) == 1


async def test_outlive__no_ending_may_pass__even_an_operators_mistake_is_a_slip(autojump_clock: MockClock) -> None:
    """A page whose port was taken since ends no node."""
    slips = Slips()
    errors = iter([OperatorError("port taken"), StorageDamagedError("?"), StateMismatchError("?"), UnsettledError("?")])

    async def serve() -> None:
        if (error := next(errors, None)) is not None:
            raise error

    await slips.outlive("page", serve, endings=())
    assert slips.state.count == 4


def test_slips__one_kind_many_times__is_logged_once_with_its_traceback() -> None:
    slips = Slips()
    with shown() as stream:
        for _ in range(3):
            with slips.contained("upkeep"):
                raise IndexError("again")
    (line,) = [json.loads(text) for text in stream.getvalue().splitlines()]
    assert line["event"] == "slip" and "IndexError" in line["traceback"] and line["where"] == "upkeep"
    assert slips.state.count == 3


def test_slips__ever_new_kinds__stop_filling_the_log() -> None:
    slips = Slips()
    for number in range(2 * KINDS_MAX):
        with slips.contained(f"part {number}"):
            raise IndexError("again")
    assert slips.state.count == 2 * KINDS_MAX and len(slips._kinds) == KINDS_MAX
