"""Judge whether a node is well, with its exit code and what is wrong; and whether it may contribute to its run."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from sfnode.storage import pasteable

if TYPE_CHECKING:  # every command takes its exit codes from here, and a status takes the protocol along
    from sfnode.status.node_status import Status

ADMITTED = "admitted"
_WITHOUT_MODEL = "the node follows the run, and loads no model"


class Health(IntEnum):
    """Says whether a node is well; the values are exit codes of `sfnode status`. 1: none reports, 2: wrong usage."""

    WELL = 0
    NO_PEERS = 3
    NOT_ADMITTED = 4
    EXCLUDED = 5
    IDLE = 6


def health_of(status: Status) -> tuple[Health, str]:
    """Return whether the node is well, and what is wrong.

    A node whose run is over needs no peers; a relay needs no admission.
    """
    network, life, training = status.network, status.life, status.training
    is_over = status.end.is_over
    if status.roster.excluded_from is not None:
        return Health.EXCLUDED, admission_of(status)
    if not status.node.peers and network.expects_peers and not is_over:
        why = f": it cannot reach {network.unreached}" if network.unreached else ""
        return Health.NO_PEERS, f"this node knows of others, and none is connected{why}"
    if training.is_training and not status.roster.is_admitted:
        return Health.NOT_ADMITTED, admission_of(status)
    if training.is_training and not is_over and life.paused:
        return Health.IDLE, f"this node is paused: {life.paused}"
    if training.is_training and not is_over and training.trouble:
        return Health.IDLE, f"this node measures nothing now: {training.trouble}"
    return Health.WELL, ""


def admission_of(status: Status) -> str:
    """Return whether this node may contribute, and what to do if not."""
    roster, author = status.roster, status.node.author
    if roster.excluded_from is not None:
        return f"excluded by the owner from step {roster.excluded_from} on: {_WITHOUT_MODEL}"
    if roster.is_admitted:
        return ADMITTED
    if not status.training.is_training:
        return "not needed: a relay contributes nothing"
    if roster.is_open:
        text = "following only: this node's key does not have the work that the run asks for"
        return f"{text}; {_WITHOUT_MODEL}"
    admit = f"`{pasteable('sfnode run admit', author)} --owner-key FILE`"
    if roster.is_invitation_used:
        return (
            "not admitted: the string to join is used, another node has joined with it. Ask the owner for a new "
            f"one, and join with that; or to run {admit}. Until then {_WITHOUT_MODEL}"
        )
    return f"not admitted: ask the owner to run {admit}. Until then {_WITHOUT_MODEL}"
