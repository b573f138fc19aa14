"""Look at a running node every second: status file, progress line, news for the operator, and the end of the run.

The status file has details that the log lacks: rates, curves, neighbours, news.
"""

import logging
import os
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from protocol.errors import OperatorError, UnsettledError
from protocol.events import Event, MessageArrived, PeerLeft
from protocol.node import Node, statistics
from protocol.wire import Head, PeerId
from sfnode.network import Network, PeerState, policy
from sfnode.node.step_rate import RecentRate, StepRate
from sfnode.node.watching.catch_up_monitor import CatchUpMonitor
from sfnode.node.watching.disk_limit import check_disk
from sfnode.node.watching.learning_curve import LearningCurve
from sfnode.node.watching.network_news import AdmissionNews, KeyCopyNews, NetworkNews, report_full_table
from sfnode.quality_figures import Quality
from sfnode.reporter import Reporter
from sfnode.run import purpose_of, run_address
from sfnode.status import LifeStatistics, Names, Status, StatusDetail, StatusWords, author_names
from sfnode.storage import disk
from sfnode.worker import Trainer, TrainingStatistics, children_bytes

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
        if isinstance(event, PeerLeft):
            self._equal.pop(event.peer, None)
        elif isinstance(event, MessageArrived):
            head = event.message
            if isinstance(head, Head) and head.root == node.replica.ledger.root():
                self._equal[event.peer] = (trio.current_time(), statistics.own_updates(node))

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
        head = node.sync.heads.get(peer.peer)
        equal_s, own_updates = self._equal.get(peer.peer, (None, None))
        return replace(
            peer,
            updates=head.updates if head else None,
            is_equal=equal_s is not None and trio.current_time() - equal_s <= _EQUAL_S,
            own_updates_min=own_updates,
            name=names.of(policy.author_of_peer(peer.peer).hex()),
        )


if TYPE_CHECKING:
    from sfnode.node.running_node import RunningNode

_LOOK_S = 1.0
_PEERS_SAVED_S = 5.0  # a node killed earlier has forgotten the first peers that it met


class NodeWatch:
    """Watches one life of a node. A look that raises is skipped, and the next one comes a second later."""

    def __init__(self, life: "RunningNode") -> None:
        self._life = life

        def label(peer: PeerId) -> str:
            return self._names().label(policy.author_of_peer(peer).hex())

        self._news = NetworkNews(life.reporter, label, life.config.network.agent)
        quality, roster = Quality.of(life.manifest.task), life.node.replica.ledger.roster
        curve = LearningCurve(life.config.data_dir, life.reporter, roster, quality)
        self._details = StatusDetails(curve, self._news, life.manifest.method.local_steps)
        self._file = StatusFile(life.config.data_dir.status_file, life.reporter)
        self._admission_news = AdmissionNews(life.config.data_dir, life.reporter)
        self._copy_news = KeyCopyNews(life.reporter, life.node.author)
        self._catch_up = CatchUpMonitor()
        self._peers_saved_s = 0.0

    def hear(self, event: Event) -> None:
        self._details.hear(event, self._life.node)

    async def run(self, scope: trio.CancelScope) -> None:
        """Look until cancelled. Cancel ``scope`` at the end of the run if the config says so.

        UnsettledError: the wait for other nodes was given up.
        """
        while True:
            with self._life.slips.contained("status"):
                self._look(snapshot(self._life), scope)
            await trio.sleep(_LOOK_S)

    def _look(self, status: Status, scope: trio.CancelScope) -> None:
        life = self._life
        check_disk(life.config.data_dir, life.config.limits.disk_bytes_max)
        whole = replace(status, detail=self._details.look(status, life.node, life.network, life.trainer, self._names()))
        self._file.write(whole)
        life.reporter.progress("progress", StatusWords(whole).progress_line, **status.to_json())
        outrun = self._catch_up.look(trio.current_time(), status.ledger.updates, status.node.catching_up)
        if outrun is not None:
            life.reporter.event("outrun", str(outrun), **asdict(outrun))
        self._news.look(life.network, status.network.memory)
        self._copy_news.look(life.node.replica.ledger)
        report_full_table(status, life.reporter)
        if not life.invitations.is_claiming:
            self._admission_news.look(status, is_live=life.node.sync.is_live)
        if trio.current_time() - self._peers_saved_s >= _PEERS_SAVED_S:
            self._peers_saved_s = trio.current_time()
            life.save_peers()
        if life.config.is_exiting_when_finished:
            self._leave_if_over(status, scope)

    def _names(self) -> Names:
        """Return the names that this node knows; report notes of invitations that cannot be read once."""
        roster, said = self._life.node.replica.ledger.roster, self._life.network.names.names()
        try:
            return author_names.names_known(self._life.config.data_dir, roster, said)
        except OperatorError as error:
            self._life.reporter.event_once(logging.WARNING, "invited_file", str(error))
            return Names(said=said)

    def _leave_if_over(self, status: Status, scope: trio.CancelScope) -> None:
        """End the node with the run. UnsettledError: the wait for other nodes was given up."""
        if self._life.trainer is not None and self._life.trainer.is_busy:
            return  # measuring the model that the run ends with
        digest = status.node.state_digest
        text = f"state digest {digest}, {StatusWords(status).end}"
        if status.end.is_over:
            fields = {"state_digest": digest, "equal_peers": status.end.equal_peers}
            self._life.reporter.event("finished", f"the run is finished: {text}", **fields)
            scope.cancel()
        elif status.end.is_given_up:
            advice = "start the node again without --exit-when-finished, and look at its status"
            raise UnsettledError(f"this node has done its steps, but others may hold another model: {text}; {advice}")


def snapshot(life: "RunningNode") -> Status:
    """Return the status of a node now, without its detail."""
    node, network, manifest = life.node, life.network, life.manifest
    ledger, trainer = node.replica.ledger, life.trainer
    here = run_address.address_for_others(manifest, network.introduction.addresses, life.data_sharing.bytes)
    return Status(
        node=statistics.node_statistics(node),
        end=node.end.ending,
        ledger=ledger.statistics(),
        roster=ledger.roster.statistics(node.author, life.invitations.claim),
        network=network.statistics(),
        training=TrainingStatistics() if trainer is None else trainer.statistics(),
        life=LifeStatistics(
            time=time.time(),
            pid=os.getpid(),
            own_name="" if life.config.network.own_name is None else life.config.network.own_name.name,
            learns=purpose_of(manifest.task),
            paused=life.overseer.paused,
            model=life.model_progress(),
            join=str(here),
            join_string=run_address.join_string(here),
            is_rewarded=(quality := Quality.of(manifest.task)).is_reward,
            names_answers=quality.names_answers,
            disk_free_bytes=disk.free_disk_bytes(life.config.data_dir.path),
            slips=life.slips.state,
        ),
    )


class StatusFile:
    """Keeps the last status of one node in a file, for other processes."""

    def __init__(self, path: Path, reporter: Reporter) -> None:
        self._path, self._reporter = path, reporter
        self._is_written = True

    def write(self, status: Status) -> None:
        """Write the file. A failure does not end the node; it is reported once, and so is the end of the failure."""
        try:
            disk.write_json(self._path, status.to_json())
        except OperatorError as error:
            if self._is_written:
                text = f"{error}. The node goes on; `sfnode status` shows nothing new until the file can be written"
                self._reporter.event_at(logging.WARNING, "status_file", text, is_written=False, reason=str(error))
            self._is_written = False
            return
        if not self._is_written:
            self._reporter.event("status_file", f"{self._path} is written again", is_written=True)
        self._is_written = True
