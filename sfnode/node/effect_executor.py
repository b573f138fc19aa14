"""Carries out what the core asks for: on the disk, in the network, at the worker and at the fetchers of files."""

from collections.abc import Sequence
from typing import assert_never

import trio

from protocol import events
from protocol.errors import OperatorError, StateMismatchError
from protocol.node import Node
from sfnode.network import Network
from sfnode.node.daemon_config import DaemonConfig
from sfnode.node.snapshot_files import SnapshotFiles
from sfnode.reporter import Reporter
from sfnode.storage import Store
from sfnode.worker import Evaluate, Job

_EVALUATIONS_WAITING_MAX = 7  # if the worker is far behind, or not there yet, points of the curve are left out


class Executor:
    """Carries out the effects of one life's core, in their order. What takes long goes into a channel.

    Attributes:
        jobs: what the trainer has to do.
        snapshots: what `SnapshotFiles` has to store or fetch.
    """

    def __init__(
        self,
        config: DaemonConfig,
        store: Store,
        node: Node,
        network: Network,
        snapshot_files: SnapshotFiles,
        reporter: Reporter,
    ) -> None:
        self._config = config
        self._store = store
        self._node = node
        self._network = network
        self._snapshot_files = snapshot_files
        self._reporter = reporter
        self._last_evaluation = -1
        self._jobs, self.jobs = trio.open_memory_channel[Job](_EVALUATIONS_WAITING_MAX + 1)  # and one estimate
        self._snapshots, self.snapshots = trio.open_memory_channel[events.StoreSnapshot | events.FetchSnapshot](8)

    def carry_out(self, effects: Sequence[events.Effect]) -> None:
        """Carry out all of them. StateMismatchError: the core halts; StorageDamagedError, OperatorError: the disk."""
        for effect in effects:
            match effect:
                case events.StoreRecords():
                    self._store.add(effect.records, is_durable=effect.is_own)
                    self._evaluate_if_due(self._node.clock.next_step)
                case events.StoreStatements():
                    self._store.add_statements(effect.statements)
                case events.ReserveStep():
                    self._store.reserve_step(effect.step)
                case events.StartEstimate():
                    if effect.step == 0:
                        self._evaluate_if_due(0)  # the model alone, which all that follows is compared with
                    self._jobs.send_nowait(effect)
                case events.SendMessage():
                    self._network.sessions.send(effect.peer, effect.message)
                case events.DropPeer():
                    text = f"peer {effect.peer} dropped: {effect.reason}"
                    self._reporter.event("peer_dropped", text, peer=effect.peer, reason=effect.reason)
                    self._network.sessions.drop(effect.peer, effect.reason)
                case events.StoreSnapshot() | events.FetchSnapshot():
                    # The last place is for the one fetch. While a slow one lasts, others store what finds no room.
                    places = self._snapshots.statistics()
                    free = places.max_buffer_size - places.current_buffer_used
                    if free > 1 or isinstance(effect, events.FetchSnapshot):
                        self._snapshots.send_nowait(effect)
                case events.ReportSnapshot():
                    self._snapshot_files.report(effect)
                case events.Halt():
                    try:
                        evidence = str(self._snapshot_files.save_evidence(self._node.replica, effect))
                    except OperatorError as error:
                        evidence = f"none ({error})"
                    raise StateMismatchError(f"{effect.detail}. Evidence: {evidence}")
                case _:
                    assert_never(effect)

    def _evaluate_if_due(self, step: int) -> None:
        """Request an evaluation each time that the node's step passes a multiple of eval_every_steps, and at the end.

        Not while the node is not admitted, because it has no worker then: the first one is due once it is.
        """
        every, steps = self._config.eval_every_steps, self._config.signed.manifest.steps
        turn = (step if step < steps else steps + every - 1) // max(every, 1)
        if every and turn > self._last_evaluation and self._node.own_steps.is_admitted_for(step):
            self._last_evaluation = turn
            if self._jobs.statistics().current_buffer_used < _EVALUATIONS_WAITING_MAX:
                self._jobs.send_nowait(Evaluate(step=step))
