"""What the node core is told (events, past tense) and what it asks for (effects, imperative)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from protocol.crypto import Author
from protocol.wire import Message, PeerId


class SnapshotOutcome(StrEnum):
    """What became of the snapshot that a joiner was told of."""

    NONE = "none"
    USED = "used"
    PROVED = "proved"
    UNPROVED = "unproved"
    USELESS = "useless"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerJoined:
    """A neighbour's session is open, hellos are exchanged. A peer never has more than one session at a time."""

    peer: PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLeft:
    """A neighbour's session is over; messages in flight may be lost in both directions. ``reason``: in words."""

    peer: PeerId
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageArrived:
    """A neighbour sent a well-formed message; comes between its PeerJoined and its PeerLeft."""

    peer: PeerId
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateFinished:
    """The worker measured the round that starts at ``step``."""

    step: int
    scalars: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateSkipped:
    """The worker could not measure the round: a loss was not finite. The step is passed over."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateLost:
    """The worker died before it answered. The step is passed over; the next one starts when a worker is back."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReady:
    """A training worker can take a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSwitched:
    """The operator pauses training, or lets it go on. What is being measured is finished and counts."""

    is_on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementSubmitted:
    """Somebody on this machine submits a statement: the owner, or the holder of an invitation."""

    statement: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BasisArrived:
    """The published basis with this SHA-256 (64 hex digits) is on this node's disk, whole."""

    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotArrived:
    """A file came that may be the snapshot that :class:`FetchSnapshot` named."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFailed:
    """No neighbour had the file (64 hex digits); ``is_lasting``: a file with this hash came, but can never be used."""

    sha256: str
    is_lasting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """Time has passed. Comes when ``Node.rest_ms`` says at the latest; on a busy machine ``late_ms`` later."""

    late_ms: int = 0


Event: TypeAlias = (
    PeerJoined
    | PeerLeft
    | MessageArrived
    | EstimateFinished
    | EstimateSkipped
    | EstimateLost
    | WorkerReady
    | TrainingSwitched
    | StatementSubmitted
    | BasisArrived
    | SnapshotArrived
    | FetchFailed
    | Ticked
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRecords:
    """Store the records before any later effect is carried out; own ones must have reached the disk (fsync)."""

    records: tuple[bytes, ...]
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatements:
    """Make the statements durable before any later effect: no other node may have them."""

    statements: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveStep:
    """Make it durable, before any later effect, that this node may sign ``step`` and never again an earlier one."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEstimate:
    """Ask the worker to measure the round that starts at ``step``, on the coefficients as they are now.

    ``directions``: how many of each local step's D, the first ones; whole blocks of examples.
    """

    step: int
    seed: int
    directions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendMessage:
    """Queue a message to a neighbour. It may be lost; anti-entropy repairs that."""

    peer: PeerId
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class DropPeer:
    """End the session: the neighbour sent what no honest node can send."""

    peer: PeerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSnapshot:
    """Keep this file, and serve it to whoever asks for its hash. It may be lost: others have it."""

    step: int
    sha256: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSnapshot:
    """Ask the neighbours for this file; SnapshotArrived or FetchFailed is the answer. At most one at a time."""

    sha256: str
    file_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchBasis:
    """Find this published basis on the disk or at the neighbours; BasisArrived or FetchFailed is the answer.

    At most one at a time. ``from_epoch``: the first epoch that needs it.
    """

    sha256: str
    from_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSnapshot:
    """Tell the operator what became of the snapshot of the steps before ``step`` that these authors attest."""

    outcome: SnapshotOutcome
    step: int
    authors: tuple[Author, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Stop the node: its own state does not follow from its ledger, or the snapshot that it was told does not.

    ``detail``: which of the two, in words; ``attestations``: signed by those who vouched for the snapshot.
    """

    detail: str
    attestations: tuple[bytes, ...] = ()


Effect: TypeAlias = (
    StoreRecords
    | StoreStatements
    | ReserveStep
    | StartEstimate
    | SendMessage
    | DropPeer
    | StoreSnapshot
    | FetchSnapshot
    | FetchBasis
    | ReportSnapshot
    | Halt
)
