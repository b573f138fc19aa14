"""A joiner that the run outruns is told so; one that comes nearer is left in peace."""

from __future__ import annotations

from hypothesis import given, strategies as st

from sfnode.node.watching.catch_up_monitor import WINDOW_S, CatchUpMonitor, Outrun


def outruns(*, growth: int, intake: int, seconds: int = 300, ahead: int = 1_000_000) -> list[Outrun]:
    """What is told, second by second, of a run that grows and a joiner that takes in so many updates each second."""
    catch_up = CatchUpMonitor()
    looks = (catch_up.look(t, held=intake * t, wanted=ahead + growth * t) for t in range(seconds + 1))
    return [found for found in looks if found is not None]


def test_catch_up__run_grows_faster__is_told_once_a_window() -> None:
    found = outruns(growth=500, intake=200)
    assert len(found) == 300 // int(WINDOW_S)
    assert (found[0].growth, found[0].intake) == (500, 200)
    assert found[0].lacking == 1_000_000 + 60 * 300
    assert "500 updates a second and this machine takes in 200" in str(found[0])


def test_catch_up__nothing_is_missing__forgets_the_window() -> None:
    catch_up = CatchUpMonitor()
    assert catch_up.look(0, held=0, wanted=10) is None
    assert catch_up.look(WINDOW_S, held=20, wanted=0) is None  # live
    assert catch_up.look(WINDOW_S + 1, held=20, wanted=30) is None
    assert catch_up.look(2 * WINDOW_S, held=20, wanted=40) is None


@given(growth=st.integers(0, 1_000), extra=st.integers(1, 1_000))
def test_catch_up__joiner_comes_nearer__says_nothing(growth: int, extra: int) -> None:
    assert outruns(growth=growth, intake=growth + extra, ahead=1_000_000_000) == []


def test_catch_up__nothing_comes_and_nothing_grows__says_nothing() -> None:
    assert outruns(growth=0, intake=0) == []
