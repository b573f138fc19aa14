"""Gathers the details in the status file that the log lacks: rates, curves, neighbours, news."""

from __future__ import annotations

from typing import Final

import trio

from protocol.events import Event, MessageArrived, PeerLeft
from protocol.limits import SPAN_STEPS
from protocol.node import Node
from protocol.wire import Head, PeerId
from sfnode.network import NeighbourInfo, Network
from sfnode.node.watching.learning_curve import LearningCurve
from sfnode.node.watching.network_news import NetworkNews
from sfnode.status import LossSeries, PeerState, RecentRate, Status, StatusDetail, StepRate, thinned
from sfnode.storage import best_of
from sfnode.worker import Trainer, children_bytes

_EQUAL_S: Final = 30.0  # heads come every few seconds; at work, only some of them meet an equal ledger here
_EVALUATIONS_MAX: Final = 64
_PACE_S: Final = 120.0
_TRAFFIC_S: Final = 10.0


class PeerAgreement:
    """Remembers when each neighbour last reported exactly the ledger that this node held then, and what that proves."""

    def __init__(self) -> None:
        self._equal: dict[PeerId, tuple[float, int]] = {}

    def look(self, event: Event, node: Node) -> None:
        """Take an event before the node handles it."""
        match event:
            case PeerLeft():
                self._equal.pop(event.peer, None)
            case MessageArrived(message=Head(root=root)) if root == node.replica.ledger.root():
                self._equal[event.peer] = (trio.current_time(), own_updates(node))
            case _:
                pass

    def is_equal(self, peer: PeerId) -> bool:
        """Return whether the peer's ledger was equal within the last _EQUAL_S."""
        return peer in self._equal and trio.current_time() - self._equal[peer][0] <= _EQUAL_S

    def own_updates_min(self, peer: PeerId) -> int | None:
        """Return how many of this node's updates the neighbour holds at least; None if its ledger never was equal."""
        return self._equal[peer][1] if peer in self._equal else None


def own_updates(node: Node) -> int:
    """Count the updates of this node's key that its ledger holds and that count."""
    ledger = node.replica.ledger
    spans = range(ledger.highest_step(node.author) // SPAN_STEPS + 1)
    return sum(
        int.from_bytes(ledger.slots.holdings_of(span, node.author).valid, "little").bit_count() for span in spans
    )


class StatusDetails:
    """Computes the details once a second; keeps the data for rates and for the curve of the training loss.

    Args:
        curve: evaluations on the held-out data.
        news: reports to the operator.
    """

    def __init__(self, curve: LearningCurve, news: NetworkNews) -> None:
        self._agreement = PeerAgreement()
        self._curve, self._news = curve, news
        self._losses = LossSeries()
        self._rows_seen = 0
        self._started_s = trio.current_time()
        self._steps = StepRate(_PACE_S)
        self._updates, self._rows = RecentRate(_PACE_S), RecentRate(_PACE_S)
        self._in, self._out = RecentRate(_TRAFFIC_S), RecentRate(_TRAFFIC_S)

    def hear(self, event: Event, node: Node) -> None:
        """Take an event before the node handles it."""
        self._news.tell_of_peer(event)
        self._agreement.look(event, node)

    def look(self, status: Status, node: Node, network: Network, trainer: Trainer | None) -> StatusDetail:
        """Return the details that belong to ``status``; take in the trainer's new evaluations."""
        if trainer is not None:
            self._curve.take(trainer.statistics.evaluations)
        self._take_loss(status)
        now_s, run_step = trio.current_time(), node.turn.frontier()
        reached = status.step if status.own_updates else max(status.step, run_step)
        steps_per_s = self._steps.of(now_s, reached, status)
        updates_per_s = self._updates.take(now_s, status.updates)
        missing = status.catching_up - status.updates
        left, pace = (missing, updates_per_s) if missing > 0 else (status.steps - reached, steps_per_s)
        evaluations, affordable = self._curve.evaluations, node.clock.affordable
        return StatusDetail(
            uptime_s=now_s - self._started_s,
            run_step=run_step,
            lag_steps=max(0, run_step - node.replica.ledger.highest_step(node.author)) if status.own_updates else 0,
            own_updates=own_updates(node),
            steps_per_s=steps_per_s,
            left_s=max(0, left) / pace if pace else None,
            directions=affordable.chosen,
            directions_max=node.manifest.method.directions,
            round_s=None if affordable.took_ms is None else affordable.took_ms / 1_000,
            bytes_in_per_s=self._in.take(now_s, status.bytes_in) or 0.0,
            bytes_out_per_s=self._out.take(now_s, status.bytes_out) or 0.0,
            rows_per_s=self._rows.take(now_s, status.forward_rows) or 0.0,
            processes_bytes=children_bytes(),
            peers=tuple(self._peer(each, node) for each in network.neighbours()),
            evaluations=thinned(evaluations, _EVALUATIONS_MAX),
            best=best_of(evaluations),
            losses=self._losses.points,
            news=self._news.latest,
        )

    def _take_loss(self, status: Status) -> None:
        """Record the loss of each estimate once: more rows since the last look mean a new estimate."""
        if status.loss is not None and status.forward_rows > self._rows_seen:
            self._rows_seen = status.forward_rows
            self._losses.take(status.step, status.loss)

    def _peer(self, info: NeighbourInfo, node: Node) -> PeerState:
        head = node.sync.head_of(info.peer)
        return PeerState(
            peer=info.peer,
            address=info.address,
            is_outbound=info.is_outbound,
            agent=info.agent,
            rtt_ms=info.rtt_ms,
            score=info.score,
            bytes_in=info.bytes_in,
            bytes_out=info.bytes_out,
            updates=head.updates if head else None,
            is_equal=self._agreement.is_equal(info.peer),
            own_updates_min=self._agreement.own_updates_min(info.peer),
        )
