"""The part of a status that is only in the status file, not in the log: lists, curves and rates."""

from __future__ import annotations

from dataclasses import dataclass

from sfnode.storage import EvaluatedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerState:
    """Holds the state of one neighbour.

    Attributes:
        address: the address that this node dialled, or the IP address that the neighbour came from.
        is_outbound: whether this node dialled it.
        rtt_ms: round-trip time; None until the first pong.
        score: 0 or less; its penalties, which halve every ten minutes.
        bytes_in, bytes_out: of the wire protocol, in this session.
        updates: number that it held by its last report; None: no report yet.
        is_equal: whether it recently reported exactly the set of updates that this node held at that moment.
        own_updates_min: number of this node's own updates that it certainly holds: those that this node had when both
            last held the same set; None: they never did in this session.
    """

    peer: str
    address: str
    is_outbound: bool
    agent: str
    rtt_ms: float | None
    score: float
    bytes_in: int
    bytes_out: int
    updates: int | None
    is_equal: bool
    own_updates_min: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPoint:
    """Holds the loss, in nats, of the model with all updates before ``step``."""

    step: int
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Holds an event in words; ``time``: seconds since 1970; ``is_bad``: something to worry about."""

    time: float
    text: str
    is_bad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDetail:
    """Holds what `Status` leaves out of one node at one moment.

    Attributes:
        uptime_s: time since the node began.
        run_step: where the run is: the lower median of the highest steps of recently active authors.
        lag_steps: how far this node's last step is behind ``run_step``.
        own_updates: valid updates of this node's key in the ledger, also those of earlier starts.
        steps_per_s: of this node, or of the run where the node has no updates of its own; None: not known.
        left_s: time to the last step or, while catching up, to what the neighbours hold, at the present rate.
        directions: how many of a round's ``directions_max`` this node measures (SPEC 9.1.6).
        round_s: duration of the last measured round; None before the first.
        bytes_in_per_s, bytes_out_per_s, rows_per_s: recent rates; rows of forward passes.
        processes_bytes: memory of the processes that this node has started, such as the training worker; None where
            the system does not say.
        evaluations: held-out loss and accuracy, thinned; with the first and the last one.
        best: the evaluation with the least loss.
        losses: training losses of this process; each is the mean of equally many estimates.
        news: the latest events, the newest last.
    """

    uptime_s: float
    run_step: int
    lag_steps: int
    own_updates: int
    steps_per_s: float | None
    left_s: float | None
    directions: int
    directions_max: int
    round_s: float | None
    bytes_in_per_s: float
    bytes_out_per_s: float
    rows_per_s: float
    processes_bytes: int | None
    peers: tuple[PeerState, ...]
    evaluations: tuple[EvaluatedStep, ...]
    best: EvaluatedStep | None
    losses: tuple[LossPoint, ...]
    news: tuple[News, ...]
