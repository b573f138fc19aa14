"""Too much memory: newcomers are refused, inbound neighbours go one by one, and the others stay."""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings

from sfnode.network import bounds, memory_guard as memory
from sfnode.network.memory_guard import MemoryConfig, MemoryGuard, is_full, resident_bytes
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy.inbound_eviction import PROTECTED_OLD, InboundPlace, choose_to_evict, choose_to_shed
from sfnode.network.sessions.handshake import FULL, SHORT_OF_MEMORY
from tests.properties.test_inbound import GROUPS, PLACES
from tests.support.network_nodes import LOOPBACK, Node, network, start, until

MAX = 1_000


@dataclass(slots=True)
class Machine:
    """Memory as a test says, inbound neighbours that take some, and some that was freed but not given back."""

    resident: int | None = 0
    neighbours: int = 3
    freed: int = 0
    looks: int = 0
    let_go: list[int] = field(default_factory=list)

    def look(self) -> int | None:
        self.looks += 1
        return self.resident

    def give_back(self) -> None:
        assert self.resident is not None
        self.resident, self.freed = self.resident - self.freed, 0

    def let_one_go(self) -> bool:
        if not self.neighbours:
            return False
        self.let_go.append(self.neighbours)
        self.neighbours -= 1
        return True

    def guard(self) -> MemoryGuard:
        config = MemoryConfig(bytes_max=MAX, look=self.look, give_back=self.give_back)
        return MemoryGuard(config, self.let_one_go)


# --- the decision


@pytest.mark.parametrize(
    ("before", "resident", "after"),
    [
        (False, None, False),
        (True, None, False),
        (False, 1_000, False),
        (False, 1_001, True),
        (True, 901, True),
        (True, 900, False),
        (False, 950, False),
    ],
)
def test_memory__above_the_limit__is_full_until_a_tenth_below_it(
    before: bool, resident: int | None, after: bool
) -> None:
    assert is_full(before, resident, MAX) is after


def test_guard__above_the_limit__one_goes_at_each_look_until_nobody_is_left() -> None:
    machine = Machine(resident=1_001)
    guard = machine.guard()
    for left in (2, 1, 0, 0):
        guard.look()
        assert (machine.neighbours, guard.state.is_full) == (left, True)
    assert guard.state.let_go == 3


def test_guard__just_below_the_limit_again__nobody_goes_and_nobody_comes() -> None:
    machine = Machine(resident=1_001)
    guard = machine.guard()
    guard.look()
    machine.resident = 950
    guard.look()
    assert (machine.neighbours, guard.state.is_full) == (2, True)
    machine.resident = 900
    guard.look()
    assert (machine.neighbours, guard.state.is_full, guard.state.resident_bytes) == (2, False, 900)


def test_guard__what_is_above_was_freed_already__is_given_back_and_nobody_goes() -> None:
    machine = Machine(resident=1_200, freed=300)
    guard = machine.guard()
    guard.look()
    assert (machine.neighbours, guard.state.is_full, guard.state.resident_bytes) == (3, False, 900)


def test_guard__unknown_memory__never_lets_anybody_go() -> None:
    machine = Machine(resident=None)
    guard = machine.guard()
    guard.look()
    assert (machine.neighbours, guard.state.is_full) == (3, False)
    assert guard.state.in_words().startswith("unknown")


async def test_guard__runs__looks_once_in_each_interval(autojump_clock: trio.abc.Clock) -> None:
    machine = Machine(resident=1)
    with trio.move_on_after(10.5 * bounds.MEMORY_LOOK_S):
        await machine.guard().run()
    assert machine.looks == 11


# --- who goes


@settings(max_examples=25)
@given(PLACES, GROUPS)
def test_shedding__any_places__takes_whom_a_newcomer_may_displace_and_the_useful_last(
    places: list[InboundPlace], newcomer: object
) -> None:
    order = []
    while places:
        victim = choose_to_shed(places)
        (found,) = [place for place in places if place.peer == victim]
        order.append(found)
        displaced = choose_to_evict(places, newcomer)  # type: ignore[arg-type]
        assert displaced in (None, victim)
        places = [place for place in places if place.peer != victim]
    last = order[-PROTECTED_OLD:]  # the oldest; the most useful of them are the last
    assert [place.news for place in last] == sorted(place.news for place in last)
    assert choose_to_shed([]) is None


# --- what the system says


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says it")
def test_resident__a_block_is_filled__grows_by_it() -> None:
    before = resident_bytes()
    with mmap.mmap(-1, 64 << 20) as block:  # not on the heap, which may have that much free already
        for place in range(0, len(block), mmap.PAGESIZE):
            block[place] = 1
        after = resident_bytes()
    assert before is not None and after is not None
    assert after - before > 48 << 20


@pytest.mark.parametrize("content", [None, b"", b"12", b"12 many"])
def test_resident__system_does_not_say__is_unknown(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "statm").write_bytes(content)
    monkeypatch.setattr(memory, "_STATM", tmp_path / "statm")
    assert resident_bytes() is None


def test_give_back__c_library_without_trim__does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _name: object())
    memory.give_back()


# --- a network


async def test_node__memory_full__inbound_neighbours_go_newcomers_wait_and_the_dialled_stay() -> None:
    machine = Machine(resident=1)
    config = MemoryConfig(bytes_max=MAX, look=machine.look, give_back=lambda: None, interval_s=0.01)
    async with trio.open_nursery() as nursery:
        chosen = await start(nursery, network(1))
        node = await start(
            nursery, network(2, NetworkConfig(listen=(LOOPBACK,), bootstrap=chosen.addresses, memory=config))
        )
        guests = [await _guest(nursery, number, node) for number in (3, 4)]
        await until(lambda: node.peers() == {chosen.peer, *(guest.peer for guest in guests)})
        machine.resident = 1_001
        await until(lambda: all(guest.disconnected() for guest in guests))
        assert {guest.disconnected()[0].reason for guest in guests} == {f"the peer said bye: {SHORT_OF_MEMORY}"}
        newcomer = await _guest(nursery, 5, node)
        await until(_has_failed(newcomer))
        assert newcomer.network.dialler.reports[0].reason == FULL
        assert node.peers() == {chosen.peer}
        assert node.network.statistics().memory.let_go == 2
        machine.resident = 900
        await until(lambda: not node.network.statistics().memory.is_full)
        late = await _guest(nursery, 6, node)
        await until(lambda: node.peers() == {chosen.peer, late.peer})
        nursery.cancel_scope.cancel()


async def _guest(nursery: trio.Nursery, number: int, node: Node) -> Node:
    return await start(nursery, network(number, NetworkConfig(bootstrap=node.addresses, neighbours_fixed=True)))


def _has_failed(node: Node) -> Callable[[], bool]:
    return lambda: bool(node.network.dialler.reports)
