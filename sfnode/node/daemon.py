"""The daemon: joins the pure core with the store, the network and the worker. One task owns the state.

Everything that happens becomes an event in one bounded inbox; that task feeds it to the core and carries out the
effects in their order. Nothing else in the process changes the replica.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import assert_never

import trio

from protocol.crypto import Signer
from protocol.errors import OperatorError, StateMismatchError, UnsettledError
from protocol.events import (
    DropPeer,
    Effect,
    Event,
    FetchBasis,
    FetchSnapshot,
    Halt,
    MessageArrived,
    ReportSnapshot,
    ReserveStep,
    SendMessage,
    StartEstimate,
    StatementSubmitted,
    StoreRecords,
    StoreSnapshot,
    StoreStatements,
    Ticked,
)
from protocol.ledger import Statement
from protocol.node import Node, NodeConfig, SnapshotUse
from protocol.run import SignedManifest
from protocol.state import Replica
from sfnode.network import (
    FileSource,
    Network,
    NetworkConfig,
    Readiness,
    ServedRun,
    decode_discouraged,
    decode_peers,
    encode_bootstraps,
    encode_rows,
    with_bootstraps,
)
from sfnode.node.basis_fetcher import BasisFetcher
from sfnode.node.catch_up import CatchUpMonitor, Gap
from sfnode.node.control import Overseer, WorkLimits
from sfnode.node.inbox import joined, next_events, open_inbox
from sfnode.node.learning_curve import LearningCurve
from sfnode.node.model_finder import ModelFinder
from sfnode.node.model_sharing import DataSharing, ModelSharing
from sfnode.node.network_news import AdmissionNews, NetworkNews
from sfnode.node.snapshot_files import SnapshotFiles, find_file, save_evidence
from sfnode.node.status_details import StatusDetails
from sfnode.node.status_file import StatusWriter
from sfnode.reporter import Reporter, counted
from sfnode.run import SharingOptions
from sfnode.status import ModelProgress, ModelStage, Status, describe_end
from sfnode.storage import (
    LEDGER_FILE,
    STATUS_FILE,
    RenewedBasis,
    Store,
    own_claim,
    read_statements_file,
    remove,
    renewals_in,
    replay,
    replay_statements,
    waiting,
)
from sfnode.worker import Evaluate, Job, Trainer, TrainingConfig

_STATUS_S = 1.0
_PEERS_SAVED_S = 5.0  # a node killed sooner after it met its first peers has forgotten them
_STATEMENTS_S = 1.0
_EVALUATIONS_WAITING_MAX = 7  # where the worker is far behind, or not there yet, the curve has a point less
_REPLAYED_AT_ONCE = 2_000  # a fifth of a second


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonConfig:
    """What one daemon is told. ``training`` None makes a relay, which stores, serves and floods but needs no torch."""

    signed: SignedManifest
    data_dir: Path
    identity_seed: bytes
    network: NetworkConfig
    training: TrainingConfig | None
    neighbours_min: int = 0
    eval_every_steps: int = 0
    is_exiting_when_finished: bool = False
    snapshot: SnapshotUse = SnapshotUse.NEVER
    snapshot_authors_min: int = 3
    sharing: SharingOptions = field(default_factory=SharingOptions)
    shared_data: Path | None = None
    limits: WorkLimits = field(default_factory=WorkLimits)


class Daemon:
    """One node on this machine."""

    def __init__(self, config: DaemonConfig, reporter: Reporter) -> None:
        self.config = config
        self.reporter = reporter
        self.manifest = config.signed.manifest
        self.node: Node
        self.network: Network
        self.trainer: Trainer | None = None
        self._basis_fetcher = BasisFetcher(self.manifest, config.data_dir, reporter)
        self._snapshot_files = SnapshotFiles(config.data_dir, reporter)
        self._store: Store
        self._details: StatusDetails
        self._last_evaluation = -1
        self._network_news = NetworkNews(reporter)
        self._admission_news = AdmissionNews(config.data_dir, reporter)
        self._overseer = Overseer(config.data_dir, config.limits, reporter)
        reference = None if config.training is None else config.training.model
        self._model_finder = ModelFinder(self.manifest, reference, config.sharing, reporter)
        self._data_sharing = DataSharing(self.manifest.task, config.shared_data, config.sharing.share_rate << 20)
        self.given_data_bytes = self._data_sharing.bytes
        self._model_sharing = ModelSharing(self.manifest.model, config.sharing, reporter)
        self._inbox_in, self._inbox_out = open_inbox()
        self._jobs_in, self._jobs_out = trio.open_memory_channel[Job](_EVALUATIONS_WAITING_MAX + 1)  # and one estimate
        # The core asks for one file of a kind at a time, and makes a snapshot each 1,024 steps: these never fill up.
        self._snapshots_in, self._snapshots_out = trio.open_memory_channel[StoreSnapshot | FetchSnapshot](8)
        self._bases_in, self._bases_out = trio.open_memory_channel[FetchBasis](1)

    async def run(self, *, task_status: Readiness = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled, or finished where the config says so. ``started`` gives the listening multiaddrs.

        Raises OperatorError, StorageDamagedError, StateMismatchError, UnsettledError; each text says what to do.
        """
        self._store = Store(self.config.data_dir, self.config.signed)
        try:
            await self._build()
            try:
                await self._run(task_status)
            finally:
                self._save_peers()
        finally:
            self._store.close()

    async def _build(self) -> None:
        config = self.config
        self._details = StatusDetails(LearningCurve(config.data_dir, self.reporter), self._network_news)
        signer = Signer(config.identity_seed)
        self._store.save_author(signer.author)
        known_peers = decode_peers(self._store.known_peers)
        replica = await self._load_replica()
        node_config = NodeConfig(
            is_training=config.training is not None,
            expects_peers=bool(config.network.bootstrap or known_peers),
            neighbours_min=config.neighbours_min,
            reserved_step=self._store.reserved_step,
            first_request=secrets.randbits(32),
            snapshot=config.snapshot,
            snapshot_authors_min=config.snapshot_authors_min,
        )
        self.node = Node(self.manifest, signer, node_config, replica)
        self.network = Network(
            config=with_bootstraps(config.network, self._store.bootstraps),
            identity_seed=config.identity_seed,
            run=ServedRun(
                run_id=self.manifest.run_id,
                manifest_bytes=config.signed.encode(),
                record_bytes=replica.ledger.codec.record_bytes,
                head_step=self.node.frontier,
                find_file=self._find_file,
                find_piece=self._model_sharing.pieces.find,
                pieces_bytes_per_s=config.limits.pieces_bytes_per_s(config.sharing.share_rate << 20),
            ),
            inbox=self._inbox_in,
            known_peers=known_peers,
        )
        self.network.restore_discouraged(decode_discouraged(self._store.discouraged))
        if config.training is not None:
            self.trainer = Trainer(
                config.training, config.signed, signer.author, replica.shown, self.reporter, self._renewals_here
            )

    def _find_file(self, sha256: str) -> FileSource | None:
        return self._data_sharing.find(sha256) or find_file(self.config.data_dir, self.manifest, sha256)

    def _renewals_here(self) -> tuple[RenewedBasis, ...]:
        renewals = self.node.replica.ledger.roster.renewals()
        whole = {epoch: sha256 for epoch, sha256 in renewals.items() if sha256 in self.node.bases.here}
        return renewals_in(self.config.data_dir, self.manifest, whole)

    async def _load_replica(self) -> Replica:
        """Verify and sum what the disk holds, in pieces, so that a signal is heard meanwhile. Records stay there."""
        started = time.monotonic()
        replica, records = Replica(self.manifest, self._store), self._store.records()
        replay_statements(replica, self._store.statements(), self.config.data_dir / LEDGER_FILE)
        while piece := list(islice(records, _REPLAYED_AT_ONCE)):
            replay(replica, piece, self.config.data_dir / LEDGER_FILE)
            replica.coefficients()
            text = f"replaying the disk, {counted(replica.ledger.updates, 'update')}"
            self.reporter.progress("replaying", text, updates=replica.ledger.updates)
            await trio.lowlevel.checkpoint()
        if replica.ledger.updates:
            seconds = time.monotonic() - started
            text = f"replayed {counted(replica.ledger.updates, 'update')} from the disk in {seconds:.1f} s"
            self.reporter.event("replayed", text, updates=replica.ledger.updates, seconds=round(seconds, 3))
        return replica

    async def _run(self, task_status: Readiness) -> None:
        async with trio.open_nursery() as nursery:
            addresses = await nursery.start(self.network.run)
            nursery.start_soon(self._watch, nursery.cancel_scope)
            nursery.start_soon(self._take_statements)
            nursery.start_soon(self._snapshot_files.run, self.network, self._snapshots_out, self._inbox_in)
            nursery.start_soon(self._basis_fetcher.run, self.network, self._bases_out, self._inbox_in)
            if self.trainer is not None and self.config.training is not None:
                train = partial(self._train, self.trainer, self.config.training)
                nursery.start_soon(self._overseer.run, train, self.trainer, self._jobs_out, self._inbox_in)
            task_status.started(addresses)
            await self._handle_all()

    async def _train(self, trainer: Trainer, training: TrainingConfig) -> None:
        """Find the model, then train with it, and give its files to others.

        A worker that is not this node's own finds it itself, once for all the nodes that share it.
        """
        finder, model = self._model_finder, training.model
        if training.worker_socket is None or model is None:
            folder: Path | None = await finder.find(self.network.neighbour_files)
            model = str(folder)
        else:
            folder = finder.find_ready()
        async with trio.open_nursery() as nursery:
            if folder is not None:
                nursery.start_soon(self._model_sharing.share, folder)
            nursery.start_soon(trainer.run, model, self._jobs_out, self._inbox_in)

    def _model_progress(self) -> ModelProgress | None:
        """How far the model is on its way into the worker."""
        since_s = None if self.trainer is None else self.trainer.statistics.loading_since_s
        if since_s is None:
            return self._model_finder.look()
        text = f"loading the model, {trio.current_time() - since_s:.0f} s"
        return ModelProgress(stage=ModelStage.LOADING, text=text)

    async def _handle_all(self) -> None:
        """Feed the core with what happens, and with time; what has come meanwhile is taken together."""
        tick_s = trio.current_time()
        while True:
            events = await next_events(self._inbox_out, tick_s)
            late_s = trio.current_time() - tick_s
            if late_s >= 0:
                events.append(Ticked(late_ms=int(1_000 * late_s)))
            self._handle(events)
            rest_s = self.node.rest_ms() / 1_000
            tick_s = trio.current_time() + rest_s if late_s >= 0 else min(tick_s, trio.current_time() + rest_s)

    def _handle(self, events: Sequence[Event]) -> None:
        effects: list[Effect] = []
        for number, event in enumerate(events, start=1):
            self._details.hear(event, self.node)
            started_s = time.perf_counter()
            caused = self.node.handle(event, _now_ms(), is_last=number == len(events))
            if isinstance(event, MessageArrived):
                taken_s = time.perf_counter() - started_s
                self.network.handled(event.peer, event.message, seconds=taken_s, news=_news(caused))
            effects += caused
        self._carry_out(joined(effects))

    # --- events -------------------------------------------------------------------------------------------

    async def _take_statements(self) -> None:
        """What is left in the folder goes through the node's door; a file is put away once all of it is durable."""
        while True:
            for path in waiting(self.config.data_dir):
                for statement in self._read_statements(path):
                    await self._inbox_in.send(StatementSubmitted(statement=statement.data))
            await trio.sleep(_STATEMENTS_S)

    def _read_statements(self, path: Path) -> list[Statement]:
        """Those of a file that the node does not hold yet; a file without any is put away."""
        try:
            found = read_statements_file(self.manifest, path)
        except OperatorError as error:
            self.reporter.event("statements_refused", str(error), file=str(path))
            remove(path, is_refused=True)
            return []
        fresh = [statement for statement in found if not self.node.replica.ledger.roster.covers(statement)]
        if not fresh:
            text = f"took in {counted(len(found), 'statement')} of {path.name}"
            self.reporter.event("statements_taken", text, file=str(path))
            remove(path)
        return fresh

    # --- effects ------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case StoreRecords():
                    self._store.add(effect.records, is_durable=effect.is_own)
                    self._evaluate_if_due()
                case StoreStatements():
                    self._store.add_statements(effect.statements)
                case ReserveStep():
                    self._store.reserve_step(effect.step)
                case StartEstimate():
                    self._jobs_in.send_nowait(effect)
                case SendMessage():
                    self.network.send(effect.peer, effect.message)
                case DropPeer():
                    text = f"peer {effect.peer} dropped: {effect.reason}"
                    self.reporter.event("peer_dropped", text, peer=effect.peer, reason=effect.reason)
                    self.network.drop(effect.peer, reason=effect.reason)
                case StoreSnapshot() | FetchSnapshot():
                    self._snapshots_in.send_nowait(effect)
                case FetchBasis():
                    self._bases_in.send_nowait(effect)
                case ReportSnapshot():
                    self._snapshot_files.report(effect)
                case Halt():
                    evidence = save_evidence(self.config.data_dir, self.node.replica, effect)
                    raise StateMismatchError(f"{effect.detail}. Evidence: {evidence}")
                case _:
                    assert_never(effect)

    def _evaluate_if_due(self) -> None:
        """One evaluation each time the node's step passes a multiple of eval_every_steps."""
        every, step = self.config.eval_every_steps, self.node.clock.next_step
        is_due = every and step // every > self._last_evaluation
        if is_due and self.node.bases.here.issuperset(self.node.replica.renewals_needed()):
            self._last_evaluation = step // every
            if self._jobs_in.statistics().current_buffer_used < _EVALUATIONS_WAITING_MAX:
                self._jobs_in.send_nowait(Evaluate(step=step))

    # --- status -------------------------------------------------------------------------------------------

    async def _watch(self, scope: trio.CancelScope) -> None:
        """Status file and progress line every second; the end of the run where the config asks for it."""
        claim = own_claim(self.manifest, self.config.data_dir)
        path = self.config.data_dir / STATUS_FILE
        writer = StatusWriter(path, os.getpid(), self.reporter, claim, self.given_data_bytes)
        peers_saved = trio.current_time()
        catch_up = CatchUpMonitor()
        while True:
            model, paused = self._model_progress(), self._overseer.paused
            status, line = writer.write(self.node, self.network, self.trainer, model, paused, self._details)
            self.reporter.progress("progress", line, **asdict(status))
            gap = Gap(time=status.time, held=status.updates, wanted=status.catching_up)
            if (outrun := catch_up.look(gap)) is not None:
                self.reporter.event("outrun", str(outrun), **asdict(outrun))
            self._network_news.look(self.network)
            self._admission_news.look(status, is_live=self.node.sync.is_live)
            if trio.current_time() - peers_saved >= _PEERS_SAVED_S:
                peers_saved = trio.current_time()
                self._save_peers()
            if self.config.is_exiting_when_finished:
                self._leave_if_over(status, scope)
            await trio.sleep(_STATUS_S)

    def _leave_if_over(self, status: Status, scope: trio.CancelScope) -> None:
        """End the node with the run; UnsettledError when others could not be waited for any longer."""
        text = f"state digest {status.state_digest}, {describe_end(status)}"
        if status.is_over:
            fields = {"state_digest": status.state_digest, "equal_peers": status.equal_peers}
            self.reporter.event("finished", f"the run is finished: {text}", **fields)
            scope.cancel()
        elif self.node.end.ending.is_given_up:
            advice = "start the node again without --exit-when-finished, and look at its status"
            raise UnsettledError(f"this node has done its steps, but others may hold another model: {text}; {advice}")

    def _save_peers(self) -> None:
        rows = encode_rows(self.network.known_peers())
        if rows != self._store.known_peers:
            self._store.save_known_peers(rows)
        discouraged = encode_rows(self.network.discouraged_peers())
        if discouraged != self._store.discouraged:
            self._store.save_discouraged(discouraged)
        bootstraps = encode_bootstraps(self.network.reached_bootstraps)
        if bootstraps != self._store.bootstraps:
            self._store.save_bootstraps(bootstraps)


def _news(effects: Sequence[Effect]) -> int:
    """How many records of others are stored now that were not held."""
    return sum(len(effect.records) for effect in effects if isinstance(effect, StoreRecords) and not effect.is_own)


def _now_ms() -> int:
    return int(trio.current_time() * 1_000)
