"""When what breaks. Everything demanded is put on the calendar of the time in which faults are allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from tests.simulation.environment import Environment
from tests.simulation.host import Host
from tests.simulation.link import Link
from tests.simulation.scenario import Fault, stream


class Calendar:
    """Breaks links and hosts at times drawn from the seed."""

    def __init__(self, environment: Environment, hosts: list[Host], links: list[Link]) -> None:
        self._environment = environment
        self._hosts = hosts
        self._links = links
        self._random = stream(environment.scenario.seed, "calendar")
        for fault in environment.scenario.faults:
            for _ in range(self._random.randint(2, 4)):
                self._plan(fault)

    def _plan(self, fault: Fault) -> None:
        safety_ms = self._environment.scenario.safety_ms
        self._at(self._random.randrange(safety_ms // 20, safety_ms // 2), lambda: self.happen(fault))

    def _at(self, delay_ms: int, action: Callable[[], None]) -> None:
        def act() -> None:
            if self._environment.is_faulty:
                action()

        self._environment.schedule(delay_ms, act)

    def happen(self, fault: Fault) -> None:
        """Let a fault happen now; those that come by chance, or with a peer, are not on the calendar."""
        match fault:
            case Fault.PARTITION:
                self._split()
            case Fault.FLAPPING:
                self._flap(self._random.choice(self._links), self._random.randint(2, 6))
            case Fault.ASYMMETRY | Fault.SLOW_READER | Fault.STALL:
                self._hamper(fault)
            case Fault.LOST_TAIL | Fault.TORN_WRITE | Fault.DISK_FULL | Fault.CRASH_POINT:
                self._arm(fault)
            case Fault.BIT_FLIP | Fault.OLD_BACKUP | Fault.KILL | Fault.PAUSE:
                self._strike(fault, self._random.choice(self._hosts))
            case Fault.LOSS | Fault.DUPLICATION | Fault.REORDERING | Fault.CORRUPTION:
                pass
            case Fault.WORKER_LOST | Fault.WORKER_SKIP:
                pass
            case Fault.LATE_JOINER | Fault.EQUIVOCATION | Fault.SPAM | Fault.LIE | Fault.REPLAY:
                pass
            case _:
                assert_never(fault)

    def _split(self) -> None:
        """Some hosts on one side, the others on the other; a minority of one included."""
        size = self._random.randint(1, max(1, len(self._hosts) // 2))
        island = {host.name for host in self._random.sample(self._hosts, size)}
        until_ms = self._environment.now_ms + self._random.randrange(1_000, 8_000)
        crossing = [link for link in self._links if (link.ends[0] in island) != (link.ends[1] in island)]
        for link in crossing:
            link.cut_until_ms = max(link.cut_until_ms, until_ms)
            link.down()
        if crossing:
            self._environment.count(Fault.PARTITION)

    def _flap(self, link: Link, times: int) -> None:
        link.down()
        self._environment.count(Fault.FLAPPING)
        if times > 1:
            self._at(self._random.randrange(200, 1_200), lambda: self._flap(link, times - 1))

    def _hamper(self, fault: Fault) -> None:
        """One way of a link works badly for a while, the other well."""
        link = self._random.choice([link for link in self._links if link.is_up] or self._links)
        direction = link.directions[self._random.choice(link.ends)]
        until_ms = self._environment.now_ms + self._random.randrange(2_000, 9_000)
        if fault is Fault.ASYMMETRY:
            direction.lost_until_ms = until_ms
        elif fault is Fault.STALL:
            direction.stalled_until_ms = until_ms
        else:
            direction.slow_until_ms = until_ms

    def _arm(self, fault: Fault) -> None:
        """The fault strikes at the host's next chance; another host's turn where one is armed already."""
        free = [host for host in self._hosts if host.armed is None and host.is_up]
        if free:
            self._random.choice(free).armed = fault
        else:
            self._at(500, lambda: self._arm(fault))

    def _strike(self, fault: Fault, host: Host) -> None:
        is_of_disk = fault in (Fault.BIT_FLIP, Fault.OLD_BACKUP)
        if not host.is_up or (is_of_disk and host.disk.size == 0):
            self._at(500, lambda: self._strike(fault, self._random.choice(self._hosts)))
            return
        self._environment.count(fault)
        if fault is Fault.PAUSE:
            host.pause(self._random.randrange(1_000, 12_000))
            return
        if fault is Fault.BIT_FLIP:
            host.disk.flip_bit(self._random)
        if fault is Fault.OLD_BACKUP:
            host.disk.restore_backup(self._random)
        host.stop(down_ms=self._random.randrange(100, 6_000))
