"""Relays for hours, at 50 updates a second, while others come and go: memory and descriptors must not grow."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass

import click

from benchmarks.measures import say
from tests.netlab.invariants import RSS_MIB_MAX, Acknowledged, agree, until, wait_for_start
from tests.netlab.laboratory import Laboratory, NetNode, address
from tests.netlab.tables import slope, table

RATE_PER_S = 50
RATE_MIN_PER_S = 45  # else the source was in trouble, and nothing is shown
SLOPE_MIB_PER_H_MAX = 1.0
DESCRIPTORS_GROWTH_MAX = 4  # sockets of neighbours that come and go
_STEADY, _CHURNED = 3, 3
_SAMPLE_S = 5.0
_CHURN_S = 10.0  # one of the others goes, and comes back before the next does
_TOLD_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A relay at one moment."""

    seconds: float
    rss_mib: float
    descriptors: int
    updates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One relay's figures over the second half of the soak."""

    name: str
    peak_mib: float
    slope_mib_per_h: float
    bytes_per_update: float
    descriptors: tuple[int, int]  # most in the third quarter, most in the fourth
    rate_per_s: float

    @property
    def faults(self) -> list[str]:
        """What is wrong with it; empty when all is well."""
        found = []
        if self.peak_mib > RSS_MIB_MAX:
            found.append(f"{self.peak_mib:.0f} MiB > {RSS_MIB_MAX:.0f}")
        if self.rate_per_s < RATE_MIN_PER_S:
            found.append(f"{self.rate_per_s:.1f} updates/s < {RATE_MIN_PER_S}")
        if self.slope_mib_per_h >= SLOPE_MIB_PER_H_MAX:
            found.append(f"{self.slope_mib_per_h:.1f} MiB/h >= {SLOPE_MIB_PER_H_MAX:.0f}")
        if self.descriptors[1] > self.descriptors[0] + DESCRIPTORS_GROWTH_MAX:
            found.append(f"descriptors {self.descriptors[0]} -> {self.descriptors[1]}")
        return found


def judge(name: str, samples: list[Sample]) -> Verdict:
    """The second half of the samples. Start-up and the first growth of pools are not held against anybody."""
    late = samples[len(samples) // 2 :]
    quarter = len(late) // 2
    per_s = slope([(s.seconds, s.rss_mib) for s in late])
    rate_per_s = slope([(s.seconds, float(s.updates)) for s in late])
    return Verdict(
        name=name,
        peak_mib=max(s.rss_mib for s in samples),
        slope_mib_per_h=3_600 * per_s,
        bytes_per_update=per_s * (1 << 20) / rate_per_s if rate_per_s else 0.0,
        descriptors=(max(s.descriptors for s in late[:quarter]), max(s.descriptors for s in late[quarter:])),
        rate_per_s=rate_per_s,
    )


def soak(minutes: float) -> int:
    """Run it, print the table; the exit code."""
    with Laboratory() as lab:
        steady, churned = _network(lab)
        samples: dict[str, list[Sample]] = {node.name: [] for node in steady}
        restarts = _churn(churned)
        started = told = time.monotonic()
        while (now := time.monotonic()) < started + 60 * minutes:
            for node in steady:
                samples[node.name].append(_sample(node, now - started))
            if now >= told + _TOLD_S:
                told = now
                _tell(samples, now - started)
            next(restarts)
            time.sleep(max(0.0, _SAMPLE_S - (time.monotonic() - now)))
        count = sum(len(node.logs) - 1 for node in churned)
        _end(lab, steady, churned)
        return _report([judge(name, found) for name, found in samples.items()], minutes, count)


def _network(lab: Laboratory) -> tuple[list[NetNode], list[NetNode]]:
    """Running relays on one switch, and the source of updates; those that stay, and those that come and go."""
    switch = lab.wiring.switch("net")
    nodes: list[NetNode] = []
    addresses: list[str] = []
    for index in range(_STEADY + _CHURNED):
        machine = lab.wiring.namespace(f"steady{index}" if index < _STEADY else f"churned{index - _STEADY}")
        cable = lab.wiring.plug(machine, switch)
        nodes.append(lab.node(machine, addresses[:2], relay=True))
        addresses.append(address(nodes[-1], cable.one.address))
    for node in nodes:
        node.start()
    wait_for_start(nodes)
    source = lab.wiring.namespace("source")
    lab.wiring.plug(source, switch)
    targets = [argument for target in addresses[:2] for argument in ("--target", target)]
    rate = ("--rate", str(RATE_PER_S), "--seconds", "1e9")
    lab.run(source, "-m", "tests.netlab.probe", "--run", str(lab.run_file), *targets, *rate)
    until(lambda: all(n.fresh_status().get("updates") for n in nodes), lambda: "first updates", 60.0)
    return nodes[:_STEADY], nodes[_STEADY:]


def _churn(nodes: list[NetNode]) -> Iterator[None]:
    """At each call: what is due of going and coming, one node at a time, killed or stopped politely."""
    chance, due, down = random.Random(50), time.monotonic() + _CHURN_S, list[NetNode]()
    while True:
        yield
        if time.monotonic() < due:
            continue
        due = time.monotonic() + _CHURN_S
        if down:
            down.pop().start()
            continue
        victim = chance.choice([node for node in nodes if node.is_up])
        down.append(victim)
        if chance.random() < 0.5:
            victim.kill()
        else:
            victim.stop(20.0)


def _sample(node: NetNode, seconds: float) -> Sample:
    updates = int(node.fresh_status().get("updates", 0))
    return Sample(seconds=seconds, rss_mib=node.rss_mib(), descriptors=node.descriptors(), updates=updates)


def _tell(samples: dict[str, list[Sample]], seconds: float) -> None:
    last = {name: found[-1] for name, found in samples.items()}
    parts = (
        f"{name} {s.rss_mib:.1f} MiB, {s.descriptors} descriptors, {s.updates} updates" for name, s in last.items()
    )
    say(f"{seconds / 60:.0f} min: " + "; ".join(parts))


def _end(lab: Laboratory, steady: list[NetNode], churned: list[NetNode]) -> None:
    """The source stops, those that are away come back, all agree."""
    lab.stop_programs()
    for node in churned:
        if not node.is_up:
            node.start()
    wait_for_start([*steady, *churned])
    agree([*steady, *churned])
    Acknowledged().check([*steady, *churned])


def _report(verdicts: list[Verdict], minutes: float, restarts: int) -> int:
    rows = [
        (
            v.name,
            f"{v.rate_per_s:.1f}",
            f"{v.peak_mib:.1f}",
            f"{v.slope_mib_per_h:.2f}",
            f"{v.bytes_per_update:.0f}",
            f"{v.descriptors[0]} -> {v.descriptors[1]}",
            "; ".join(v.faults) or "ok",
        )
        for v in verdicts
    ]
    header = ("relay", "updates/s", "peak MiB", "MiB/h", "bytes/update", "descriptors", "verdict")
    click.echo(table(header, rows))
    click.echo(f"{minutes:g} minutes, {restarts} restarts of others; all agreed in the end")
    return 1 if any(v.faults for v in verdicts) else 0
