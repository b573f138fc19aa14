"""Pieces from several neighbours, in virtual time: they come, and few twice, whoever lies, stalls or leaves."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock

from protocol.wire import PeerId
from sfnode.network.sessions.bandwidth_limit import Pace
from sfnode.network.sessions.file_download import Wanted
from sfnode.node import piece_board
from sfnode.node.piece_board import PieceBoard
from sfnode.node.piece_fetcher import PEERS_MAX, REST_MAX_S, REST_START_S, STREAMS, PieceFetcher
from tests.node.piece_givers import Behaviour, Givers, honest, lacking, leaving, lying, slowing, stalling

PIECES = [bytes([number]) * 1_000 for number in range(60)]
HASHES = [hashlib.sha256(piece).hexdigest() for piece in PIECES]
START_S = 5.0  # for a piece while no pace is known
ALICE, BOB, CAROL = (PeerId(name) for name in ("alice", "bob", "carol"))


@dataclass
class Scene:
    """One node that fetches, and its neighbours."""

    behaviours: dict[str, Behaviour]
    count: int = len(PIECES)
    kept: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.givers = Givers(dict(zip(HASHES, PIECES, strict=True)), self.behaviours)
        self.fetcher = PieceFetcher(self.givers, Pace(0.0))

    async def fetch(self, limit_s: float = 600.0) -> float:
        """Returns for how long it took; every piece is the right one."""
        started_s = trio.current_time()
        with trio.fail_after(limit_s):
            await self.fetcher.fetch(self.count, self._wanted, self._keep)
        assert [self.kept[number] for number in range(self.count)] == PIECES[: self.count]
        return trio.current_time() - started_s

    def _wanted(self, number: int) -> Wanted:
        return Wanted.piece(HASHES[number], len(PIECES[number]))

    async def _keep(self, number: int, data: bytes, _giver: PeerId) -> None:
        await trio.lowlevel.checkpoint()
        self.kept[number] = data

    @property
    def twice(self) -> int:
        """How many pieces were asked for more often than necessary."""
        return len(self.givers.asked) - self.count


async def test_pieces__three_honest_neighbours__each_once_and_all_take_part(autojump_clock: MockClock) -> None:
    scene = Scene({name: honest() for name in ("alice", "bob", "carol")})
    seconds = await scene.fetch()
    assert scene.twice == 0 and {peer for _, peer, _ in scene.givers.asked} == {"alice", "bob", "carol"}
    assert seconds == pytest.approx(len(PIECES) * 0.1 / (3 * STREAMS), abs=0.3)
    assert scene.fetcher.received_bytes == sum(map(len, PIECES)) and not scene.fetcher.givers()


async def test_pieces__one_stalls__its_pieces_come_from_others_in_a_time_that_follows_the_pace(
    autojump_clock: MockClock,
) -> None:
    scene = Scene({"alice": honest(), "bob": stalling})
    seconds = await scene.fetch(limit_s=60.0)
    assert seconds < len(PIECES) * 0.1 / STREAMS + piece_board.WAIT_MIN_S + 1.0
    assert scene.twice == STREAMS


async def test_pieces__one_lies__what_it_was_asked_for_comes_from_others(autojump_clock: MockClock) -> None:
    scene = Scene({"alice": honest(), "bob": lying()})
    await scene.fetch()
    assert 1 <= len(scene.givers.of("bob")) == scene.twice <= STREAMS


async def test_pieces__eight_slow_ones_come_first__the_honest_ninth_is_asked_soon(autojump_clock: MockClock) -> None:
    """It was never asked, as long as each of the eight brought a part within ten seconds."""
    slow = {f"slow{number}": honest(320.0) for number in range(PEERS_MAX)}
    scene = Scene(slow | {"zoe": honest()})
    scene.givers.arrives_later("zoe", 0.5)
    seconds = await scene.fetch(limit_s=60.0)
    assert seconds < len(PIECES) * 0.1 / STREAMS + START_S + 5.0


async def test_pieces__eight_take_longer_each_time__one_that_has_not_been_tried_gets_a_place(
    autojump_clock: MockClock,
) -> None:
    """The time for a piece follows the pace of the last ones: who slows down little by little is never too slow."""
    slow = {f"slow{number}": slowing(0.5, factor=3.0) for number in range(PEERS_MAX)}
    scene = Scene(slow | {"zoe": honest()})
    scene.givers.arrives_later("zoe", 0.5)
    await scene.fetch(limit_s=60.0)
    assert scene.givers.of("zoe")[0] < 3.0


async def test_pieces__own_line_is_slow_and_many_neighbours_wait__comes_all_the_same(
    autojump_clock: MockClock,
) -> None:
    """Each takes ten times the first patience, and there is always somebody who has not been asked for a while."""
    scene = Scene({f"peer{number:02}": honest(50.0) for number in range(28)}, count=20)
    await scene.fetch(limit_s=400.0)


async def test_pieces__slow_one_lost_its_place__comes_last_from_then_on(autojump_clock: MockClock) -> None:
    scene = Scene({f"slow{number}": honest(320.0) for number in range(PEERS_MAX)} | {"zoe": honest()})
    scene.givers.arrives_later("zoe", 0.5)
    await scene.fetch(limit_s=60.0)
    asked = len(scene.givers.asked)
    await scene.fetch(limit_s=60.0)
    assert scene.givers.asked[asked][1] == "zoe"


async def test_pieces__one_is_ten_times_slower__is_used_and_keeps_nobody_waiting(autojump_clock: MockClock) -> None:
    scene = Scene({"alice": honest(), "bob": honest(1.0)})
    seconds = await scene.fetch()
    assert len(scene.givers.of("bob")) >= 4 and scene.twice <= STREAMS
    assert seconds < len(PIECES) * 0.1 / STREAMS + 1.5


async def test_pieces__all_leave_in_the_middle__goes_on_when_one_comes(autojump_clock: MockClock) -> None:
    scene = Scene({"alice": leaving(7), "bob": leaving(9)})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.fetch)
        await trio.sleep(100.0)
        assert not scene.givers.behaviours and 0 < len(scene.kept) <= 16
        scene.givers.behaviours["carol"] = honest()
    assert len(scene.givers.of("carol")) == len(PIECES) - 16


async def test_pieces__more_neighbours_than_pieces__no_piece_is_asked_for_twice(autojump_clock: MockClock) -> None:
    scene = Scene({f"peer{number}": honest() for number in range(30)}, count=3)
    await scene.fetch()
    assert scene.twice == 0


async def test_pieces__many_neighbours__so_many_are_asked_at_once_and_no_more(autojump_clock: MockClock) -> None:
    scene = Scene({f"peer{number:02}": honest() for number in range(30)})
    await scene.fetch()
    assert scene.givers.at_once == PEERS_MAX


async def test_pieces__places_are_taken_by_neighbours_without_any__others_get_their_turn(
    autojump_clock: MockClock,
) -> None:
    scene = Scene({f"a{number:02}": lacking for number in range(20)} | {"z": honest()})
    assert await scene.fetch(limit_s=60.0) < 10.0


async def test_pieces__neighbour_has_none_yet__is_asked_again_more_and_more_rarely(autojump_clock: MockClock) -> None:
    scene = Scene({"alice": lacking})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.fetch, 1_000.0)
        await trio.sleep(300.0)
        times = sorted(set(scene.givers.of("alice")))
        scene.givers.behaviours["alice"] = honest()
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps[0] < 2 * REST_START_S and gaps[-1] >= REST_MAX_S and gaps == sorted(gaps)
    assert len(times) <= 10


async def test_pieces__disk_refuses_one__ends_with_its_error(autojump_clock: MockClock) -> None:
    async def keep(number: int, _data: bytes, _giver: PeerId) -> None:
        if number == 5:
            raise OSError(28, "No space left on device")

    scene = Scene({"alice": honest(), "bob": stalling})
    with pytest.raises(OSError, match="No space"):
        await scene.fetcher.fetch(scene.count, scene._wanted, keep)


async def test_pieces__none_is_wanted__nobody_is_asked(autojump_clock: MockClock) -> None:
    scene = Scene({}, count=0)
    assert await scene.fetch(limit_s=1.0) == 0.0


async def test_pieces__everybody_stalls_or_lies_but_one_who_comes_late__each_piece_is_asked_of_two_at_most(
    autojump_clock: MockClock,
) -> None:
    scene = Scene({"alice": stalling, "bob": stalling, "carol": stalling, "dave": lying()}, count=6)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.fetch)
        await trio.sleep(30.0)
        stuck = len(scene.givers.asked)
        scene.givers.behaviours |= {"erin": honest()}
    assert stuck <= STREAMS * 4 + STREAMS and len(scene.givers.of("erin")) >= 1


# --- who is asked for what


def test_board__piece_takes_too_long__a_second_one_is_asked_and_a_third_instead_of_the_first() -> None:
    board = PieceBoard(1, START_S)
    assert board.take(ALICE, 0.0) == 0
    assert board.take(BOB, START_S - 0.1) is None
    assert board.take(ALICE, START_S) is None
    assert board.take(BOB, START_S) == 0
    assert board.take(CAROL, 2 * START_S - 0.1) is None
    assert board.take(CAROL, 2 * START_S) == 0
    assert not board.is_asked(0, ALICE) and board.is_asked(0, BOB) and board.is_asked(0, CAROL)


def test_board__all_are_slow__each_has_twice_the_time_at_its_next_turn() -> None:
    board, start_s = PieceBoard(1, START_S), START_S
    peers, turns = (ALICE, BOB, CAROL), []
    now_s, last_s = 0.0, 0.0
    while now_s < 16 * start_s:
        if any(board.take(peer, now_s) is not None for peer in peers if not board.is_asked(0, peer)):
            turns.append(now_s - last_s)
            last_s = now_s
        now_s += start_s / 10
    assert turns[1] == pytest.approx(start_s) and turns[-1] > 3 * start_s


def test_board__a_second_one_fails__the_first_is_still_at_it() -> None:
    board = PieceBoard(1, START_S)
    board.take(ALICE, 0.0)
    board.take(BOB, 10.0)
    board.failed(0, BOB)
    assert board.take(CAROL, 10.0) == 0
    board.failed(0, CAROL)
    board.failed(0, ALICE)
    assert board.take(BOB, 10.0) == 0


def test_board__late_comer_fails_after_the_piece_came__it_stays_there() -> None:
    board = PieceBoard(1, START_S)
    board.take(ALICE, 0.0)
    board.take(BOB, 10.0)
    board.came(0, BOB, 10.5)
    board.failed(0, ALICE)
    assert board.is_done and board.take(ALICE, 20.0) is None


@pytest.mark.parametrize(("piece_s", "patience_s"), [(0.01, piece_board.WAIT_MIN_S), (2.0, 8.0)])
def test_board__pace_is_known__patience_follows_it(piece_s: float, patience_s: float) -> None:
    board = PieceBoard(30, START_S)
    for number in range(20):
        assert board.take(ALICE, 0.0) == number
        board.came(number, ALICE, piece_s)
    assert board.patience_s() == pytest.approx(patience_s)
