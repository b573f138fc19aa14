"""A link between two neighbours: an ordered stream that is delayed, broken, cut, and worse."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.errors import Reject
from protocol.wire import PeerId, decode_untrusted, encode
from tests.simulation.environment import Environment
from tests.simulation.scenario import Fault

_DIAL_MS = 400
_NEW_IDENTITY_MS = 3_000  # a hostile peer that was cut off comes back under another name
_END_IS_KNOWN_MS = 60
_LAST_WORDS_MS = 1_500  # of a process that has died; what a stalled link holds back longer is lost
_BUFFER_MS = 4_000  # what would wait longer than this for a slow reader is dropped
_CHANCES = {Fault.DUPLICATION: 0.03, Fault.REORDERING: 0.05, Fault.CORRUPTION: 0.015}


@dataclass(slots=True)
class Direction:
    """One way of a link."""

    last_arrival_ms: int = 0
    lost_until_ms: int = 0
    stalled_until_ms: int = 0
    slow_until_ms: int = 0


class Link:
    """Two ends; sessions come and go. ``is_banned``: one end has cut the other off for good."""

    def __init__(self, world: Environment, a: PeerId, b: PeerId, *, dial_ms: int = _DIAL_MS) -> None:
        self.ends = (a, b)
        self.is_up = False
        self.is_banned = False
        self.cut_until_ms = 0
        self.directions = {a: Direction(), b: Direction()}
        self._world = world
        self._dial_ms = dial_ms
        self._session = 0
        self._end_is_known_ms = 0
        self._last_words: tuple[PeerId | None, int] = (None, -1)
        self._random = world.random
        world.schedule(self._random.randrange(dial_ms), self._dial)

    def other(self, end: PeerId) -> PeerId:
        """The end that is not ``end``."""
        return self.ends[1] if end == self.ends[0] else self.ends[0]

    @property
    def _free_ms(self) -> int:
        """From when on a new session may begin."""
        return max(self.cut_until_ms, self._end_is_known_ms)

    def heal(self) -> None:
        """No fault any more; what was sent before may still be on its way."""
        self.cut_until_ms = 0
        for direction in self.directions.values():
            direction.lost_until_ms = direction.stalled_until_ms = direction.slow_until_ms = 0

    def down(self, dying: PeerId | None = None) -> None:
        """The connection breaks: what is on its way is lost, and both ends are told.

        But what a ``dying`` process has handed to its kernel still arrives: the other end reads it before the end.
        """
        if not self.is_up:
            return
        now_ms = self._world.now_ms
        self.is_up = False
        self._last_words = (dying, self._session)
        self._session += 1
        unread_ms = max(0, min(self.directions[dying].last_arrival_ms - now_ms, _LAST_WORDS_MS)) if dying else 0
        # The network tells of a session's end before it tells of the next session's beginning.
        self._end_is_known_ms = now_ms + unread_ms + _END_IS_KNOWN_MS
        for end in self.ends:
            delay_ms = self._random.randrange(_END_IS_KNOWN_MS) + (0 if end == dying else unread_ms)
            self._world.hosts[end].peer_left(self.other(end), delay_ms)

    def ban(self) -> None:
        """One end will have no more to do with the other."""
        self.is_banned = True
        self.down()
        if any(self._world.hosts[end].is_hostile for end in self.ends):
            self._world.schedule(_NEW_IDENTITY_MS, self._come_back)

    def carry(self, source: PeerId, data: bytes) -> None:
        """Send a frame from one end to the other, in order, unless a fault hits it."""
        if not self.is_up:
            return
        world, direction = self._world, self.directions[source]
        world.trace("send", source, self.other(source), data)
        if world.now_ms < direction.lost_until_ms:
            world.count(Fault.ASYMMETRY)
            return
        if self._hits(Fault.LOSS, world.scenario.loss):
            return
        if world.now_ms < direction.slow_until_ms and self._is_too_slow(direction, len(data)):
            return
        arrival_ms = self._arrival_ms(direction)
        self._deliver_at(arrival_ms, source, data)
        if self._hits(Fault.DUPLICATION):
            self._deliver_at(arrival_ms + self._random.randrange(1, 500), source, data)

    def _arrival_ms(self, direction: Direction) -> int:
        world = self._world
        usual_ms = world.now_ms + self._random.randint(*world.scenario.delay_ms)
        if world.now_ms < direction.stalled_until_ms:
            world.count(Fault.STALL)
        arrival_ms = max(usual_ms, direction.last_arrival_ms, direction.stalled_until_ms)
        if self._hits(Fault.REORDERING):
            return arrival_ms + self._random.randrange(1, 400)  # what is sent later overtakes it
        direction.last_arrival_ms = arrival_ms
        return arrival_ms

    def _is_too_slow(self, direction: Direction, size: int) -> bool:
        """A reader of 1 kB/s: the frame waits behind the others, or is dropped when the buffer is full."""
        self._world.count(Fault.SLOW_READER)
        direction.last_arrival_ms = max(direction.last_arrival_ms, self._world.now_ms) + size
        if direction.last_arrival_ms - self._world.now_ms <= _BUFFER_MS:
            return False
        direction.last_arrival_ms -= size
        return True

    def _deliver_at(self, arrival_ms: int, source: PeerId, data: bytes) -> None:
        session = self._session
        is_corrupt = self._hits(Fault.CORRUPTION, size=len(data))

        def deliver() -> None:
            is_last_word = self._last_words == (source, session) and not self.is_up
            if not is_last_word and (self._session != session or not self.is_up):
                return
            if is_corrupt:
                self._break(data)
            else:
                self._world.hosts[self.other(source)].receive(source, data)

        self._world.schedule(max(0, arrival_ms - self._world.now_ms), deliver)

    def _break(self, data: bytes) -> None:
        """Corrupted on the way: Noise notices and the connection ends; the decoder survives it as well."""
        flipped = bytearray(data)
        flipped[self._random.randrange(len(flipped))] ^= 1 << self._random.randrange(8)
        try:
            message = decode_untrusted(bytes(flipped))
        except Reject:
            pass
        else:
            assert encode(message) == bytes(flipped)
        self.down()

    def _hits(self, fault: Fault, chance: float | None = None, *, size: int = 1) -> bool:
        world = self._world
        if not world.is_faulty or fault not in world.scenario.faults or not size:
            return False
        if self._random.random() >= (_CHANCES[fault] if chance is None else chance):
            return False
        world.count(fault)
        return True

    def _dial(self) -> None:
        """For ever: an end that may be connected and is not tries again."""
        world = self._world
        are_up = all(world.hosts[end].is_up for end in self.ends)
        if not self.is_up and not self.is_banned and are_up and world.now_ms >= self._free_ms:
            self.is_up = True
            for end in self.ends:
                world.hosts[end].peer_joined(self.other(end))
        world.schedule(self._dial_ms + self._random.randrange(self._dial_ms), self._dial)

    def _come_back(self) -> None:
        self.is_banned = False
