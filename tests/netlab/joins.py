"""First joins: fresh nodes, one after the other, that know two addresses of a running network and nothing else."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from statistics import median

import click

from benchmarks.measures import say
from benchmarks.sample_runs import OWNER, Shape, kept_records, seed_of_author
from protocol.run.manifest import sign_manifest
from sfnode.storage.data_directory import DataDirectory
from sfnode.storage.disk import write_durably
from sfnode.storage.key_file import IDENTITY_FILE
from sfnode.storage.record_store import Store
from tests.netlab.invariants import until, wait_for_start
from tests.netlab.laboratory import Laboratory, NetNode, address
from tests.netlab.namespaces import Namespace
from tests.netlab.tables import table

LIMIT_S = 10.0  # from the command to the first own update
_GIVEN_UP_S = 60.0
_NODES = 4
_PACE_MS = 300
_REST_S = 4.0  # a node that left is waited for while it counts as active, but not by the next one that joins
_POLL_S = 0.02
_READY_S = 120.0


@dataclass
class Joins:
    """What happened to the fresh nodes.

    Attributes:
        seconds: of each that contributed, from the command to the first own update in its status, which is up to a
            second old.
        bytes_in: what each had received by then; payload: bytes of the records that it then held.
        failed: numbers of those that did not contribute in time.
    """

    seconds: list[float] = field(default_factory=list)
    bytes_in: list[int] = field(default_factory=list)
    payload: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)


def joins(times: int, updates: int) -> int:
    """Run it, print the table; the exit code: 0 when all contributed within LIMIT_S."""
    with Laboratory(pace_ms=_PACE_MS) as lab:
        nodes, switch, hosts = _network(lab, updates)
        known = [address(node, host) for node, host in zip(nodes[:2], hosts[:2], strict=True)]
        joiner = lab.node(lab.wiring.namespace("joiner"))
        lab.wiring.plug(joiner.machine, switch)
        joiner.arguments = [
            *_without_run(joiner.arguments),
            *(part for each in known for part in ("--bootstrap", each)),
        ]
        found = Joins()
        for number in range(1, times + 1):
            _join(joiner, number, found)
            if number % 10 == 0:
                say(f"{number} joins, {len(found.failed)} failed, median {median(found.seconds or [0]):.1f} s")
        held = nodes[0].fresh_status()["updates"]
    return _report(found, times, held)


def _network(lab: Laboratory, updates: int) -> tuple[list[NetNode], Namespace, list[str]]:
    """Four nodes on a switch that have contributed ``updates`` together, and go on."""
    switch = lab.wiring.switch("net")
    hosts: list[str] = []
    for index in range(_NODES):
        machine = lab.wiring.namespace(f"n{index}")
        known = [address(lab.nodes[0], hosts[0])] if index else []
        node = lab.node(machine, known)
        hosts.append(lab.wiring.plug(machine, switch).one.address)
        node.directory.mkdir()
        write_durably(node.directory / IDENTITY_FILE, seed_of_author(index).hex().encode("ascii") + b"\n", mode=0o600)
    store = Store(DataDirectory(lab.nodes[0].directory), sign_manifest(lab.manifest, OWNER))
    shape = Shape(authors=_NODES, steps=updates // _NODES)
    for records in kept_records(lab.manifest, shape, lab.folder / "records"):
        store.add(records, is_durable=False)
    store.close()
    nodes = list(lab.nodes)
    for node in nodes:
        node.start()
    wait_for_start(nodes)

    def is_under_way() -> bool:
        return all(node.fresh_status().get("updates", 0) > updates for node in nodes)

    until(is_under_way, lambda: f"more than {updates} updates everywhere", _READY_S)
    return nodes, switch, hosts


def _without_run(arguments: list[str]) -> list[str]:
    """It has no file of the run: the manifest comes from the network."""
    place = arguments.index("--run")
    return arguments[:place] + arguments[place + 2 :]


def _join(joiner: NetNode, number: int, found: Joins) -> None:
    """One fresh node: started, watched until its first own update, and removed."""
    shutil.rmtree(joiner.directory, ignore_errors=True)
    started = time.monotonic()
    joiner.start()
    while True:
        status, passed_s = joiner.fresh_status(), time.monotonic() - started
        if status.get("own_updates", 0) > 0:
            found.seconds.append(passed_s)
            found.bytes_in.append(status["bytes_in"])
            found.payload.append(status["payload_bytes"])
            break
        if passed_s > _GIVEN_UP_S or not joiner.is_up:
            found.failed.append(number)
            say(f"join {number} failed: {joiner.logs[-1].read_text(errors='replace')[-500:]}")
            break
        time.sleep(_POLL_S)
    if joiner.is_up:
        joiner.kill()
    time.sleep(_REST_S)


def _report(found: Joins, times: int, held: int) -> int:
    late = sum(seconds > LIMIT_S for seconds in found.seconds)
    rows = [
        ("first joins that contributed", f"{len(found.seconds)} of {times}"),
        ("seconds to the first own update, median", f"{median(found.seconds or [0]):.1f}"),
        ("longest", f"{max(found.seconds, default=0):.1f}"),
        ("bytes received by then, median", f"{median(found.bytes_in or [0]):,.0f}"),
        ("of them records, which are the lower limit", f"{median(found.payload or [0]):,.0f}"),
        ("updates of the run at the end", f"{held:,}"),
    ]
    click.echo(table(("figure", "value"), rows))
    click.echo(f"{len(found.failed)} failed, {late} took longer than {LIMIT_S:.0f} s")
    return 1 if found.failed or late else 0
