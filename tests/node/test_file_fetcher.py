"""Snapshots from several neighbours, in virtual time: soon, and the right bytes, whoever crawls or lies."""

from __future__ import annotations

import hashlib

import pytest
import trio
from trio.testing import MockClock

from protocol.limits import PART_BYTES_MAX
from sfnode.network.sessions.file_download import Wanted
from sfnode.node.snapshot_files import SEGMENT_BYTES, FileFetcher
from tests.node.piece_givers import Behaviour, Givers, false, lacking, leaving, paced, stalling

FILE = hashlib.shake_256(b"file").digest((1 << 20) + 77)
SHA256 = hashlib.sha256(FILE).hexdigest()
GOOD = 1e6
CRAWL = PART_BYTES_MAX / 9.9  # a part just within a node's patience


def wanted(file: bytes = FILE) -> Wanted:
    return Wanted.snapshot(hashlib.sha256(file).hexdigest(), len(file))


async def fetched(givers: Givers, limit_s: float = 600.0) -> float:
    """Return after how long the file was here."""
    started_s = trio.current_time()
    with trio.fail_after(limit_s):
        assert await FileFetcher(givers).fetch(wanted()) == FILE
    return trio.current_time() - started_s


def givers(**behaviours: Behaviour) -> Givers:
    return Givers({SHA256: FILE}, behaviours)


def crowd(behaviour: Behaviour, count: int = 7) -> dict[str, Behaviour]:
    return {f"bad{number:02}": behaviour for number in range(count)}


# --- slow ones


@pytest.mark.parametrize("size", [1, PART_BYTES_MAX, SEGMENT_BYTES, SEGMENT_BYTES + 1, len(FILE)])
async def test_file__of_any_length__comes_whole(size: int, autojump_clock: MockClock) -> None:
    file = FILE[:size]
    held = Givers({wanted(file).sha256 or "": file}, {"alice": paced(GOOD), "bob": paced(GOOD)})
    assert await FileFetcher(held).fetch(wanted(file)) == file
    assert held.given_bytes == size


async def test_file__seven_crawl_and_one_is_honest__comes_in_seconds(autojump_clock: MockClock) -> None:
    """One neighbour at a time took up to 35 minutes."""
    assert await fetched(givers(honest=paced(GOOD), **crowd(paced(CRAWL)))) < 8.0


async def test_file__seven_stall_and_one_is_honest__comes_in_seconds(autojump_clock: MockClock) -> None:
    assert await fetched(givers(honest=paced(GOOD), **crowd(stalling))) < 8.0


async def test_file__all_places_are_taken_by_crawlers__the_honest_one_gets_its_turn(autojump_clock: MockClock) -> None:
    assert await fetched(givers(honest=paced(GOOD), **crowd(paced(CRAWL), 27))) < 35.0


async def test_file__next_one_is_wanted__those_who_crawled_are_asked_last(autojump_clock: MockClock) -> None:
    held = givers(honest=paced(GOOD), **crowd(paced(CRAWL), 20))
    fetcher = FileFetcher(held)
    assert await fetcher.fetch(wanted()) == FILE
    for _ in range(5):
        held.asked.clear()
        now_s = trio.current_time()
        assert await fetcher.fetch(wanted()) == FILE
        assert held.of("honest")[0] == now_s


async def test_file__all_are_equally_slow__comes_all_the_same(autojump_clock: MockClock) -> None:
    held = givers(**crowd(paced(20_000.0), 5))
    assert await fetched(held) < 2 * len(FILE) / (5 * 20_000.0) + 30.0


async def test_file__only_crawlers_have_it__comes_from_them(autojump_clock: MockClock) -> None:
    assert await fetched(givers(alice=paced(CRAWL), bob=lacking)) < 400.0


# --- those without it


async def test_file__nobody_has_it__is_said_at_once_and_each_was_asked_once(autojump_clock: MockClock) -> None:
    held = givers(**crowd(lacking, 12))
    assert await FileFetcher(held).fetch(wanted()) is None
    assert len(held.asked) == 12 and trio.current_time() < 5.0


async def test_file__there_is_no_neighbour__is_said_at_once(autojump_clock: MockClock) -> None:
    assert await FileFetcher(givers()).fetch(wanted()) is None


async def test_file__the_only_one_leaves_in_the_middle__is_said(autojump_clock: MockClock) -> None:
    assert await FileFetcher(givers(alice=leaving(3), bob=lacking)).fetch(wanted()) is None


# --- liars


async def test_file__one_lies__the_right_file_comes_and_the_liar_is_caught(autojump_clock: MockClock) -> None:
    held = givers(alice=paced(GOOD), bob=paced(GOOD), mallory=false(GOOD))
    assert await fetched(held) < 10.0
    assert set(held.caught) == {"mallory"}


async def test_file__liar_is_honest_when_asked_for_all__its_segments_show_it(autojump_clock: MockClock) -> None:
    held = givers(alice=paced(GOOD), mallory=false(GOOD, when_alone=paced(2 * GOOD)))
    assert await fetched(held) < 10.0
    assert set(held.caught) == {"mallory"}


@pytest.mark.parametrize("when_alone", [None, stalling, paced(CRAWL)])
async def test_file__seven_lie_and_one_is_honest__comes_within_a_minute(
    when_alone: Behaviour | None, autojump_clock: MockClock
) -> None:
    held = givers(honest=paced(GOOD), **crowd(false(GOOD, when_alone=when_alone)))
    assert await fetched(held) < 60.0
    assert "honest" not in held.caught and held.caught


async def test_file__the_only_neighbour_lies__is_caught_and_nothing_comes(autojump_clock: MockClock) -> None:
    held = givers(mallory=false(GOOD))
    assert await FileFetcher(held).fetch(wanted()) is None
    assert set(held.caught) == {"mallory"}
