"""The status of a running node: a snapshot that the node writes to a file and commands read."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Final

from protocol.errors import OperatorError
from protocol.schema import Malformed, from_plain_untrusted
from sfnode.network import MemoryState
from sfnode.slips import NO_SLIPS, SlipState
from sfnode.status.model_progress import ModelProgress
from sfnode.status.status_detail import StatusDetail
from sfnode.storage import DataDirectory, read_bytes

_FRESH_S: Final = 15.0  # a status older than this means that the daemon hangs


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Holds the state of one node at one moment.

    Attributes:
        run, run_id, author, pid: name and id of the run, key and process of the node.
        step, steps: next step of this node, and the run's length.
        is_finished: no step is left for this node.
        is_over: no step is left for any node that it hears of, and all neighbours hold the same: it may leave.
        equal_peers, differing_peers, awaited_authors: for a finished node, what `is_over` depends on.
        updates, void_slots, authors: content of the ledger.
        own_updates, skipped_steps: by this process.
        catching_up: updates that the neighbours say they hold; 0 once this node is live.
        peers: neighbours now.
        expects_peers: whether it knows nodes to dial: bootstraps, or peers that it met.
        is_training: whether it should contribute; False for a relay.
        paused: why it does not contribute at present, in words; empty while it does.
        trouble: a fault that keeps it from measuring; empty: none.
        unreached: an address that it cannot reach, and why; empty: none.
        loss: mean loss of the last estimate's forward rows.
        ledger_root, state_digest: hex; empty while updates wait to be summed.
        bytes_in, bytes_out: frames of the wire protocol since the start.
        payload_bytes: size of the records held, without frames and copies.
        model: progress of the model into the worker; None once it is there, and for a relay.
        join: the argument with which others `sfnode join`; empty where they cannot dial this node.
        join_string: a string to join, complete but for an invitation.
        admission: who may contribute to the run, in words.
        is_admitted: whether this node's key may contribute, exclusions aside.
        is_invitation_used: whether others used this node's invitation, too, so that it admits nobody.
        excluded_from: first step for which the owner excludes this node's key; None: not excluded.
        authors_excluded: number of authors that the owner has excluded.
        memory: of the node's own process, without its worker.
        disk_free_bytes: on the disk of its data directory; None where the system does not say.
        slips: unforeseen exceptions since the start that the node survived.
        time: seconds since 1970.
        detail: fields that only the file has; None in a line of the log.
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
    trouble: str
    unreached: str
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
    join_string: str
    admission: str
    is_admitted: bool
    is_invitation_used: bool
    excluded_from: int | None
    authors_excluded: int
    memory: MemoryState
    disk_free_bytes: int | None
    time: float
    detail: StatusDetail | None = None
    slips: SlipState = NO_SLIPS

    @property
    def may_contribute(self) -> bool:
        """Return whether the node trains and the run accepts its updates."""
        return self.is_training and self.is_admitted and self.excluded_from is None


def read_status(data_dir: DataDirectory) -> Status:
    """Return the last snapshot of a node. OperatorError: none runs, it hangs, or the file is bad."""
    ended = data_dir.end.describe()
    if not ended:
        data_dir.signed_manifest()
    if not data_dir.is_locked():
        remembered = data_dir.node_file.exists()
        command = f"start --data-dir {data_dir}" if remembered else f"join --data-dir {data_dir} ..."
        why = f": {ended.removesuffix('.')}" if ended else ""
        raise OperatorError(f"no node runs on {data_dir}{why}. Start it with: sfnode {command}")
    try:
        data = json.loads(read_bytes(data_dir.status_file, "the status file"))
        status = from_plain_untrusted(Status, data, "status")
    except (ValueError, RecursionError, Malformed):
        text = f"{data_dir.status_file} cannot be read: the node is of another release, or has just started. Try again"
        raise OperatorError(text) from None
    age_s = time.time() - status.time
    if age_s > _FRESH_S:
        raise OperatorError(f"the node on {data_dir} (pid {status.pid}) has not reported for {age_s:.0f} s: it hangs")
    if age_s < -_FRESH_S:  # after the clock was set back, a node that hangs must not look alive for hours
        text = f"the node on {data_dir} (pid {status.pid}) has not reported since this machine's clock was set back"
        raise OperatorError(f"{text} by {-age_s:.0f} s. Try again; if it stays so, the node hangs")
    return status


def last_status(data_dir: DataDirectory) -> Status | None:
    """Return the last status that a node wrote, even if it has stopped; None where it cannot be read."""
    try:
        data = json.loads(read_bytes(data_dir.status_file, "the status file"))
        return from_plain_untrusted(Status, data, "status")
    except (OperatorError, ValueError, RecursionError, Malformed):
        return None
