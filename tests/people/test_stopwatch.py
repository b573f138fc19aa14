"""The stopwatch's own verdicts; the waits themselves are real processes: `make people`."""

from __future__ import annotations

import sys

import pytest

from tests.people import stopwatch
from tests.people.stopwatch import GivenUpError, Taken, main, table

QUICK = Taken(what="quick", goal_s=60.0, seconds=59.9)
SLOW = Taken(what="slow", goal_s=60.0, seconds=60.1)


def exit_code(rows: list[Taken], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["people"])
    monkeypatch.setattr(stopwatch, "STORIES", {"a story": lambda _person: iter(rows)})
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_people__all_waits_as_promised__exit_code_is_0(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code([QUICK], monkeypatch) == 0


@pytest.mark.parametrize("rows", [[], [SLOW], [QUICK, SLOW], [Taken(what="never", goal_s=60.0, seconds=None)]])
def test_people__too_slow_or_nothing_told__exit_code_is_1(rows: list[Taken], monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code(rows, monkeypatch) == 1


def test_people__command_fails__is_a_row_that_was_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_person: object) -> list[Taken]:
        raise GivenUpError("sfnode init: no such model")

    monkeypatch.setattr(stopwatch, "STORIES", {"story": failing})
    rows = list(stopwatch.told("story"))
    assert not rows[0].is_held and "NOT HELD sfnode init: no such model" in table(rows)
