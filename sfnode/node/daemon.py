"""The daemon: one life of the node after another, each built from what the disk holds.

After an unforeseen exception in the core nothing in memory can be trusted. So it ends a life but not the daemon: the
next life starts from the disk, as after a restart. Only those in `sfnode.unexpected_errors.ENDINGS` end the daemon.
"""

import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial

import trio

from protocol.state import Replica
from sfnode.network import Address, Readiness
from sfnode.node.daemon_config import DaemonConfig
from sfnode.node.model_sharing import DataSharing
from sfnode.node.running_node import RunningNode
from sfnode.reporter import Reporter, counted
from sfnode.storage import Store
from sfnode.unexpected_errors import Slips


class Daemon:
    """Runs one node on this machine.

    Attributes:
        running: its present life; None while the disk is read.
    """

    def __init__(self, config: DaemonConfig, reporter: Reporter) -> None:
        self.config = config
        self.reporter = reporter
        self.manifest = config.signed.manifest
        self.slips = Slips()
        self.data_sharing = DataSharing(self.manifest.task, config.shared_data, config.sharing.share_rate << 20)
        self.running: RunningNode | None = None

    async def run(self, *, task_status: Readiness = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled, or until finished if the config says so; report the listening multiaddrs as started.

        Raises OperatorError, StorageDamagedError, StateMismatchError, UnsettledError; each text says what to do.
        """
        has_started = False

        def started(addresses: tuple[Address, ...]) -> None:
            nonlocal has_started
            if not has_started:
                has_started = True
                task_status.started(addresses)

        await self.slips.outlive("the core", partial(self._live, started))

    async def _live(self, started: Callable[[tuple[Address, ...]], None]) -> None:
        """Open the disk, and run the node on it until it ends, is cancelled or raises."""
        self.running = None
        with closing(Store(self.config.data_dir, self.config.signed)) as store:
            with suppress(OSError):  # that of an earlier life: this one would seem to hang while it reads the disk
                self.config.data_dir.status_file.unlink()
            replica = await self._load_replica(store)
            self.running = RunningNode(self.config, store, replica, self.data_sharing, self.reporter, self.slips)
            try:
                await self.running.run(started)
            finally:
                with self.slips.contained("saving peers", endings=()):  # must not hide why the life has ended
                    self.running.save_peers()

    async def _load_replica(self, store: Store) -> Replica:
        """Verify and sum what the disk holds, in pieces so that signals are heard. Records stay on the disk."""
        started = time.monotonic()
        replica = Replica(self.manifest, store)
        for _ in store.replaying(replica):
            replica.coefficients()
            text = f"replaying the disk, {counted(replica.ledger.updates, 'update')}"
            self.reporter.progress("replaying", text, updates=replica.ledger.updates)
            await trio.lowlevel.checkpoint()
        if replica.ledger.updates:
            seconds = time.monotonic() - started
            text = f"replayed {counted(replica.ledger.updates, 'update')} from the disk in {seconds:.1f} s"
            self.reporter.event("replayed", text, updates=replica.ledger.updates, seconds=round(seconds, 3))
        if store.has_lost_records:
            step, path = store.reserved_step, self.config.data_dir.ledger_file
            text = f"{path} may have lost updates that this node has signed: it signs only steps after {step} now. "
            self.reporter.event("records_lost", f"{text}Other nodes give it the earlier ones", step=step)
        return replica
