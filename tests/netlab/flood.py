"""How fast an update reaches all real processes on real cables, what it costs, and how many a second they hold."""

from __future__ import annotations

import json
import subprocess
import time
from statistics import median, quantiles
from typing import Any

from benchmarks.graphs import Edges
from tests.netlab.invariants import until, wait_for_start
from tests.netlab.laboratory import Laboratory, address
from tests.netlab.namespaces import run

AUTHORS = 20
_SETTLE_S = 5.0  # after the start: first heads, first questions
_IDLE_S = 10.0  # what nodes spend without updates is measured for so long, and left out
_LAG_S = 10.0  # after the last update: a node that needs longer has not held the rate
Row = tuple[str, ...]


def latency(name: str, edges: Edges, count: int, *, updates: int, rate: float, is_training: bool = False) -> Row:
    """One row: seconds until all hold an update of the probe, bytes and CPU for each update of anybody and node.

    ``is_training``: all nodes train meanwhile, on one worker; else nothing else happens, and what an idle node spends
    is left out.
    """
    with Laboratory(is_embedded=is_training) as lab:
        targets = _nodes(lab, edges, count, is_training=is_training)
        idle_rates = [0.0, 0.0] if is_training else _idle_rates(lab)
        probe = _probe(lab, targets, rate=rate, seconds=updates / rate, is_watching=True)
        held, meter, started = _held(lab), _Meter(lab), time.monotonic()
        result = _give(probe)
        lasted, copies = time.monotonic() - started, _held(lab) - held
        pairs = zip(meter.spent(), idle_rates, strict=True)
        cpu_s, wire_bytes = (spent - lasted * per_s for spent, per_s in pairs)
        all_ms = [1_000 * seconds for seconds in result["all_s"]]
        each_ms = [1_000 * seconds for seconds in result["each_s"]]
        return (
            name,
            str(result["given"]),
            str(result["incomplete"]),
            f"{copies / count / lasted:.1f}",
            f"{median(each_ms):.0f} / {quantiles(each_ms, n=100)[98]:.0f}",
            f"{median(all_ms):.0f} / {quantiles(all_ms, n=100)[98]:.0f}",
            f"{wire_bytes / copies:.0f}",
            f"{1e3 * cpu_s / copies:.2f}",
        )


def _idle_rates(lab: Laboratory) -> list[float]:
    idle = _Meter(lab)
    time.sleep(_IDLE_S)
    return [spent / _IDLE_S for spent in idle.spent()]


LATENCY_HEADER = (
    "graph", "updates", "incomplete", "of all authors /s", "one node ms, median / p99", "all nodes ms, median / p99",
    "wire bytes in / update / node", "CPU ms / update / node",
)  # fmt: skip


def throughput(edges: Edges, count: int, *, rate: float, seconds: float) -> tuple[Row, bool]:
    """One row, and whether all nodes held the rate: everything everywhere within LAG_S of the last update."""
    with Laboratory() as lab:
        targets = _nodes(lab, edges, count)
        probe = _probe(lab, targets[:4], rate=rate, seconds=seconds, is_watching=False)
        meter, started = _Meter(lab), time.monotonic()
        result = _give(probe)
        given, lasted = int(result["given"]), time.monotonic() - started
        try:
            lag_s = until(lambda: _fewest(lab) >= given, lambda: "all updates at all nodes", _LAG_S)
        except AssertionError:
            lag_s = float("inf")
        cpu_s, wire_bytes = meter.spent()
        copies = given * count
        is_held = lag_s <= _LAG_S and given >= 0.95 * rate * seconds
        row = (
            str(count), f"{rate:.0f}", f"{given / seconds:.0f}", str(_fewest(lab)), str(given),
            f"{lag_s:.1f}", f"{wire_bytes / copies:.0f}", f"{1e3 * cpu_s / copies:.2f}", f"{cpu_s / lasted:.2f}",
            "yes" if is_held else "no",
        )  # fmt: skip
        return row, is_held


