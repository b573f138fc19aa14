"""What must hold once a fault has ended: the same state everywhere, nothing lost, nobody stuck, nobody greedy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from protocol.ledger.envelope import EnvelopeCodec
from sfnode.storage.data_directory import DataDirectory
from tests.netlab.laboratory import Laboratory, NetNode

AGREE_S = 90.0
PROGRESS_S = 60.0
RSS_MIB_MAX = 150.0  # of a node without torch
IDLE_CPU_MAX = 0.25  # of a core, of a node that has nothing to do
_IDLE_S = 3.0
_POLL_S = 0.1
_ARRIVE_S = 30.0


class BrokenInvariantError(AssertionError):
    """The network did not come back to what it promises."""


@dataclass
class _Disk:
    codec: EnvelopeCodec
    last: int = -1
    held: set[tuple[bytes, int]] = field(default_factory=set)


class Acknowledged:
    """Every update that an honest node had stored whenever somebody looked: none may be missing in the end.

    It looks at the nodes' disks; what a node says of itself is not asked. An update is known by author and step: of an
    author that signs many for one step, nodes keep any two, and count none.
    """

    def __init__(self) -> None:
        self.updates: set[tuple[bytes, int]] = set()
        self._disks: dict[str, _Disk] = {}

    def note(self, node: NetNode) -> int:
        """Read what the node has stored since the last look; how many updates it has in all."""
        held = DataDirectory(node.directory)
        if not held.ledger_file.exists():
            return 0
        if node.name not in self._disks:
            self._disks[node.name] = _Disk(EnvelopeCodec(held.signed_manifest().manifest))
        disk = self._disks[node.name]
        with held.reading() as stored:
            for arrival, record in stored.records(after=disk.last):
                disk.last = arrival
                envelope = disk.codec.decode_untrusted(record)
                disk.held.add((envelope.author, envelope.step))
        self.updates |= disk.held
        return len(disk.held)

    def forget(self, node: NetNode) -> None:
        """Its directory was removed: the next look begins with its first record. What it had stays acknowledged."""
        self._disks.pop(node.name, None)

    def check(self, nodes: Sequence[NetNode]) -> None:
        """Each of the nodes has on its disk all that was ever acknowledged; what is still on its way may arrive."""

        def lacking() -> str:
            for node in nodes:
                self.note(node)
            counts = {node.name: len(self.updates) - len(self._disks[node.name].held) for node in nodes}
            return ", ".join(f"{name} lacks {count} of {len(self.updates)}" for name, count in counts.items() if count)

        until(lambda: not lacking(), lambda: f"every acknowledged update everywhere: {lacking()}", _ARRIVE_S)


def until(condition: Callable[[], object], what: Callable[[], str], within_s: float) -> float:
    """Wait until it holds; the seconds that it took. BrokenInvariantError says what did not come."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > within_s:
            raise BrokenInvariantError(f"not within {within_s:.0f} s: {what()}")
        time.sleep(_POLL_S)
    return time.monotonic() - started


def honest(laboratory: Laboratory) -> list[NetNode]:
    """The nodes that are up and of which something is demanded."""
    return [node for node in laboratory.nodes if node.is_honest and node.is_up]


def wait_for_start(nodes: Sequence[NetNode], within_s: float = 120.0) -> None:
    """Every node has reported itself."""
    until(lambda: all(node.fresh_status() for node in nodes), lambda: f"all of {len(nodes)} nodes started", within_s)


def wait_for_updates(nodes: Sequence[NetNode], count: int, within_s: float = PROGRESS_S) -> float:
    """Every node holds ``count`` updates more than now."""
    before = {node.name: int(node.fresh_status().get("updates", 0)) for node in nodes}

    def missing() -> list[str]:
        return [n.name for n in nodes if n.fresh_status().get("updates", 0) < before[n.name] + count]

    return until(lambda: not missing(), lambda: f"{count} more updates at {', '.join(missing())}", within_s)


