"""Places and token buckets by name: what many, or one again and again, can take."""

from __future__ import annotations

import math
from contextlib import ExitStack

from hypothesis import given, strategies as st

from sfnode.network.policy.limited_places import Places
from sfnode.network.policy.token_bucket import TokenBuckets

HOLDERS = st.sampled_from(["a", "b", "c", None])


@given(st.lists(HOLDERS, max_size=40), st.integers(1, 8), st.integers(1, 4))
def test_places__any_holders__never_more_than_there_are_nor_than_one_may_have(
    asked: list[str | None], places_max: int, per_holder_max: int
) -> None:
    places = Places(places_max, per_holder_max)
    taken: list[str | None] = []
    with ExitStack() as stack:
        for holder in asked:
            if places.has_room(holder):
                stack.enter_context(places.taken(holder))
                taken.append(holder)
            else:
                assert len(taken) == places_max or taken.count(holder) == per_holder_max
        assert len(taken) <= places_max
        assert all(taken.count(holder) <= per_holder_max for holder in ("a", "b", "c"))
    assert all(places.has_room(holder) for holder in ("a", "b", "c", None))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.0, 1.0)), max_size=200))
def test_token_buckets__any_arrivals__each_name_gets_its_burst_and_its_rate(arrivals: list[tuple[str, float]]) -> None:
    buckets, now_s = TokenBuckets(3, 2.0), 0.0
    starts: dict[str, list[float]] = {"a": [], "b": []}
    for name, pause_s in arrivals:
        now_s += pause_s
        wait_s = buckets.take(name, now_s, wait_s_max=1.0)
        if wait_s is not None:
            assert 0.0 <= wait_s <= 1.0
            starts[name].append(now_s + wait_s)
    for times in starts.values():
        assert all(len([t for t in times if at <= t <= at + 1.0]) <= 3 + 2 + 1 for at in times)


def test_token_buckets__full_again__are_forgotten() -> None:
    buckets = TokenBuckets(3, 2.0)
    for number in range(100):
        buckets.take(str(number), number / 10, wait_s_max=math.inf)
    assert len(buckets._buckets) <= 6


def test_token_buckets__one_that_would_wait_too_long__is_refused_and_owes_no_more() -> None:
    buckets = TokenBuckets(1, 1.0)
    assert [buckets.take("a", 0.0, wait_s_max=2.0) for _ in range(5)] == [0.0, 1.0, 2.0, None, None]
    assert buckets.take("a", 1.0, wait_s_max=2.0) == 2.0
    assert buckets.take("b", 1.0, wait_s_max=2.0) == 0.0
