"""How a test network ends: when its nodes agree, how they are stopped, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from sfnode.children.child_program import Stillness
from sfnode.quality_figures import Quality
from sfnode.status import Status
from sfnode.testnet.measured_gain import Learnt
from sfnode.testnet.node_process import LocalNode
from sfnode.testnet.picture import CurvePoint

_STOP_S = 10.0
_POLL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNetworkResult:
    """Holds the outcome.

    Attributes:
        is_in_time: whether the run was over for all nodes before the time was up.
        is_agreed: whether it was, and all nodes and the offline replay have the same state.
        learnt: how good the model was and is now; None without evaluation data.
    """

    is_in_time: bool
    is_agreed: bool
    is_stopped_cleanly: bool
    nodes: list[LocalNode]
    state_digests: list[str]
    replayed_digest: str
    learnt: Learnt | None
    curve: list[CurvePoint]
    seconds: float
    picture: Path
    payload_bytes: int

    @property
    def statuses(self) -> list[Status]:
        """Return the statuses of the nodes that have reported."""
        return [node.status for node in self.nodes if node.status is not None]

    @property
    def updates(self) -> int:
        """Return the number of updates that the first node has applied."""
        first = self.nodes[0].status
        return 0 if first is None else first.ledger.updates

    @property
    def forward_rows(self) -> int:
        """Return the number of rows that all nodes have passed forward for their own estimates."""
        return sum(status.training.forward_rows for status in self.statuses)

    @property
    def wire_bytes(self) -> int:
        """Return the number of bytes that all nodes have sent."""
        return sum(status.network.bytes_out for status in self.statuses)


def is_agreed(nodes: Sequence[LocalNode]) -> bool:
    """Return whether the run is over for all nodes and they report the same ledger and state."""
    statuses = [node.status for node in nodes if node.status is not None and node.status.end.is_over]
    if len(statuses) < len(nodes):
        return False
    return len({(status.node.ledger_root, status.node.state_digest) for status in statuses}) == 1


async def stop_all(nodes: Sequence[LocalNode], limit_s: float) -> bool:
    """Send SIGTERM to all nodes; return whether each ended with exit code 0, and none hung."""
    for node in nodes:
        node.process.terminate()
    pids = {process.pid: node for node in nodes if (process := node.process.process) is not None}
    stillness = {pid: Stillness(pid) for pid in pids}
    with trio.move_on_after(limit_s):
        while alive := [pid for pid, node in pids.items() if node.process.is_alive]:
            for node in nodes:
                node.listen()
            if max(stillness[pid].look() for pid in alive) > _STOP_S:
                break
            await trio.sleep(_POLL_S)
    return all(node.process.exit_code == 0 for node in nodes)


def training_curve(nodes: Sequence[LocalNode], learnt: Learnt | None, quality: Quality) -> list[CurvePoint]:
    """Return the first node's held-out figures and the mean training loss of all nodes, by step."""
    accuracies, rewards = dict(nodes[0].accuracies), dict(nodes[0].rewards)
    if learnt is not None:
        ends = (learnt.before, learnt.after)
        accuracies |= {each.step: each.accuracy for each in ends}
        rewards |= {each.step: each.reward for each in ends if each.reward is not None}
    losses: dict[int, list[float]] = {}
    for node in nodes:
        for step, loss in node.losses.items():
            losses.setdefault(step, []).append(loss)
    means = {step: sum(found) / len(found) for step, found in losses.items()}
    return [
        CurvePoint(
            step=step,
            loss=means.get(step),
            accuracy=accuracies.get(step),
            reward=quality.reward(means.get(step)),
            held_out_reward=rewards.get(step),
        )
        for step in sorted(accuracies.keys() | losses.keys())
    ]
