"""What a running node tells about itself: one snapshot, as a file for other commands and as a line for people."""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from protocol.errors import OperatorError
from protocol.node import Node
from protocol.run import AdmissionKind, Manifest
from protocol.schema import Malformed, from_plain_untrusted
from sfnode.network import MemoryState, Network
from sfnode.node.model_progress import ModelProgress
from sfnode.reporter import Reporter, format_rate
from sfnode.run import NODE_FILE, address_for_others
from sfnode.storage import STATUS_FILE, is_locked, read_bytes, read_manifest, write_json
from sfnode.worker import Trainer

ADMITTED = "admitted"
_FRESH_S = 15.0  # a status older than this means that the daemon hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One node at one moment.

    Attributes:
        run, run_id, author, pid: who.
        step, steps: next step of this node, and the run's length.
        is_finished: no step is left for this node.
        is_over: nor for any node that it can hear of, and all its neighbours hold the same: it may leave.
        equal_peers, differing_peers, awaited_authors: of a finished node: what `is_over` waits for.
        updates, void_slots, authors: content of the ledger.
        own_updates, skipped_steps: contributed by this process.
        catching_up: updates that the neighbours say they hold; 0 once this node is live.
        peers: neighbours now.
        expects_peers: whether it knows of nodes to dial: bootstraps, or peers that it met.
        is_training: whether it is to contribute; a relay is not.
        paused: why it does not contribute at present, in words; empty while it does.
        loss: mean loss of the last estimate's forward rows.
        ledger_root, state_digest: hex; empty while updates wait to be summed.
        bytes_in, bytes_out: frames of the wire protocol since the start.
        payload_bytes: of the records held: what the updates weigh without frames and copies.
        model: how far the model is on its way into the worker; None once it is there, and for a relay.
        join: what others give to `sfnode join`; empty where they cannot dial this node.
        admission: who may contribute to the run, in words.
        is_admitted: whether this node's key may contribute; exclusions are another matter.
        is_invitation_used: whether another node has used this node's invitation, too, so that it admits neither.
        excluded_from: first step from which on the owner has excluded this node's key; None when it has not.
        authors_excluded: by the owner.
        memory: of the node's own process, without its worker.
        time: seconds since 1970.
    """

    run: str
    run_id: str
    author: str
    pid: int
    step: int
    steps: int
    is_finished: bool
    is_over: bool
    equal_peers: int
    differing_peers: int
    awaited_authors: int
    updates: int
    void_slots: int
    authors: int
    own_updates: int
    skipped_steps: int
    catching_up: int
    peers: int
    expects_peers: bool
    is_training: bool
    paused: str
    loss: float | None
    accuracy: float | None
    forward_rows: int
    worker_restarts: int
    ledger_root: str
    state_digest: str
    bytes_in: int
    bytes_out: int
    payload_bytes: int
    rejected: int
    ignored: int
    model: ModelProgress | None
    join: str
    admission: str
    is_admitted: bool
    is_invitation_used: bool
    excluded_from: int | None
    authors_excluded: int
    memory: MemoryState
    time: float


class StatusWriter:
    """Takes snapshots of one node, writes them to a file, and renders the progress line."""

    def __init__(self, path: Path, pid: int, reporter: Reporter) -> None:
        self._path = path
        self._pid = pid
        self._reporter = reporter
        self._is_written = True
        self._previous: Status | None = None

    def write(
        self, node: Node, network: Network, trainer: Trainer | None, model: ModelProgress | None, paused: str
    ) -> tuple[Status, str]:
        """Take a snapshot and write the file where that can be done; returns the snapshot and its line for people."""
        status = self._snapshot(node, network, trainer, model, paused)
        line = _line(status, self._previous)
        self._previous = status
        self._write_file(status)
        return status, line

    def _write_file(self, status: Status) -> None:
        """A file that cannot be written is said once, and once more when it can be: a node does not end for it."""
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

    def _snapshot(
        self, node: Node, network: Network, trainer: Trainer | None, model: ModelProgress | None, paused: str
    ) -> Status:
        ledger, totals, ending = node.replica.ledger, network.statistics, node.end.ending
        training = trainer.statistics if trainer else None
        return Status(
            run=node.manifest.name,
            run_id=node.manifest.run_id.hex(),
            author=node.author.hex(),
            pid=self._pid,
            step=node.clock.next_step,
            steps=node.manifest.steps,
            is_finished=node.is_finished,
            is_over=ending.is_over,
            equal_peers=ending.equal,
            differing_peers=ending.differing,
            awaited_authors=len(ending.awaited),
            updates=ledger.updates,
            void_slots=ledger.void_slots,
            authors=len(ledger.authors()),
            own_updates=node.own_updates,
            skipped_steps=node.skipped_steps,
            catching_up=0 if node.sync.is_live else node.sync.target_updates,
            peers=node.sync.peers,
            expects_peers=bool(network.known_peers()),
            is_training=trainer is not None,
            paused=paused,
            loss=training.loss if training else None,
            accuracy=training.accuracy if training else None,
            forward_rows=training.forward_rows if training else 0,
            worker_restarts=training.restarts if training else 0,
            ledger_root=ledger.root().hex() if node.is_summed else "",
            state_digest=node.replica.state_digest().hex() if node.is_summed else "",
            bytes_in=totals.bytes_in,
            bytes_out=totals.bytes_out,
            payload_bytes=ledger.updates * ledger.codec.record_bytes,
            rejected=node.rejected.total(),
            ignored=node.ignored.total(),
            model=model,
            join=str(address_for_others(node.manifest.run_id, network.addresses)),
            admission=describe_admission(node.manifest),
            is_admitted=ledger.roster.is_admitted(node.author),
            is_invitation_used=ledger.roster.has_void_claim(node.author),
            excluded_from=ledger.roster.excluded_from(node.author),
            authors_excluded=len(ledger.roster.excluded()),
            memory=totals.memory,
            time=time.time(),
        )


def read_status(directory: Path) -> Status:
    """The last snapshot of the node that uses ``directory``; OperatorError when none runs or it hangs."""
    read_manifest(directory)
    if not is_locked(directory):
        remembered = (directory / NODE_FILE).exists()
        command = f"start --data-dir {directory}" if remembered else f"join --data-dir {directory} ..."
        raise OperatorError(f"no node runs on {directory}. Start it with: sfnode {command}")
    try:
        data = json.loads(read_bytes(directory / STATUS_FILE, "the status file"))
        status = from_plain_untrusted(Status, data, "status")
    except (ValueError, RecursionError, Malformed):
        text = (
            f"{directory / STATUS_FILE} cannot be read: the node is of another release, or has just started. Try again"
        )
        raise OperatorError(text) from None
    age_s = time.time() - status.time
    if age_s > _FRESH_S:
        raise OperatorError(f"the node on {directory} (pid {status.pid}) has not reported for {age_s:.0f} s: it hangs")
    return status


def describe_admission(manifest: Manifest) -> str:
    """Who may contribute, in words."""
    spec = manifest.admission
    return f"open, {spec.pow_bits} bits of work" if spec.pow_bits else spec.kind.value


def own_admission(status: Status) -> str:
    """Whether this node may contribute, and what to do where it may not."""
    if status.excluded_from is not None:
        return f"excluded by the owner from step {status.excluded_from} on"
    if status.is_admitted:
        return ADMITTED
    if status.admission.startswith(AdmissionKind.OPEN):
        return "following only: this node's key does not have the work that the run asks for"
    if status.is_invitation_used:
        return (
            "not admitted: the invitation is used, another node has claimed it, too. Ask the owner for a new one, and "
            f"start again with --invite; or for `sfnode run admit {status.author}`"
        )
    return f"not admitted: ask the owner to run `sfnode run admit {status.author}`"


def describe_end(status: Status) -> str:
    """What a finished node shares with its neighbours, or what is missing until it may leave."""
    if status.is_over:
        return f"equal with {_counted(status.equal_peers, 'peer')}" if status.equal_peers else "alone"
    missing = [
        _counted(status.differing_peers, "peer") + " to become equal with" if status.differing_peers else "",
        _counted(status.awaited_authors, "author") + " at work" if status.awaited_authors else "",
    ]
    found = [text for text in missing if text]
    others = "others at work further away" if status.peers else "a neighbour to compare with"
    return f"waiting for {' and '.join(found) or others}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def describe_memory(memory: MemoryState) -> str:
    """What the node takes, and what follows from it."""
    if memory.resident_bytes is None:
        return "unknown: this system does not say"
    text = f"{memory.resident_bytes >> 20} MiB of {memory.bytes_max >> 20} (--memory-max)"
    if memory.is_full:
        text += f": no newcomer is let in, and {memory.let_go} inbound neighbours were let go"
    return text


def _line(status: Status, previous: Status | None) -> str:
    """The progress line: "step 120/500, loss 0.52, 7 peers, 3.1 kB/s"."""
    parts = [_stage(status)]
    if status.paused and not status.is_finished:
        parts.append(f"paused: {status.paused}")
    if status.model is not None:
        parts.append(status.model.text)
    if status.loss is not None:
        parts.append(f"loss {status.loss:.3f}")
    parts.append(f"{status.updates} updates")
    parts.append(_counted(status.peers, "peer"))
    if previous is not None and status.time > previous.time:
        moved = status.bytes_in + status.bytes_out - previous.bytes_in - previous.bytes_out
        parts.append(format_rate(moved / (status.time - previous.time)))
    return ", ".join(parts)


def _stage(status: Status) -> str:
    if status.catching_up > status.updates:
        return f"catching up {100 * status.updates // status.catching_up} %"
    if status.is_finished:
        return f"finished {status.steps} steps, {describe_end(status)}"
    return f"step {status.step}/{status.steps}"
