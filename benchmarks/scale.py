"""How flood and anti-entropy scale: time, bytes and CPU per update against the number of nodes, hop limit and load.

    python -m benchmarks.scale --json --draw docs/scale

Real cores in virtual time, links of 20 to 100 ms, a few sources of updates, nobody trains. The CPU time is this
machine's and real; the model is tiny, so that it is the protocol's alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from statistics import median

import click

from benchmarks.command_line import Benchmark, Numbers
from benchmarks.graphs import GRAPHS, Edges, distances
from benchmarks.measures import report, say
from benchmarks.sample_runs import Shape, manifest_of, sealed_records, signer, tiny_tensors
from benchmarks.scale_figures import Found, Setting, draw_pictures
from benchmarks.virtual_network import CountedNetwork, idle_node
from protocol.crypto import Author
from protocol.run import Manifest
from protocol.wire import PeerId
from sfnode.api.virtual_network import VirtualLink

SIZES = (16, 32, 64, 128, 256, 512, 1_000)
HOP_LIMITS = (1, 2, 4, 8, None)
RATES = (4, 20, 100, 500)
_SETTLE_MS = 4_000  # until all links have exchanged heads; a multiple of their interval, so that idle ones count right
_LOOK_MS = 250
_LIMIT_MS = 900_000


def measure(setting: Setting, seed: int = 0) -> Found:
    """Play one experiment to its end: every node holds every update."""
    edges = GRAPHS[setting.graph](setting.nodes)
    shape = Shape(authors=setting.authors, steps=-(-setting.updates // setting.authors))
    manifest = manifest_of(shape, tiny_tensors())
    records = list(islice(sealed_records(manifest, shape), setting.updates))
    network = _connected(manifest, setting, edges, seed)
    network.run(_SETTLE_MS)
    idle = network.take_counts()
    network.run(_SETTLE_MS)
    idle = network.take_counts()
    started_ms = network.now_ms
    injected_ms = _inject(network, setting, records)
    _drain(network, records, setting.nodes)
    spent = network.take_counts()
    idle_cpu_us_ms = 1e6 * idle.cpu_seconds / _SETTLE_MS
    work_us = 1e6 * spent.cpu_seconds - idle_cpu_us_ms * (network.now_ms - started_ms)
    times = [_hold_times(network, record, injected_ms[record]) for record in records]
    hops = [hop or 0 for source in _sources(setting) for hop in distances(edges, setting.nodes, source)]
    shares = setting.nodes * setting.updates
    return Found(
        **asdict(setting),
        degree=round(2 * len(edges) / setting.nodes, 2),
        way_median=median(hops),
        way_max=max(hops),
        median_ms=round(median(held[len(held) // 2] for held in times)),
        most_ms=round(median(held[len(held) * 99 // 100] for held in times)),
        all_ms=round(median(held[-1] for held in times)),
        worst_ms=max(held[-1] for held in times),
        copies=round(sum(network.copies.values()) / shares, 2),
        flood_bytes=round(spent.bytes["flood"] / shares, 1),
        pull_bytes=round(spent.bytes["pull"] / shares, 1),
        sync_bytes=round(spent.bytes["sync"] / shares, 1),
        frames=round(spent.messages["flood"] / shares, 2),
        head_bytes_s=round(idle.bytes["head"] / setting.nodes / _SETTLE_MS * 1e3, 1),
        cpu_us=round(work_us / shares, 1),
        idle_cpu_us_s=round(idle_cpu_us_ms * 1e3 / setting.nodes),
    )


def _sources(setting: Setting) -> list[int]:
    """Nodes that are given the authors' updates, spread over the graph."""
    return [number * setting.nodes // setting.authors for number in range(setting.authors)]


def _connected(manifest: Manifest, setting: Setting, edges: Edges, seed: int) -> CountedNetwork:
    network = CountedNetwork(seed=seed, link=VirtualLink(), hops_max=setting.hops_max)
    for number in range(setting.nodes):
        network.add(_name(number), idle_node(manifest, _name(number)))
    for one, other in edges:
        network.connect(_name(one), _name(other))
    return network


def _name(number: int) -> PeerId:
    return PeerId(f"node {number}")


def _inject(network: CountedNetwork, setting: Setting, records: list[bytes]) -> dict[bytes, int]:
    """Give each update to its author's node, evenly in time; returns when."""
    home = {signer(author).author: _name(source) for author, source in enumerate(_sources(setting))}
    started_ms, injected_ms = network.now_ms, {}
    for number, record in enumerate(records):
        network.run(started_ms + number * 1_000 // setting.per_second - network.now_ms)
        network.inject(home[Author(record[:32])], record)
        injected_ms[record] = network.now_ms
    return injected_ms


def _drain(network: CountedNetwork, records: list[bytes], nodes: int) -> None:
    started_ms = network.now_ms
    while any(len(network.stored_ms[record]) < nodes for record in records):
        network.run(_LOOK_MS)
        if network.now_ms - started_ms > _LIMIT_MS:
            raise RuntimeError(f"an update did not reach all nodes within {_LIMIT_MS} virtual ms")


def _hold_times(network: CountedNetwork, record: bytes, injected_ms: int) -> list[int]:
    """Milliseconds from the injection until each node held the update, ascending."""
    return sorted(stored_ms - injected_ms for stored_ms in network.stored_ms[record].values())


def settings_of_sizes(sizes: Sequence[int]) -> list[Setting]:
    """All graphs at all sizes, without a hop limit."""
    return [Setting(graph=graph, nodes=nodes) for graph in GRAPHS for nodes in sizes]


def settings_of_hop_limits(nodes: int) -> list[Setting]:
    """Three graphs against the hop limit."""
    graphs = ("ring", "torus", "random 4")
    return [Setting(graph=graph, nodes=nodes, hops_max=hops) for graph in graphs for hops in HOP_LIMITS]


def settings_of_rates(nodes: int) -> list[Setting]:
    """A graph of degree 4 against the load."""
    return [
        Setting(graph="random 4", nodes=nodes, updates=5 * rate, authors=nodes // 2, per_second=rate) for rate in RATES
    ]


def _play(settings: Iterable[Setting]) -> list[Found]:
    rows = []
    for setting in settings:
        rows.append(measure(setting))
        say(_line(rows[-1]))
    return rows


def _line(row: Found) -> str:
    return (
        f"{row.graph:9} n {row.nodes:5} k {row.hops_max or '-'!s:>4} {row.per_second:4}/s: "
        f"{row.median_ms:7,} {row.most_ms:7,} {row.all_ms:7,} ms, {row.copies:5.2f} copies, "
        f"{row.flood_bytes:7.1f} + {row.pull_bytes:6.1f} + {row.sync_bytes:8.1f} B, "
        f"heads {row.head_bytes_s:5.1f} B/s, {row.frames:5.2f} frames, {row.cpu_us:7.1f} us CPU, "
        f"idle {row.idle_cpu_us_s:6,} us/s"
    )


@click.command(cls=Benchmark)
@click.option("--sizes", type=Numbers(), default=SIZES, show_default=True, help="Numbers of nodes.")
@click.option("--nodes", default=64, show_default=True, help="Nodes where hop limit and load vary.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.option("--draw", type=click.Path(path_type=Path, file_okay=False), help="Folder for the pictures (SVG).")
def main(sizes: tuple[int, ...], nodes: int, as_json: bool, draw: Path | None) -> None:
    """Scale of flood and anti-entropy. With all sizes about ten minutes."""
    result = {
        "sizes": _play(settings_of_sizes(sizes)),
        "hop_limits": _play(settings_of_hop_limits(nodes)),
        "rates": _play(settings_of_rates(nodes)),
    }
    if draw:
        draw_pictures(result["sizes"], result["hop_limits"], draw)
    report(result, as_json=as_json, lines=[_line(row) for rows in result.values() for row in rows])


if __name__ == "__main__":
    main()
