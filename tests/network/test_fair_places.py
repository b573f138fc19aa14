"""Who gets a place when all are taken."""

from __future__ import annotations

from sfnode.network import bounds
from sfnode.network.policy.limited_places import FairPlace, FairPlaces

SHORT_S = 1.0


def full(count: int, per_holder: int = 1, *, crowd: str | None = None) -> tuple[FairPlaces, list[FairPlace]]:
    """All places taken, at second 0."""
    places = FairPlaces(count * per_holder, per_holder)
    found = [places.take(f"peer{number}", crowd, 0.0) for number in range(count) for _ in range(per_holder)]
    return places, [place for place in found if place is not None]


def ask(held: list[FairPlace], now_s: float, files: int = 0) -> None:
    for place in held:
        place.asked_s, place.files = now_s, place.files + files


def lost(held: list[FairPlace]) -> list[str]:
    return [place.holder for place in held if place.is_lost]


def test_places__four_hold_two_each__who_has_none_gets_one_at_once_and_not_two() -> None:
    places, held = full(4, 2)
    assert places.take("new", None, SHORT_S) is not None and len(lost(held)) == 1
    assert places.take("new", None, SHORT_S) is None


def test_places__four_newcomers__every_peer_has_one_and_nothing_moves_any_more() -> None:
    places, held = full(4, 2)
    for number in range(4):
        assert places.take(f"new{number}", None, SHORT_S) is not None
    assert sorted(lost(held)) == [f"peer{number}" for number in range(4)]
    for name in ("peer0", "new0", "late"):
        assert places.take(name, None, SHORT_S) is None


def test_places__many_peers_of_one_network_hold_all__a_newcomer_from_elsewhere_gets_half_in_time() -> None:
    places, _ = full(8, crowd="10.0.0.0/16")
    got = [places.take(f"new{number}", "10.1.0.0/16", SHORT_S) for number in range(8)]
    assert [place is not None for place in got] == [True] * 4 + [False] * 4
    assert places.take("more", "10.0.0.0/16", SHORT_S) is None


def test_places__two_networks_are_even__neither_takes_from_the_other() -> None:
    places = FairPlaces(4, 2)
    held = [places.take(name, crowd, 0.0) for name, crowd in (("a", "A"), ("a", "A"), ("b", "B"), ("c", "B"))]
    assert all(held)
    for name, crowd in (("a", "A"), ("c", "B"), ("d", "B")):
        assert places.take(name, crowd, SHORT_S) is None


def test_places__one_asks_for_nothing__loses_its_own() -> None:
    places, held = full(8)
    ask(held[1:], bounds.OBSERVER_IDLE_S)
    assert places.take("new", None, bounds.OBSERVER_IDLE_S) is not None and lost(held) == ["peer0"]


def test_places__all_have_a_piece__turns_of_ten_seconds_for_who_has_had_less() -> None:
    places, held = full(8)
    ask(held, bounds.TURN_S - 0.1, files=2)
    assert places.take("new", None, bounds.TURN_S - 0.1) is None
    new = places.take("new", None, bounds.TURN_S)
    assert new is not None and len(lost(held)) == 1
    (first,) = lost(held)
    assert places.take(first, None, bounds.TURN_S) is None, "it has had as much as those who hold one"


def test_places__eight_crawl__who_has_had_less_gets_one_after_a_minute() -> None:
    """And again each time: who held a place for longer, with however little, is not before it."""
    places, held = full(8)
    now_s = bounds.UNFINISHED_TURN_S
    for _ in range(3):
        ask(held, now_s)
        new = places.take("new", None, now_s)
        assert new is not None
        now_s += bounds.TURN_S
        places.leave(new, now_s)
        again = places.take(lost(held)[-1], None, now_s)
        assert again is not None
        held.append(again)
        now_s += 0.1


def test_places__none_is_full__nobody_loses_one() -> None:
    places = FairPlaces(8, 2)
    assert all(places.take("a", None, 0.0) for _ in range(2)) and places.take("a", None, 1.0) is None
    place = places.take("b", None, 1.0)
    assert place is not None
    places.leave(place, 2.0)
    places.leave(place, 3.0)
