"""The stopwatch's own verdicts; the waits themselves are real processes: `make people`."""

from __future__ import annotations

import inspect
import sys

import pytest

from tests.people import stopwatch
from tests.people.faults import FAULTS, Named, table as table_of_faults
from tests.people.person import GivenUpError
from tests.people.stopwatch import Taken, main, table

QUICK = Taken(what="quick", goal_s=60.0, seconds=59.9)
SLOW = Taken(what="slow", goal_s=60.0, seconds=60.1)


def exit_code(rows: list[Taken], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["people"])
    monkeypatch.setattr(stopwatch, "STORIES", {"a story": lambda _person: iter(rows)})
    monkeypatch.setattr(stopwatch, "looked_at", lambda _planted: [])
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


@pytest.mark.parametrize(("failure", "code"), [("", 0), ("wanted 6 and 'paused'", 1)])
def test_people__fault_is_planted__exit_code_says_whether_its_cause_was_named(
    failure: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Named(fault="paused", code=6, said="this node is paused", failure=failure)
    monkeypatch.setattr(sys, "argv", ["people", "--fault", "paused"])
    monkeypatch.setattr(stopwatch, "looked_at", lambda planted: [found] if planted == ["paused"] else [])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    assert f"{1 - code} of 1 faults named" in capsys.readouterr().out


def test_faults__cannot_be_planted_here__is_said_and_not_counted_as_named() -> None:
    rows = [Named(fault="paused", code=6, said="paused"), Named(fault="disk_full", code=None, said="NOT PLANTED: root")]
    assert "NOT PLANTED: root" in table_of_faults(rows) and "1 of 2 faults named" in table_of_faults(rows)


def test_faults__each_is_planted_in_the_node_of_its_name__so_that_status_asks_that_one() -> None:
    assert len(FAULTS) >= 12 and all(f'"{name}"' in inspect.getsource(each.plant) for name, each in FAULTS.items())


def test_faults__what_status_must_say__is_not_said_by_the_name_of_the_folder_alone() -> None:
    assert all(each.words not in name and each.code for name, each in FAULTS.items())