def agree(nodes: Sequence[NetNode], within_s: float = AGREE_S) -> float:
    """All nodes report one set and one state, in statuses that are younger than this call; seconds that it took.

    Nothing may be contributed meanwhile: pause the worker before.
    """
    since = time.time() + 0.5  # by then what was on its way to the nodes when the worker paused has arrived

    def differing() -> str:
        return "; ".join(f"{n.name}: {_digest_of(n, since)}, {n.fresh_status().get('updates')}" for n in nodes)

    def is_agreed() -> bool:
        found = {_digest_of(node, since) for node in nodes}
        return len(found) == 1 and "" not in found

    return until(is_agreed, lambda: f"equal digests; there are {differing()}", within_s)


def _digest_of(node: NetNode, since: float) -> str:
    """First hex digits of its set and state; empty while it has not reported since then, or is still summing."""
    status = node.fresh_status()
    if status.get("time", 0.0) < since or not status["ledger_root"]:
        return ""
    return f"{status['ledger_root'][:12]}/{status['state_digest'][:12]}"


def check_resources(nodes: Sequence[NetNode]) -> tuple[float, float]:
    """(largest peak memory in MiB, largest share of a core while nothing happens); BrokenInvariantError beyond them."""
    peaks = {node.name: node.rss_mib(peak=True) for node in nodes}
    before = {node.name: node.cpu_s_now() for node in nodes}
    time.sleep(_IDLE_S)
    shares = {node.name: (node.cpu_s_now() - before[node.name]) / _IDLE_S for node in nodes}
    for what, found, bound in (("MiB", peaks, RSS_MIB_MAX), ("of a core, idle", shares, IDLE_CPU_MAX)):
        worst = max(found, key=lambda name: found[name])
        if found[worst] > bound:
            raise BrokenInvariantError(f"{worst} took {found[worst]:.2f} {what}; at most {bound} are right")
    return max(peaks.values()), max(shares.values())


def check_nobody_stuck(nodes: Sequence[NetNode], within_s: float = PROGRESS_S) -> None:
    """Everybody that trains contributes, everybody else hears of it. The worker must not pause."""
    before = {node.name: node.fresh_status() for node in nodes}

    def stuck() -> list[str]:
        keys = {node.name: "own_updates" if node.is_training else "updates" for node in nodes}
        return [n.name for n in nodes if n.fresh_status()[keys[n.name]] <= before[n.name][keys[n.name]]]

    until(lambda: not stuck(), lambda: f"progress at {', '.join(stuck())}", within_s)


def check_healed(laboratory: Laboratory, acknowledged: Acknowledged, within_s: float = AGREE_S) -> float:
    """The whole invariant, of all honest nodes that are up; seconds until they agreed. Figures go to the laboratory."""
    nodes = honest(laboratory)
    dead = [node.name for node in laboratory.nodes if node.is_honest and not node.is_up and node.logs]
    for name in dead:
        _check_not_crashed(laboratory, name)
    laboratory.pause()
    seconds = agree(nodes, within_s)
    acknowledged.check(nodes)
    peak_mib, idle_share = check_resources(nodes)
    laboratory.resume()
    check_nobody_stuck(nodes)
    laboratory.figures |= {
        "nodes": len(nodes),
        "updates": len(acknowledged.updates),
        "agree s": round(seconds, 1),
        "peak MiB": round(peak_mib),
        "idle CPU %": round(100 * idle_share, 1),
    }
    return seconds


def _check_not_crashed(laboratory: Laboratory, name: str) -> None:
    node = next(node for node in laboratory.nodes if node.name == name)
    assert node.process is not None
    if node.process.returncode not in (0, -9):
        said = node.logs[-1].read_text(errors="replace")[-1_500:]
        raise BrokenInvariantError(f"{name} ended with exit code {node.process.returncode}: {said}")
