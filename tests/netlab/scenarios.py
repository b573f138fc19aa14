"""The scenarios: what goes wrong, and the invariant that holds once it has ended. Each gets a laboratory of its own.

``is_short`` makes the faults last seconds where they would last minutes; what is demanded is the same.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from sfnode.storage.key_file import IDENTITY_FILE
from tests.netlab.invariants import (
    Acknowledged,
    BrokenInvariantError,
    check_healed,
    until,
    wait_for_start,
    wait_for_updates,
)
from tests.netlab.laboratory import PORT, Laboratory, NetNode, address
from tests.netlab.namespaces import Cable, Namespace
from tests.netlab.topology import TOPOLOGIES

Scenario = Callable[[Laboratory, bool], None]
_KNOWN_PEERS_S = 10.0  # a node writes its address book every 5 s, and asks for peers in the first seconds
_DIAL = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)"


@dataclass(frozen=True, slots=True)
class Switched:
    """Nodes on one switch that find each other through the first of them."""

    switch: Namespace
    nodes: list[NetNode]
    cables: list[Cable]


def switched(lab: Laboratory, count: int, *, first_trains: bool = True) -> Switched:
    """``count`` running nodes; all have updates."""
    switch = lab.wiring.switch("net")
    cables: list[Cable] = []
    nodes: list[NetNode] = []
    for index in range(count):
        machine = lab.wiring.namespace(f"n{index}")
        cables.append(lab.wiring.plug(machine, switch))
        known = [address(nodes[0], cables[0].one.address)] if nodes else []
        nodes.append(lab.node(machine, known, relay=index == 0 and not first_trains))
    start(nodes)
    return Switched(switch, nodes, cables)


def start(nodes: list[NetNode]) -> None:
    """Start them; each has heard of some updates."""
    for node in nodes:
        node.start()
    wait_for_start(nodes)
    wait_for_updates(nodes, 3)


def late_joiner_behind_nat(lab: Laboratory, is_short: bool) -> None:
    """A node that nobody can dial, and that comes late, holds all and trains like the others."""
    net = switched(lab, 2 if is_short else 4)
    wait_for_updates(net.nodes, 20 if is_short else 200)
    machine = lab.wiring.namespace("hidden")
    inside, outside = lab.wiring.behind_nat(machine, net.switch)
    inside.limit_rate(2_000)
    joiner = lab.node(machine, [address(net.nodes[0], net.cables[0].one.address)])
    started = time.monotonic()
    joiner.start()
    until(lambda: joiner.fresh_status().get("own_updates"), lambda: "an update of the joiner", 60.0)
    lab.figures["own update after s"] = round(time.monotonic() - started, 1)
    for cable in (inside, outside):
        dial = [*net.nodes[1].prefix, sys.executable, "-c", _DIAL, cable.one.address, str(PORT)]
        if subprocess.run(dial, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            raise BrokenInvariantError(f"the joiner can be dialled at {cable.one.address}: that is not a NAT")
    if not is_short:
        until(lambda: joiner.fresh_status().get("peers", 0) >= 3, lambda: "three neighbours of the joiner", 60.0)
    check_healed(lab, Acknowledged())
    lab.figures["joiner's peers"] = joiner.fresh_status()["peers"]


def everybody_leaves_but_one(lab: Laboratory, is_short: bool) -> None:
    """All nodes but one die; it trains on; they come back, one with nothing but its key, and none equivocates."""
    net = switched(lab, 3 if is_short else 6)
    wait_for_updates(net.nodes, 10)
    acknowledged = Acknowledged()
    survivor, dead, amnesiac = net.nodes[-1], net.nodes[:-1], net.nodes[-2]
    for node in dead:
        node.kill()
    for node in dead[:-1]:  # what the last one had stored and not yet sent goes with its disk
        acknowledged.note(node)
    before = survivor.fresh_status()["own_updates"]
    alone = 5 if is_short else 100
    lab.figures["alone s"] = round(
        until(lambda: survivor.fresh_status()["own_updates"] > before + alone, lambda: "the last node trains on", 90.0),
        1,
    )
    for path in amnesiac.directory.iterdir():
        if path.name != IDENTITY_FILE:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for node in dead:
        node.start()
    wait_for_start(dead)
    wait_for_updates(dead, 3)
    check_healed(lab, acknowledged)
    void = {node.fresh_status()["void_slots"] for node in net.nodes}
    if void != {0}:
        raise BrokenInvariantError(f"honest nodes have equivocated: void slots {void}")


def bootstrap_dies_for_ever(lab: Laboratory, is_short: bool) -> None:
    """The only host that all were told of is gone for good; the others stay one network, also after restarts."""
    net = switched(lab, 4 if is_short else 6)
    time.sleep(_KNOWN_PEERS_S)
    bootstrap, rest = net.nodes[0], net.nodes[1:]
    acknowledged = Acknowledged()
    bootstrap.kill()
    acknowledged.note(bootstrap)
    for node in rest:
        node.kill()
    time.sleep(1.0)
    started = time.monotonic()
    start(rest)
    machine = lab.wiring.namespace("newcomer")
    lab.wiring.plug(machine, net.switch)
    newcomer = lab.node(machine, [address(rest[0], net.cables[1].one.address)])
    start([newcomer])
    until(
        lambda: all(node.fresh_status().get("peers", 0) >= 2 for node in rest),
        lambda: "two neighbours for each that is left",
        90.0,
    )
    lab.figures["one network again s"] = round(time.monotonic() - started, 1)
    check_healed(lab, acknowledged)


def halves_for_two_minutes(lab: Laboratory, is_short: bool) -> None:
    """The network is two for two minutes; both halves train on, and become one again."""
    size = 2 if is_short else 4
    switches = [lab.wiring.switch(name) for name in ("west", "east")]
    trunk = lab.wiring.trunk(*switches)
    cables: list[Cable] = []
    for index in range(2 * size):
        machine = lab.wiring.namespace(f"n{index}")
        cables.append(lab.wiring.plug(machine, switches[index // size]))
        known = [address(lab.nodes[low], cables[low].one.address) for low in {0, size} if low < index]
        lab.node(machine, known)
    start(lab.nodes)
    trunk.cut()
    cut_at = time.monotonic()
    for half in (lab.nodes[:size], lab.nodes[size:]):
        wait_for_updates(half, 5 if is_short else 50)
    time.sleep(max(0.0, (8.0 if is_short else 120.0) - (time.monotonic() - cut_at)))
    roots = {node.fresh_status()["ledger_root"] for node in (lab.nodes[0], lab.nodes[size])}
    if len(roots) == 1:
        raise BrokenInvariantError("the halves hold the same set: the trunk was not cut")
    acknowledged = Acknowledged()
    for node in lab.nodes:
        acknowledged.note(node)
    trunk.mend()
    check_healed(lab, acknowledged, 180.0)


def thirty_percent_churn(lab: Laboratory, is_short: bool) -> None:
    """For two minutes three of ten nodes are down at any time, others every few seconds, killed or stopped politely."""
    net = switched(lab, 10, first_trains=False)
    acknowledged = Acknowledged()
    chance = random.Random(30)
    down: list[NetNode] = []
    ends = time.monotonic() + (15.0 if is_short else 120.0)
    kills = stops = 0
    while time.monotonic() < ends:
        victim = chance.choice([node for node in net.nodes if node not in down])
        if chance.random() < 0.5:
            victim.kill()
            kills += 1
        else:
            victim.stop(20.0)
            stops += 1
        acknowledged.note(victim)
        down.append(victim)
        if len(down) > 3:
            down.pop(0).start()
        time.sleep(chance.uniform(0.5, 2.0))
    for node in down:
        node.start()
    wait_for_start(net.nodes)
    check_healed(lab, acknowledged)
    lab.figures |= {"kills": kills, "polite stops": stops}


def stalled_reader(lab: Laboratory, is_short: bool) -> None:
    """Peers that ask and never read, and a neighbour that is frozen, hold up nobody else."""
    net = switched(lab, 4)
    frozen = net.nodes[-1]
    assert frozen.process is not None
    frozen.process.send_signal(signal.SIGSTOP)
    _under_attack(lab, net, "stalled_reader", 10.0 if is_short else 60.0, awake=net.nodes[:-1])
    frozen.process.send_signal(signal.SIGCONT)
    check_healed(lab, Acknowledged())


def spammer(lab: Laboratory, is_short: bool) -> None:
    """Garbage, forgeries, copies and bursts under ever new identities: honest nodes go on, within their bounds."""
    net = switched(lab, 2 if is_short else 4)
    _under_attack(lab, net, "spammer", 5.0 if is_short else 60.0)
    check_healed(lab, Acknowledged())


def sybil_flood(lab: Laboratory, is_short: bool) -> None:
    """40 identities take slots and sign for 300 made-up authors, also twice for a step: all honest nodes hold the same
    set, a newcomer finds its place, the honest ones go on. (More authors than the run has places for: threat model.)"""
    net = switched(lab, 4)
    process = _under_attack(lab, net, "sybil_flood", 10.0 if is_short else 60.0, ends=False)
    machine = lab.wiring.namespace("newcomer")
    lab.wiring.plug(machine, net.switch)
    started = time.monotonic()
    start([lab.node(machine, [address(net.nodes[0], net.cables[0].one.address)])])
    lab.figures["newcomer in s"] = round(time.monotonic() - started, 1)
    process.kill()
    check_healed(lab, Acknowledged())


def flow_control_cheat(lab: Laboratory, is_short: bool) -> None:
    """Peers that send past the window are cut off, and cost no memory that counts."""
    net = switched(lab, 2 if is_short else 4)
    _under_attack(lab, net, "flow_control_cheat", 5.0 if is_short else 60.0)
    check_healed(lab, Acknowledged())


def poisoned_peer_exchange(lab: Laboratory, is_short: bool) -> None:
    """A neighbour tells of thousands of peers that do not exist: nodes keep their neighbours, and find them again after
    a restart with the poison in their address books."""
    net = switched(lab, 5)
    _under_attack(lab, net, "poisoned_peer_exchange", 40.0 if is_short else 90.0)
    acknowledged = Acknowledged()
    for node in net.nodes[1:]:
        node.kill()
        acknowledged.note(node)
    start(net.nodes[1:])
    until(
        lambda: all(node.fresh_status().get("peers", 0) >= 3 for node in net.nodes),
        lambda: f"three neighbours for everybody again: {[node.fresh_status().get('peers') for node in net.nodes]}",
        120.0,
    )
    check_healed(lab, acknowledged)


def every_topology(lab: Laboratory, is_short: bool) -> None:
    """Line, ring, grid, random graph, two islands, each of real cables with 1 Mbit/s: cables are pulled, all agree."""
    for name, build in TOPOLOGIES.items():
        with Laboratory() as part:
            edges = build(8)
            cables = part.graph(edges, 8)
            for cable in cables.values():
                cable.limit_rate(1_000)
            start(part.nodes)
            chosen = list(cables.values())[-1:]  # of two islands: the bridge
            for cable in chosen:
                cable.cut()
            wait_for_updates(part.nodes, 5)
            for cable in chosen:
                cable.mend()
            lab.figures[f"{name}: agree s"] = round(check_healed(part, Acknowledged()), 1)


def bad_links(lab: Laboratory, is_short: bool) -> None:
    """All that two nodes hear of each other goes through a proxy that delays, resets, throttles, slices, corrupts and
    stalls: the run goes on between the faults, and in the end all agree."""
    switch = lab.wiring.switch("net")
    machines = [lab.wiring.namespace(name) for name in ("n0", "n1", "middle")]
    here, _, middle = (lab.wiring.plug(machine, switch).one.address for machine in machines)
    target = lab.node(machines[0], fixed=True)
    dialler = lab.node(machines[1], [address(target, middle)], fixed=True)
    ends = ("--listen", f"0.0.0.0:{PORT}", "--to", f"{here}:{PORT}")
    proxy = lab.run(machines[2], "-m", "tests.netlab.proxy", *ends)
    start([target, dialler])
    assert proxy.stdin is not None
    assert proxy.stdout is not None
    for fault in ("delay", "reset", "throttle", "slice", "corrupt", "stall", "none"):
        proxy.stdin.write(f"{fault}\n")
        proxy.stdin.flush()
        lab.figures["connections"], lab.figures["hits"] = proxy.stdout.readline().split()[1:]
        time.sleep(0.0 if fault == "none" else 3.0 if is_short else 20.0)
    check_healed(lab, Acknowledged(), 180.0)


def _under_attack(
    lab: Laboratory,
    net: Switched,
    kind: str,
    seconds: float,
    *,
    awake: list[NetNode] | None = None,
    ends: bool = True,
) -> subprocess.Popen[str]:
    """The first two nodes are attacked for so long. Meanwhile everybody must contribute; figures say what it cost."""
    nodes = awake or net.nodes
    machine = lab.wiring.namespace("attacker")
    lab.wiring.plug(machine, net.switch)
    targets = [address(node, cable.one.address) for node, cable in zip(net.nodes[:2], net.cables, strict=False)]
    arguments = [argument for target in targets for argument in ("--target", target)]
    command = ("-m", "tests.netlab.attacker", kind, "--run", str(lab.run_file), *arguments)
    counts = lab.folder / "attacker.json"
    attacker = lab.run(machine, *command, "--counts", str(counts))
    until(counts.exists, lambda: "the attack has begun", 60.0)
    before = {node.name: (node.cpu_s_now(), node.fresh_status()["own_updates"]) for node in nodes}
    started = time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - started
    shares = [(node.cpu_s_now() - before[node.name][0]) / lasted for node in nodes]
    own = [node.fresh_status()["own_updates"] - before[node.name][1] for node in nodes]
    if min(own) <= 0:
        raise BrokenInvariantError(f"under attack {nodes[own.index(min(own))].name} has not contributed")
    lab.figures |= {
        "attack s": round(lasted),
        "CPU % of a target": round(100 * max(shares[:2])),
        "updates/s of each": round(min(own) / lasted, 1),
        "peak MiB": round(max(node.rss_mib(peak=True) for node in nodes)),
    }
    lab.figures |= {f"attacker: {what}": number for what, number in json.loads(counts.read_text()).items()}
    if ends:
        attacker.kill()
    return attacker


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        late_joiner_behind_nat,
        everybody_leaves_but_one,
        bootstrap_dies_for_ever,
        halves_for_two_minutes,
        thirty_percent_churn,
        stalled_reader,
        spammer,
        sybil_flood,
        flow_control_cheat,
        poisoned_peer_exchange,
        every_topology,
        bad_links,
    )
}
NEED_NAT = frozenset({"late_joiner_behind_nat"})
