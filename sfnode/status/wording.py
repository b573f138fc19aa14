"""A node's status in words: for `sfnode status`, the progress line, and whatever else shows it to people."""

from __future__ import annotations

from typing import Final

from protocol.run import AdmissionKind, Manifest
from sfnode.network import MemoryState
from sfnode.reporter import counted, format_rate
from sfnode.status.node_status import Status

ADMITTED: Final = "admitted"


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
        return f"equal with {counted(status.equal_peers, 'peer')}" if status.equal_peers else "alone"
    missing = [
        counted(status.differing_peers, "peer") + " to become equal with" if status.differing_peers else "",
        counted(status.awaited_authors, "author") + " at work" if status.awaited_authors else "",
    ]
    found = [text for text in missing if text]
    others = "others at work further away" if status.peers else "a neighbour to compare with"
    return f"waiting for {' and '.join(found) or others}"


def describe_memory(memory: MemoryState) -> str:
    """What the node takes, and what follows from it."""
    if memory.resident_bytes is None:
        return "unknown: this system does not say"
    text = f"{memory.resident_bytes >> 20} MiB of {memory.bytes_max >> 20} (--memory-max)"
    if memory.is_full:
        text += f": no newcomer is let in, and {memory.let_go} inbound neighbours were let go"
    return text


def progress_line(status: Status, previous: Status | None) -> str:
    """The progress line: "step 120/500, loss 0.52, 7 peers, 3.1 kB/s"."""
    parts = [describe_stage(status)]
    if status.model is not None:
        parts.append(status.model.text)
    if status.loss is not None:
        parts.append(f"loss {status.loss:.3f}")
    parts.append(f"{status.updates} updates")
    parts.append(counted(status.peers, "peer"))
    if previous is not None and status.time > previous.time:
        moved = status.bytes_in + status.bytes_out - previous.bytes_in - previous.bytes_out
        parts.append(format_rate(moved / (status.time - previous.time)))
    return ", ".join(parts)


def describe_stage(status: Status) -> str:
    if status.catching_up > status.updates:
        return f"catching up {100 * status.updates // status.catching_up} %"
    if status.is_finished:
        return f"finished {status.steps} steps, {describe_end(status)}"
    return f"step {status.step}/{status.steps}"
