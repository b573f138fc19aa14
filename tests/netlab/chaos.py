"""Real processes killed, frozen, cut off and joined among liars, round after round; after each round all must agree."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from statistics import median

import click

from benchmarks.graphs import random_of_degree
from benchmarks.measures import say
from tests.netlab.bent import BENDS, VARIABLE
from tests.netlab.invariants import (
    PROGRESS_S,
    RSS_MIB_MAX,
    Acknowledged,
    BrokenInvariantError,
    agree,
    check_nobody_stuck,
    wait_for_start,
    wait_for_updates,
)
from tests.netlab.laboratory import Laboratory, NetNode, address
from tests.netlab.namespaces import Cable, Namespace
from tests.netlab.tables import table

_NODES, _DEGREE = 8, 4
_TRAINING = range(0, _NODES, 2)
_PACE_MS = 1_000  # a killed node replays its disk: a quicker run would be busy with nothing else after an hour
_FAULTS_S = 12.0  # of each round
_KILL_S = (0.3, 1.2)  # between two kills
_DOWN_S = 0.5  # at most, before a killed node starts again
_FROZEN_S = (1.0, 4.0)
_AGREE_S = 120.0
_LIARS = ("wrong_digests", "empty_promises", "garbage")
CLASSES = (
    "SIGKILL",
    "SIGKILL before it was up",
    "SIGSTOP and SIGCONT",
    "partition",
    "cable pulled",
    "join among liars",
)


@dataclass
class Chaos:
    """A network under attack from its own machines."""

    lab: Laboratory
    chance: random.Random
    cables: dict[tuple[int, int], Cable] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    agreed_s: list[float] = field(default_factory=list)
    joined_s: list[float] = field(default_factory=list)
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    hosts: dict[str, str] = field(default_factory=dict)  # address on the switch, by name of the machine
    switch: Namespace = field(init=False)
    liars: dict[str, NetNode] = field(default_factory=dict)
    joiner: NetNode | None = None
    joiner_started: float = 0.0
    joiner_target: int = 0

    # --- building -----------------------------------------------------------------------------------------

    def build(self) -> None:
        """Nodes on a random graph of cables; liars, stallers and joiners reach them over a switch."""
        lab = self.lab
        relays = [index for index in range(_NODES) if index not in _TRAINING]
        self.cables = lab.graph(random_of_degree(_DEGREE)(_NODES), _NODES, relays=relays)
        self.switch = lab.wiring.switch("net")
        for node in lab.nodes:
            self.hosts[node.name] = lab.wiring.plug(node.machine, self.switch).one.address
        for node in list(lab.nodes):
            node.start()
        for bend in (*_LIARS, "stalls"):
            self._add_liar(bend)
        wait_for_start(lab.nodes)
        wait_for_updates(lab.nodes, 3)
        self.joiner = lab.node(lab.wiring.namespace("joiner"), relay=True, fixed=True)
        lab.wiring.plug(self.joiner.machine, self.switch)

    def _add_liar(self, bend: str) -> None:
        assert bend in BENDS
        machine = self.lab.wiring.namespace(f"liar-{bend.replace('_', '-')}")
        self.hosts[machine.name] = self.lab.wiring.plug(machine, self.switch).one.address
        liar = self.lab.node(machine, [self._address(self.lab.nodes[0])], relay=True, fixed=True)
        liar.prefix = (*liar.prefix, "env", f"{VARIABLE}={bend}")
        liar.module, liar.is_honest = "tests.netlab.bent", False
        liar.start()
        self.liars[bend] = liar

    def _address(self, node: NetNode) -> str:
        return address(node, self.hosts[node.name])

    @property
    def nodes(self) -> list[NetNode]:
        """Those that stay."""
        return self.lab.nodes[:_NODES]

    # --- one round ----------------------------------------------------------------------------------------

    def round(self) -> None:
        """Some seconds of faults, then peace, then the invariant."""
        self._start_join()
        cut = self._cut()
        ends = time.monotonic() + _FAULTS_S
        frozen = self._freeze()
        thaws = time.monotonic() + self.chance.uniform(*_FROZEN_S)
        while time.monotonic() < thaws:
            self._kill_one([node for node in self.nodes if node is not frozen])
        _signal(frozen, signal.SIGCONT)
        while time.monotonic() < ends:
            self._kill_one(self.nodes)
        for cable in cut:
            cable.mend()
        self._check()

    def _kill_one(self, nodes: list[NetNode]) -> None:
        victim = self.chance.choice(nodes)
        was_up = bool(victim.fresh_status())
        victim.kill()
        self.acknowledged.note(victim)
        self.done["SIGKILL" if was_up else "SIGKILL before it was up"] += 1
        time.sleep(self.chance.uniform(0.0, _DOWN_S))
        victim.start()
        time.sleep(self.chance.uniform(*_KILL_S))

    def _freeze(self) -> NetNode:
        victim = self.chance.choice(self.nodes)
        _signal(victim, signal.SIGSTOP)
        self.done["SIGSTOP and SIGCONT"] += 1
        return victim

    def _cut(self) -> list[Cable]:
        """Most rounds split the nodes in two; the others pull a cable."""
        if self.chance.random() < 0.2:
            self.done["cable pulled"] += 1
            cut = [self.chance.choice(list(self.cables.values()))]
        else:
            self.done["partition"] += 1
            west = set(self.chance.sample(range(_NODES), self.chance.randint(1, _NODES // 2)))
            cut = [cable for (one, other), cable in self.cables.items() if (one in west) != (other in west)]
        for cable in cut:
            cable.cut()
        return cut

    def _start_join(self) -> None:
        """An empty node that knows one liar, one that stalls, and two honest nodes that may die any moment."""
        joiner = self.joiner
        assert joiner is not None
        if joiner.is_up:
            joiner.kill()
        shutil.rmtree(joiner.directory, ignore_errors=True)
        self.acknowledged.forget(joiner)
        liar = self.liars[self.chance.choice(_LIARS)]
        known = [liar, self.liars["stalls"], *self.chance.sample(self.nodes, 2)]
        run = ["--run", str(self.lab.run_file), "--relay", "--neighbours-fixed"]
        joiner.arguments = [*run, *(part for node in known for part in ("--bootstrap", self._address(node)))]
        self.joiner_target = max(int(node.status().get("updates", 0)) for node in self.nodes)
        self.joiner_started = time.monotonic()
        joiner.start()
        self.done["join among liars"] += 1

    def _check(self) -> None:
        """All agree, the joiner included; nothing is lost, nobody stuck, nobody too large."""
        assert self.joiner is not None
        everybody = [*self.nodes, self.joiner]
        wait_for_start(everybody)
        self.lab.pause()
        self.agreed_s.append(agree(everybody, _AGREE_S))
        self.joined_s.append(time.monotonic() - self.joiner_started)
        self.acknowledged.check(everybody)
        void = {node.fresh_status()["void_slots"] for node in everybody}
        if void != {0}:
            raise BrokenInvariantError(f"honest nodes have equivocated: void slots {void}")
        largest = max(node.rss_mib(peak=True) for node in everybody)
        if largest > RSS_MIB_MAX:
            raise BrokenInvariantError(f"a node took {largest:.0f} MiB")
        self.lab.resume()
        check_nobody_stuck(self.nodes, PROGRESS_S)


def _signal(node: NetNode, number: signal.Signals) -> None:
    assert node.process is not None
    node.process.send_signal(number)


def chaos(minutes: float, seed: int) -> int:
    """Rounds for so long; prints the table; the exit code."""
    say(f"seed {seed}; the order of faults follows from it, their moments do not")
    with Laboratory(pace_ms=_PACE_MS) as lab:
        present = Chaos(lab=lab, chance=random.Random(seed))
        present.build()
        started, violation, rounds = time.monotonic(), "", 0
        for rounds in count(1):
            try:
                present.round()
            except BrokenInvariantError as error:
                violation = str(error)
            minutes_done = (time.monotonic() - started) / 60
            told = ", ".join(f"{number} {name}" for name, number in present.done.items())
            say(f"{minutes_done:.1f} min, round {rounds}: {told}; agreed after {present.agreed_s[-1:]} s")
            if violation or minutes_done >= minutes:
                break
        _report(present, (time.monotonic() - started) / 3_600, rounds)
        click.echo(f"VIOLATION: {violation}" if violation else "no violation")
        return 1 if violation else 0


def _report(present: Chaos, hours: float, rounds: int) -> None:
    rows = [(name, str(present.done[name]), f"{present.done[name] / hours:.0f}") for name in CLASSES]
    click.echo(table(("fault", "times", "per hour"), rows))
    if present.agreed_s:
        click.echo(
            f"{rounds} rounds in {60 * hours:.1f} min; after the last fault of a round all agreed within "
            f"{median(present.agreed_s):.1f} s (median), {max(present.agreed_s):.1f} s (longest); "
            f"{len(present.acknowledged.updates)} acknowledged updates, 0 lost"
        )
