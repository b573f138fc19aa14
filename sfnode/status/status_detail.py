"""The part of a status that is only in the status file, not in the log: lists, curves and rates."""

from dataclasses import dataclass

from protocol.node import RunProgress
from sfnode.network import PeerState
from sfnode.storage import EvaluatedStep, Gain


@dataclass(frozen=True, slots=True, kw_only=True)
class LossPoint:
    """Holds the loss of the model with all updates before ``step``: in nats, or one minus ``reward`` or ``chance``."""

    step: int
    loss: float
    reward: float | None = None
    chance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveStatistics:
    """Holds how the model has become better.

    Attributes:
        evaluations: of held-out data, thinned, without answers; with the first and the last one.
        best: the evaluation with the least loss.
        gain: what the run has given, as `sfnode eval --compare` measured it last; else since the first evaluation, if
            that was of the model alone.
        losses: training losses of this process, or rewards; each is the mean of equally many estimates.
    """

    evaluations: tuple[EvaluatedStep, ...]
    best: EvaluatedStep | None
    gain: Gain | None
    losses: tuple[LossPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Holds an event in words; ``time``: seconds since 1970; ``is_bad``: something to worry about."""

    time: float
    text: str
    is_bad: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusDetail:
    """Holds what `Status` leaves out of one node at one moment. In JSON the figures of all sections stand side by side.

    Attributes:
        uptime_s: time since the node began.
        steps_per_s: of the run; None: not known, as while the node catches up.
        left_s: time to the last step at that pace; while catching up, to what the neighbours hold.
        bytes_in_per_s, bytes_out_per_s, rows_per_s: recent rates; rows of forward passes.
        processes_bytes: memory of the processes that this node has started, such as the training worker; None where
            the system does not say.
        news: the latest events, the newest last.
    """

    progress: RunProgress
    curve: CurveStatistics
    uptime_s: float
    steps_per_s: float | None
    left_s: float | None
    bytes_in_per_s: float
    bytes_out_per_s: float
    rows_per_s: float
    processes_bytes: int | None
    peers: tuple[PeerState, ...]
    news: tuple[News, ...]