THROUGHPUT_HEADER = (
    "nodes", "asked /s", "given /s", "fewest held", "given", "lag s", "wire bytes in / update / node",
    "CPU ms / update / node", "cores used", "held",
)  # fmt: skip


def _nodes(lab: Laboratory, edges: Edges, count: int, *, is_training: bool = False) -> list[str]:
    """Running nodes on the graph's cables, each of them also on a switch for the probe; where to dial them there."""
    lab.graph(edges, count, relays=() if is_training else range(count))
    switch = lab.wiring.switch("net")
    targets = [address(node, lab.wiring.plug(node.machine, switch).one.address) for node in lab.nodes]
    for node in lab.nodes:
        node.start()
    wait_for_start(lab.nodes, 240.0)
    degree = [sum(index in edge for edge in edges) for index in range(count)]
    until(
        lambda: all(n.fresh_status()["peers"] >= degree[index] for index, n in enumerate(lab.nodes)),
        lambda: "every edge of the graph is a session",
        120.0,
    )
    time.sleep(_SETTLE_S)
    machine = lab.wiring.namespace("probe")
    lab.wiring.plug(machine, switch)
    return targets


def _probe(
    lab: Laboratory, targets: list[str], *, rate: float, seconds: float, is_watching: bool
) -> subprocess.Popen[str]:
    """The probe, connected to all targets; it has signed, and waits."""
    machine = next(made for made in lab.wiring.made if made.name == "probe")
    arguments = [argument for target in targets for argument in ("--target", target)]
    command = ["-m", "tests.netlab.probe", "--hold", "--run", str(lab.run_file), "--authors", str(AUTHORS), *arguments]
    probe = lab.run(machine, *command, "--rate", str(rate), "--seconds", str(seconds), *["--watch"] * is_watching)
    assert probe.stdout is not None
    assert probe.stdout.readline() == "ready\n"
    time.sleep(_SETTLE_S)
    return probe


def _give(probe: subprocess.Popen[str]) -> dict[str, Any]:
    """Let the probe give its updates; what it has seen. It stays connected until the laboratory is cleared away."""
    assert probe.stdin is not None
    probe.stdin.write("go\n")
    probe.stdin.flush()
    assert probe.stdout is not None
    result: dict[str, Any] = json.loads(probe.stdout.readline())
    return result


class _Meter:
    """What all nodes have spent since it was made."""

    def __init__(self, lab: Laboratory) -> None:
        self._nodes = lab.nodes
        self._before = self._total()

    def spent(self) -> tuple[float, float]:
        """CPU seconds, and bytes that came in on all cables of the graph, Ethernet frames included."""
        cpu_s, wire_bytes = self._total()
        return cpu_s - self._before[0], wire_bytes - self._before[1]

    def _total(self) -> tuple[float, float]:
        cpu_s = sum(node.cpu_s_now() for node in self._nodes)
        return cpu_s, sum(_received_bytes(node.machine.full_name) for node in self._nodes)


def _received_bytes(namespace: str) -> int:
    devices = json.loads(run("ip", "-n", namespace, "-s", "-j", "address"))
    graph = [device for device in devices if _is_of_graph(device)]
    return sum(int(device["stats64"]["rx"]["bytes"]) for device in graph)


def _is_of_graph(device: dict[str, Any]) -> bool:
    """A cable to a neighbour; the switch, on which the probe is, has a larger network."""
    return any(found.get("prefixlen") == 30 for found in device["addr_info"])


def _fewest(lab: Laboratory) -> int:
    return min(int(node.fresh_status().get("updates", 0)) for node in lab.nodes)


def _held(lab: Laboratory) -> int:
    """Updates that the nodes hold, all nodes together."""
    return sum(int(node.fresh_status().get("updates", 0)) for node in lab.nodes)
