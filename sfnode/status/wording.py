"""Put a node's status into words, for `sfnode status`, the progress line and other views."""

from __future__ import annotations

import math
import time
from typing import Final

from protocol.run import AdmissionKind, Manifest
from sfnode.network import MemoryState
from sfnode.reporter import counted, format_rate, format_seconds
from sfnode.status.node_status import Status

ADMITTED: Final = "admitted"
NO_ADMISSION_NEEDED: Final = "not needed: a relay contributes nothing"
_UNIX_S_MAX: Final = 1e11  # the year 5138
_LEFT_S_MAX: Final = 100 * 86_400.0  # a longer time would be a guess
_SHORT_PEER: Final = 12


def describe_admission(manifest: Manifest) -> str:
    """Return in words who may contribute to the run."""
    spec = manifest.admission
    return f"open, {spec.pow_bits} bits of work" if spec.pow_bits else spec.kind.value


def own_admission(status: Status) -> str:
    """Return in words whether this node may contribute, and what to do if not."""
    if status.excluded_from is not None:
        return f"excluded by the owner from step {status.excluded_from} on"
    if status.is_admitted:
        return ADMITTED
    if not status.is_training:
        return NO_ADMISSION_NEEDED
    if status.admission.startswith(AdmissionKind.OPEN):
        return "following only: this node's key does not have the work that the run asks for"
    if status.is_invitation_used:
        return (
            "not admitted: the invitation is used, another node has claimed it, too. Ask the owner for a new one, and "
            f"start again with --invite; or for `sfnode run admit {status.author}`"
        )
    return f"not admitted: ask the owner to run `sfnode run admit {status.author}`"


def describe_end(status: Status) -> str:
    """Return in words whether a finished node equals its neighbours, or what it waits for before it may leave."""
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
    """Return in words how much memory the node takes, and the effects of a full one."""
    if memory.resident_bytes is None:
        return "unknown: this system does not say"
    text = f"{memory.resident_bytes >> 20} MiB of {memory.bytes_max >> 20} (--memory-max)"
    if memory.is_full:
        text += f": no newcomer is let in, and {memory.let_go} inbound neighbours were let go"
    return text


def describe_slips(status: Status) -> str:
    """Return in words how many slips there were and how to report them; empty: none."""
    if not status.slips.count:
        return ""
    text = f"{counted(status.slips.count, 'slip')} of our own (the last: {status.slips.last}); the node has gone on"
    return f"{text}. Please report it with the lines `slip` of the node's log: docs/troubleshooting.md"


def progress_line(status: Status) -> str:
    """Return the progress line.

    Such as "14:03:22 step 120/500, loss 0.520, 840 updates, 7 peers, 3.1 kB/s, 1.5 steps/s, 9 s left".
    """
    detail = status.detail
    parts = [f"{_clock(status.time)} {describe_stage(status)}".strip()]
    if status.paused and not status.is_finished:
        parts.append(f"paused: {status.paused}")
    if status.model is not None:
        parts.append(status.model.text)
    if status.loss is not None:
        parts.append(f"loss {status.loss:.3f}")
    parts.append(counted(status.updates, "update"))
    parts.append(counted(status.peers, "peer"))
    if detail is not None:
        parts.append(format_rate(detail.bytes_in_per_s + detail.bytes_out_per_s))
        told = (describe_directions(status), describe_pace(status), describe_time_left(status))
        parts.extend(part for part in told if part)
    return ", ".join(parts)


def _clock(unix_s: float) -> str:
    """Return the local time of day; empty for a number that is not a sensible time."""
    return time.strftime("%H:%M:%S", time.localtime(unix_s)) if 0 <= unix_s < _UNIX_S_MAX else ""


def describe_stage(status: Status) -> str:
    """Return in words where the node is in the run."""
    if status.catching_up > status.updates:
        return f"catching up {100 * status.updates // status.catching_up} %"
    if status.is_finished:
        what = f"finished {status.steps} steps" if status.own_updates or status.is_training else "the run is finished"
        return f"{what}, {describe_end(status)}"
    if status.may_contribute:
        return f"step {status.step}/{status.steps}"
    what = "following" if status.is_training else "relaying"
    run_step = max(status.step, status.detail.run_step if status.detail else 0)
    return f"{what}, the run is at step {run_step}/{status.steps}"


def describe_pace(status: Status) -> str:
    """Return steps per second, or per minute if slower; empty while unknown, catching up or finished."""
    pace = status.detail.steps_per_s if status.detail else None
    if pace is None or not 0 < pace < math.inf or status.is_finished or status.catching_up > status.updates:
        return ""
    return f"{pace:.1f} steps/s" if pace >= 1 else f"{60 * pace:.1f} steps/min"


def describe_directions(status: Status) -> str:
    """Return how many of a round's directions a slow machine measures; empty where it measures all."""
    detail = status.detail
    if detail is None or not 0 < detail.directions < detail.directions_max or not status.may_contribute:
        return ""
    return f"{detail.directions} of {detail.directions_max} directions"


def describe_time_left(status: Status) -> str:
    """Return the time left to the run's last step or, while catching up, to the neighbours; empty: unknown."""
    left_s = status.detail.left_s if status.detail else None
    if left_s is None or not 0 < left_s < _LEFT_S_MAX or status.is_finished:
        return ""
    return f"{format_seconds(left_s)} left"


def describe_peers(status: Status) -> str:
    """Return how many peers there are, and how many recently held the same updates as this node."""
    detail = status.detail
    if detail is None or not detail.peers:
        return counted(status.peers, "peer")
    equal = sum(peer.is_equal for peer in detail.peers)
    return f"{counted(len(detail.peers), 'peer')}, equal with {equal} of them in the last 30 s"


def describe_own(status: Status) -> str:
    """Return the number of this node's updates, their share of all, and how many peers are known to hold them."""
    detail = status.detail
    if detail is None:
        return f"{status.own_updates:,}"
    text = f"{detail.own_updates:,}"
    if status.updates:
        text += f" ({100 * detail.own_updates / status.updates:.1f} % of all)"
    held = [peer.own_updates_min for peer in detail.peers if peer.own_updates_min]
    if held:
        text += f"; {counted(len(held), 'peer')} of {len(detail.peers)} known to hold {min(held):,} or more of them"
    return text


def describe_evaluations(status: Status) -> str:
    """Return the last held-out loss and accuracy, and the best; empty where nothing was measured."""
    detail = status.detail
    if detail is None or not detail.evaluations or detail.best is None:
        return ""
    last, best = detail.evaluations[-1], detail.best
    text = f"{last.loss:.4f}, accuracy {100 * last.accuracy:.1f} % at step {last.step}"
    return text + (" (the best so far)" if last == best else f"; best {best.loss:.4f} at step {best.step}")


def short_peer(peer: str) -> str:
    """Return a peer id in short. Its end is shown because all our peer ids have the same beginning."""
    return f"{peer[:4]}*{peer[-6:]}" if len(peer) > _SHORT_PEER else peer
