"""The events that the node core handles (past tense) and the effects that it asks for (imperative)."""

from dataclasses import dataclass, field
from enum import StrEnum

from protocol.crypto import Author
from protocol.wire import Message, PeerId


class SnapshotOutcome(StrEnum):
    """What became of the snapshot that authors attested to a joiner."""

    NONE = "none"
    USED = "used"
    PROVED = "proved"
    UNPROVED = "unproved"
    USELESS = "useless"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerJoined:
    """A session with a neighbour is open and hellos are exchanged. A peer has at most one session at a time."""

    peer: PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLeft:
    """The session with a neighbour is over, for ``reason``. Messages in flight may be lost in both directions."""

    peer: PeerId
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageArrived:
    """A neighbour sent a well-formed message. This event comes between its PeerJoined and its PeerLeft."""

    peer: PeerId
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateFinished:
    """The worker measured the round that starts at ``step``.

    ``took_ms``: for this alone, as it may have done something else before; None: all the time since it was asked.
    """

    step: int
    scalars: tuple[int, ...]
    took_ms: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateSkipped:
    """The worker could not measure the round because a loss was not finite. The node skips the step."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateLost:
    """The worker died before it answered. The node skips the step and starts the next one when a worker is back."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReady:
    """A training worker can take a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSwitched:
    """The operator paused or resumed training. A measurement in progress is finished and counts."""

    is_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementSubmitted:
    """The owner or the holder of an invitation submitted a statement on this machine."""

    statement: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotArrived:
    """A file came that may be the snapshot named by :class:`FetchSnapshot`."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFailed:
    """No neighbour had the file (64 hex digits)."""

    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time has passed. Comes when ``Node.rest_ms`` says at the latest; on a busy machine ``late_ms`` later."""

    late_ms: int = 0


Event = (
    PeerJoined
    | PeerLeft
    | MessageArrived
    | EstimateFinished
    | EstimateSkipped
    | EstimateLost
    | WorkerReady
    | TrainingSwitched
    | StatementSubmitted
    | SnapshotArrived
    | FetchFailed
    | Ticked
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRecords:
    """Store the records before any later effect is carried out. Own records must be on the disk by then (fsync)."""

    records: tuple[bytes, ...]
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatements:
    """Make the statements durable before any later effect, because perhaps no other node has them."""

    statements: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveStep:
    """Record durably, before any later effect, that this node may sign ``step`` but no earlier step ever again."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEstimate:
    """Ask the worker to measure the round that starts at ``step`` on the present coefficients.

    ``directions``: how many of each local step's D directions to measure, from the first on; whole blocks of examples.
    With a dense core, of how many rows the message is.
    """

    step: int
    seed: int
    directions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage:
    """Queue a message to a neighbour. It may be lost, which anti-entropy repairs."""

    peer: PeerId
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPeer:
    """End the session because the neighbour sent what no honest node can send."""

    peer: PeerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSnapshot:
    """Keep this file and serve it to every peer that asks for its hash. It may be lost, since others have it."""

    step: int
    sha256: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshot:
    """Ask the neighbours for this file, one file at a time. SnapshotArrived or FetchFailed answers."""

    sha256: str
    file_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSnapshot:
    """Report to the operator what became of the snapshot of the steps before ``step`` that these authors attest."""

    outcome: SnapshotOutcome
    step: int
    authors: tuple[Author, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Stop the node because its own state, or the snapshot that it fetched, does not follow from its ledger.

    ``detail``: which of the two, in words; ``attestations``: those of the authors who vouched for the snapshot.
    """

    detail: str
    attestations: tuple[bytes, ...] = ()


Effect = (
    StoreRecords
    | StoreStatements
    | ReserveStep
    | StartEstimate
    | SendMessage
    | DropPeer
    | StoreSnapshot
    | FetchSnapshot
    | ReportSnapshot
    | Halt
)
