"""What only the status file tells, and no line of the log: lists, curves and rates, for people who look at a node."""

from __future__ import annotations

from dataclasses import dataclass

from sfnode.storage import EvaluatedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerState:
    """One neighbour now.

    Attributes:
        address: where this node reached it, or the IP address that it came from.
        is_outbound: whether this node dialled it.
        rtt_ms: there and back; None until the first pong.
        score: at most 0; what it did wrong lately, forgotten by half in ten minutes.
        bytes_in, bytes_out: of the wire protocol, in this session.
        updates: that it held when it told last; None: it has told nothing yet.
        is_equal: whether it told lately of exactly the set of updates that this node held at that moment.
        own_updates_min: so many of this node's own updates it holds at least: those that this node had when both last
            held the same; None: they have not held the same in this session.
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
    """A loss in nats, of the model that has all updates before ``step``."""

    step: int
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What happened, in words; ``time`` in seconds since 1970; ``is_bad``: it is better undone."""

    time: float
    text: str
    is_bad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDetail:
    """One node at one moment, as far as it goes beyond `Status`.

    Attributes:
        uptime_s: since the node began.
        run_step: where the run is: the median of the highest steps of the authors heard of lately.
        lag_steps: by how much this node's last step is behind that.
        own_updates: of this node's key that the ledger holds and that count, those of earlier starts included.
        steps_per_s: of the run where this node contributes nothing, else of this node; None while that is not known.
        left_s: until the last step at this pace, or, while it catches up, until it has what its neighbours hold.
        directions: of a round's ``directions_max``, how many this node measures (SPEC 9.1.6).
        round_s: what the last round that was measured took; None before the first.
        bytes_in_per_s, bytes_out_per_s, rows_per_s: lately; rows of forward passes.
        processes_bytes: memory of the processes that this node has started, the training worker first of all; None
            where the system does not say.
        evaluations: held-out loss and accuracy, thinned; the first, the last and the best one are among them.
        best: the evaluation with the least loss.
        losses: the training loss of this process, thinned: each is the mean of equally many estimates.
        news: the last things that happened, the newest last.
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
