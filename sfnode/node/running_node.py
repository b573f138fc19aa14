"""One life of a node: connects the pure core with the store, the network and the worker.

Every input becomes an event in one bounded inbox. One task passes the events to the core, and carries out their effects
in order (`Executor`). Nothing else changes what the replica holds; the trainer's task sums what waits in it
(`Replica.shown`), without a pause in which an event could come.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from protocol.crypto import Author, Signer
from protocol.events import Effect, Event, MessageArrived, StatementSubmitted, StoreRecords, Ticked
from protocol.node import Node, NodeConfig
from protocol.state import Replica
from protocol.wire import Statements
from sfnode.children.sleep_inhibitor import stay_awake
from sfnode.model_files import PieceIndex
from sfnode.network import Address, Network, ServedRun, policy, saved_peers
from sfnode.node.control import Overseer
from sfnode.node.daemon_config import DaemonConfig
from sfnode.node.effect_executor import Executor
from sfnode.node.event_inbox import joined, next_events, open_inbox
from sfnode.node.model_finder import ModelFinder
from sfnode.node.model_sharing import DataSharing, share_model
from sfnode.node.own_statements import Invitations, StatementFolder, submit_due
from sfnode.node.snapshot_files import FileFetcher, SnapshotFiles
from sfnode.node.watching import NodeWatch
from sfnode.privacy import RowsOfStep
from sfnode.reporter import Reporter
from sfnode.status import ModelProgress
from sfnode.storage import Store
from sfnode.unexpected_errors import ENDINGS, Slips
from sfnode.worker import NoiseBudget, Trainer
from sfnode.worker_protocol import TrainingConfig


class RunningNode:
    """Runs one life of a node, until the end of the run, a cancellation, or an exception in the core."""

    def __init__(
        self,
        config: DaemonConfig,
        store: Store,
        replica: Replica,
        data_sharing: DataSharing,
        reporter: Reporter,
        slips: Slips,
    ) -> None:
        self.config, self.manifest = config, config.signed.manifest
        self.reporter, self.slips = reporter, slips
        self._store, self.data_sharing = store, data_sharing
        self._inbox_in, self._inbox_out = open_inbox()
        self.overseer = Overseer(config.data_dir.control.paused_until_s, config.limits, reporter, slips)
        reference = None if config.training is None else config.training.model
        self._model_finder = ModelFinder(self.manifest, reference, config.sharing, reporter)
        self._pieces = PieceIndex()
        self._snapshot_files = SnapshotFiles(config.data_dir, reporter)
        signer = Signer(config.identity_seed)
        store.save_author(signer.author)
        self.network = Network(
            config=config.network,
            identity_seed=config.identity_seed,
            run=ServedRun(
                run_id=self.manifest.run_id,
                manifest_bytes=config.signed.encode(),
                record_bytes=replica.ledger.codec.record_bytes,
                head_step=lambda: max(self.node.clock.next_step, self.node.turn.frontier()),  # it needs the network
                find_file=lambda name: data_sharing.find(name) or self._snapshot_files.find(self.manifest, name),
                find_piece=self._pieces.find,
                pieces_bytes_per_s=config.sharing.share_rate << 20,
            ),
            inbox=self._inbox_in,
            known_peers=saved_peers.decode_rows(policy.PeerRow, store.saved("known_peers")),
            slips=slips,
        )
        node_config = NodeConfig(
            is_training=config.training is not None,
            expects_peers=self.network.expects_peers,
            neighbours_min=config.neighbours_min,
            reserved_step=store.reserved_step,
            first_request=secrets.randbits(32),
            snapshot=config.snapshot,
            snapshot_authors_min=config.snapshot_authors_min,
        )
        self.node = Node(self.manifest, signer, node_config, replica)
        self.network.names.has_contributed = lambda author: replica.ledger.highest_step(Author(author)) >= 0
        saved_peers.restore_names(self.network.names, store.saved("names"))
        discouraged = saved_peers.decode_rows(policy.DiscouragedRow, store.saved("discouraged"))
        self.network.sessions.restore_discouraged(discouraged)
        self._executor = Executor(config, store, self.node, self.network, self._snapshot_files, reporter)
        self.trainer: Trainer | None = None
        if config.training is not None:
            budget = self._noise_budget(config.training, signer.author)
            self.trainer = Trainer(config.training, config.signed, replica.shown, reporter, signer.author, budget)
        claim, expects_peers = None, node_config.expects_peers
        with self.slips.contained("invitation"):
            claim = config.data_dir.statements.own_claim(self.manifest)
        self.invitations = Invitations(self.node, claim, config.owner, reporter, expects_peers=expects_peers)
        self._watch = NodeWatch(self)

    def _noise_budget(self, training: TrainingConfig, author: Author) -> NoiseBudget | None:
        """Return the account of this node's noise; None without. OperatorError: it differs from earlier messages'."""
        noise, codec = training.noise, self.node.replica.ledger.codec
        if noise is None:
            self._store.hold_noise(author, None, "")
            return None

        def sent() -> list[RowsOfStep]:
            return [(each.step, each.scalars[0]) for each in map(codec.decode_untrusted, self._store.read_all(author))]

        least = self._store.hold_noise(author, noise.multiplier, self.config.rows_sha256)
        return NoiseBudget(self.manifest, author, replace(noise, multiplier=least), sent)

    async def run(self, started: Callable[[tuple[Address, ...]], None]) -> None:
        """Run until cancelled or finished; call ``started`` with the listening addresses."""
        async with trio.open_nursery() as nursery:
            addresses = await nursery.start(self.network.run)
            nursery.start_soon(self._watch.run, nursery.cancel_scope)
            folder = StatementFolder(self.manifest, self.config.data_dir, self.node, self.reporter)
            for name, due in (("statements", folder.due), ("invitations", self.invitations.due)):
                nursery.start_soon(self.slips.outlive, name, partial(submit_due, due, self._inbox_in))
            files = FileFetcher(self.network.neighbour_files)
            nursery.start_soon(self._snapshot_files.run, files, self.slips, self._executor.snapshots, self._inbox_in)
            if self.trainer is not None and self.config.training is not None:
                train = partial(self._train, self.trainer, self.config.training)
                jobs, inbox = self._executor.jobs, self._inbox_in
                nursery.start_soon(self.overseer.run, train, self.trainer, jobs, inbox, self._is_admitted)
                if self.config.limits.keeps_awake:
                    awake = partial(stay_awake, self._is_at_work, partial(self.reporter.event, "not_awake"))
                    nursery.start_soon(self.slips.outlive, "staying awake", awake)
            started(addresses)
            await self._handle_all()

    def _is_admitted(self) -> bool:
        return self.node.own_steps.is_admitted_for(self.node.clock.next_step)

    def _is_at_work(self) -> bool:
        """Return whether the node trains: else, and after the end of the run, the machine may go to sleep."""
        return self.overseer.is_needed and not (self.overseer.paused or self.node.end.ending.is_over)

    async def _train(self, trainer: Trainer, training: TrainingConfig) -> None:
        """Find the model, then train with it, and give its files to others.

        A worker that several nodes share finds the model itself, once for all of them.
        """
        trainer.rows_sha256 = self.config.rows_sha256
        folder: Path | None = None
        model: Path | str | None = training.model
        if training.worker_socket is None or model is None:
            model = folder = await self._model_finder.find(self.network.neighbour_files)
        else:
            folder = self._model_finder.find_ready()
        async with trio.open_nursery() as nursery:
            if folder is not None:
                given = self.manifest.model, self.config.sharing, folder, self._pieces, self.reporter
                nursery.start_soon(self.slips.outlive, "model sharing", partial(share_model, *given))
            nursery.start_soon(trainer.run, model, self._executor.jobs, self._inbox_in)

    def model_progress(self) -> ModelProgress | None:
        """Return the progress of finding and loading the model; None if neither is going on."""
        since_s = None if self.trainer is None else self.trainer.loading_since_s
        if since_s is None:
            return self._model_finder.look()
        text = f"loading the model, {trio.current_time() - since_s:.0f} s"
        return ModelProgress(stage="loading", text=text)

    async def _handle_all(self) -> None:
        """Pass events and the time to the core. Events that arrived during a turn are taken together."""
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
            is_submitted = isinstance(event, StatementSubmitted)
            if is_submitted or (isinstance(event, MessageArrived) and isinstance(event.message, Statements)):
                # It may admit an author anew, and then the core reads the author's records back from disk: those of
                # this turn must be among them. So the effects so far are carried out first.
                self._executor.carry_out(joined(effects))
                effects = []
            with self.slips.contained("news"):
                self._watch.hear(event)
            # A question costs its sender the disk's time, too; copies and answers, which every peer sends, the CPU's.
            is_question = isinstance(event, MessageArrived) and policy.rate_limits.cost_us(event.message) > 0
            clock = time.perf_counter if is_question else time.thread_time
            started_s = clock()
            caused = self._handle_one(event, is_last=number == len(events))
            if isinstance(event, MessageArrived):
                taken_s = clock() - started_s
                others = [each for each in caused if isinstance(each, StoreRecords) and not each.is_own]
                news = sum(len(each.records) for each in others)  # stored now, and not held before
                self.network.conversation.handled(event.peer, event.message, seconds=taken_s, news=news)
            effects += caused
        self._executor.carry_out(joined(effects))

    def _handle_one(self, event: Event, *, is_last: bool) -> list[Effect]:
        """Pass an event to the core. If a neighbour's message triggers a bug, the node's next life avoids that peer.

        A disk that fails, or memory that is used up, is not the peer's fault.
        """
        try:
            return self.node.handle(event, int(trio.current_time() * 1_000), is_last=is_last)
        except Exception as error:
            if isinstance(event, MessageArrived) and not isinstance(error, (*ENDINGS, MemoryError)):
                self.network.sessions.drop(event.peer, "its message met a fault of this node's")
            raise

    def save_peers(self) -> None:
        """Store what the network knows about peers, for the next start."""
        self._store.save("known_peers", saved_peers.encode_rows(self.network.known_peers()))
        self._store.save("names", saved_peers.encode_names(self.network.names.texts()))
        self._store.save("discouraged", saved_peers.encode_rows(self.network.sessions.discouraged_rows()))
