"""Gather the details in the status file that the log lacks: rates, curves, neighbours, news."""

from dataclasses import replace

import trio

from protocol.events import Event, MessageArrived, PeerLeft
from protocol.node import Node, statistics
from protocol.wire import Head, PeerId
from sfnode.network import Network, PeerState, policy
from sfnode.node.watching.learning_curve import LearningCurve
from sfnode.node.watching.network_news import NetworkNews
from sfnode.node.watching.recent_rate import RecentRate, StepRate
from sfnode.status import Names, Status, StatusDetail
from sfnode.worker import Trainer, children_bytes

_EQUAL_S = 30.0  # heads come every few seconds; at work, only some of them meet an equal ledger here
_PACE_S = 120.0
_TRAFFIC_S = 10.0


class StatusDetails:
    """Computes the details once a second; keeps the data for rates and for the curve of the training loss.

    Args:
        curve: losses on the held-out data and of the batches.
        news: reports to the operator.
        round_steps: steps of one message of the run.
    """

    def __init__(self, curve: LearningCurve, news: NetworkNews, round_steps: int) -> None:
        self._equal: dict[PeerId, tuple[float, int]] = {}  # by neighbour: when its ledger was this one, own updates
        self._curve, self._news = curve, news
        self._rows_seen = 0
        self._started_s = trio.current_time()
        self._steps = StepRate(_PACE_S, round_steps)
        self._updates, self._rows = RecentRate(_PACE_S), RecentRate(_PACE_S)
        self._in, self._out = RecentRate(_TRAFFIC_S), RecentRate(_TRAFFIC_S)

    def hear(self, event: Event, node: Node) -> None:
        self._news.tell_of_peer(event)
        match event:
            case PeerLeft():
                self._equal.pop(event.peer, None)
            case MessageArrived(message=Head(root=root)) if root == node.replica.ledger.root():
                self._equal[event.peer] = (trio.current_time(), statistics.own_updates(node))
            case _:
                pass

    def look(self, status: Status, node: Node, network: Network, trainer: Trainer | None, names: Names) -> StatusDetail:
        """Return the details that belong to ``status``; take in the trainer's new evaluations."""
        if trainer is not None:
            self._curve.take(trainer.evaluations)
        training, network_now, ledger = status.training, status.network, status.ledger
        if training.loss is not None and training.forward_rows > self._rows_seen:  # once for each estimate
            self._rows_seen = training.forward_rows
            self._curve.losses.take(status.node.step, training.loss)
        now_s, progress = trio.current_time(), statistics.run_progress(node)
        reached = max(status.node.step, progress.run_step)  # a slow node's own steps lie far apart
        steps_per_s = self._steps.of(now_s, reached, status, is_live=node.sync.is_live)
        updates_per_s = self._updates.take(now_s, ledger.updates)
        left, pace = status.node.steps - reached, steps_per_s
        if status.is_catching_up:
            left, pace = status.node.catching_up - ledger.updates, updates_per_s
        return StatusDetail(
            progress=progress,
            curve=self._curve.statistics(),
            uptime_s=now_s - self._started_s,
            steps_per_s=steps_per_s,
            left_s=max(0, left) / pace if pace else None,
            bytes_in_per_s=self._in.take(now_s, network_now.bytes_in) or 0.0,
            bytes_out_per_s=self._out.take(now_s, network_now.bytes_out) or 0.0,
            rows_per_s=self._rows.take(now_s, training.forward_rows) or 0.0,
            processes_bytes=children_bytes(),
            peers=tuple(self._compared(each, node, names) for each in network.neighbours()),
            news=self._news.latest,
        )

    def _compared(self, peer: PeerState, node: Node, names: Names) -> PeerState:
        """Return the state of a neighbour with what the core knows of its ledger."""
        head = node.sync.head_of(peer.peer)
        equal_s, own_updates = self._equal.get(peer.peer, (None, None))
        return replace(
            peer,
            updates=head.updates if head else None,
            is_equal=equal_s is not None and trio.current_time() - equal_s <= _EQUAL_S,
            own_updates_min=own_updates,
            name=names.of(policy.author_of_peer(peer.peer).hex()),
        )
