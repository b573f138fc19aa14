"""Writes the status file: takes a snapshot of the running node, and stores it if it can."""

from __future__ import annotations

import dataclasses
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.crypto import Author
from protocol.errors import OperatorError
from protocol.ledger import Roster, Statement
from protocol.node import Node
from sfnode.network import Network
from sfnode.reporter import Reporter
from sfnode.run import address_for_others, string_for_others
from sfnode.status import Status, describe_admission, progress_line
from sfnode.storage import free_disk_bytes, write_json
from sfnode.worker import TrainingStatistics

if TYPE_CHECKING:
    from sfnode.node.running_node import RunningNode


class StatusWriter:
    """Takes snapshots of one node, writes them to a file, and renders the progress line."""

    def __init__(
        self, path: Path, pid: int, reporter: Reporter, claim: Statement | None = None, data_bytes: int = 0
    ) -> None:
        """Take the claim of this node's invitation, if any, and the bytes of public data that it gives."""
        self._path = path
        self._claim = claim
        self._data_bytes = data_bytes
        self._pid = pid
        self._reporter = reporter
        self._is_written = True

    def write(self, life: RunningNode) -> tuple[Status, str]:
        """Write a snapshot to the file if possible; return the snapshot, without its detail, and the progress line."""
        status = self._snapshot(life)
        whole = dataclasses.replace(status, detail=life.details.look(status, life.node, life.network, life.trainer))
        self._write_file(whole)
        return status, progress_line(whole)

    def _write_file(self, status: Status) -> None:
        """Write the file. A failure does not end the node; it is reported once, and so is the end of the failure."""
        try:
            write_json(self._path, dataclasses.asdict(status))
        except OperatorError as error:
            if self._is_written:
                text = f"{error}. The node goes on; `sfnode status` shows nothing new until the file can be written"
                self._reporter.event_at(logging.WARNING, "status_file", text, is_written=False, reason=str(error))
            self._is_written = False
            return
        if not self._is_written:
            self._reporter.event("status_file", f"{self._path} is written again", is_written=True)
        self._is_written = True

    def _snapshot(self, life: RunningNode) -> Status:
        node, network, trainer = life.node, life.network, life.trainer
        ledger, totals, ending = node.replica.ledger, network.statistics, node.end.ending
        training = trainer.statistics if trainer else None
        return Status(
            run=node.manifest.name,
            run_id=node.manifest.run_id.hex(),
            author=node.author.hex(),
            pid=self._pid,
            step=node.clock.next_step,
            steps=node.manifest.steps,
            is_finished=node.own_steps.is_finished,
            is_over=ending.is_over,
            equal_peers=ending.equal,
            differing_peers=ending.differing,
            awaited_authors=len(ending.awaited),
            updates=ledger.updates,
            void_slots=ledger.void_slots,
            authors=len(ledger.authors()),
            own_updates=node.own_steps.updates,
            skipped_steps=node.own_steps.skipped,
            catching_up=0 if node.sync.is_live else node.sync.target_updates,
            peers=node.sync.peers,
            expects_peers=bool(network.known_peers()),
            is_training=trainer is not None,
            paused=life.overseer.paused,
            trouble=_trouble(node, training),
            unreached=_unreached(network),
            loss=training.loss if training else None,
            accuracy=training.accuracy if training else None,
            forward_rows=training.forward_rows if training else 0,
            worker_restarts=training.restarts if training else 0,
            ledger_root=ledger.root().hex() if node.replica.is_summed else "",
            state_digest=node.replica.state_digest().hex() if node.replica.is_summed else "",
            bytes_in=totals.bytes_in,
            bytes_out=totals.bytes_out,
            payload_bytes=ledger.updates * ledger.codec.record_bytes,
            rejected=node.rejected.total(),
            ignored=node.intake.ignored.total(),
            model=life.model_progress(),
            join=str(address_for_others(node.manifest.run_id, network.introduction.addresses)),
            admission=describe_admission(node.manifest),
            is_admitted=ledger.roster.is_admitted(node.author),
            is_invitation_used=self._is_invitation_used(ledger.roster, node.author),
            excluded_from=ledger.roster.excluded_from(node.author),
            authors_excluded=len(ledger.roster.excluded()),
            memory=totals.memory,
            disk_free_bytes=free_disk_bytes(self._path.parent),
            slips=life.slips.state,
            time=time.time(),
            join_string=string_for_others(node.manifest, network.introduction.addresses, self._data_bytes),
        )

    def _is_invitation_used(self, roster: Roster, author: Author) -> bool:
        """Return whether others used the invitation: two, so that this node's claim was dropped, or one besides it."""
        is_void = self._claim is not None and len(roster.held(self._claim.key)) > 1
        return is_void or roster.has_void_claim(author)


def _trouble(node: Node, training: TrainingStatistics | None) -> str:
    """Return what keeps a contributing node from measuring; empty if nothing does."""
    if training is None:
        return ""
    missing = node.bases.first_missing(node.replica.last_epoch())
    if missing is not None and not training.trouble:
        return f"no neighbour has given it the owner's new basis yet ({missing[:16]})"
    return training.trouble


def _unreached(network: Network) -> str:
    """Return the address that failed most often, and why; empty if there is none."""
    worst = max(network.dialler.reports, key=lambda report: report.failures, default=None)
    return "" if worst is None else f"{worst.address}: {worst.reason}"
