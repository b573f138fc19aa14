"""Messages between a node and its training worker over a Unix socket, and their frames.

One connection is one session of one node. The node sends a request, and waits for its reply; the worker serves the
requests of all connections one by one. A frame (``protocol/framing.py``) holds a msgpack row ``[kind, [field, ...]]``.
No torch, trio or sockets here: both sides import it.
"""

from dataclasses import dataclass
from typing import get_args

import msgpack

from protocol.errors import NumericError, OperatorError, Reject, WorkerError, WorkerMemoryError
from protocol.framing import FrameParser, frame
from protocol.schema import Malformed, from_plain_untrusted, to_plain
from sfnode.quality_figures import AnswerSpread, SampleAnswer
from sfnode.worker_protocol.training_config import TrainingConfig

FAILURES = {each.__name__: each for each in (OperatorError, NumericError, WorkerMemoryError, WorkerError)}
FRAME_BYTES_MAX = 1 << 30  # coefficients of one epoch: 8 r^2 bytes per tensor, 0.6 MB for OPT-125m at r = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSession:
    """Opens a session: the first request on a connection; a later one replaces it. Reply: SessionOpened.

    Attributes:
        manifest: content of the signed run file; its model hashes are checked against the folder.
        training: with a model; ``devices`` say where to load it.
        author: whose private rows it trains on, which have their turn one after the other; None: each seed draws rows.
    """

    manifest: bytes
    training: TrainingConfig
    author: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochCoefficients:
    """Holds `Coefficients.core` of one epoch: little-endian int64[CoefficientLayout.size]."""

    epoch: int
    values: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCoefficients:
    """Replaces the state of the named epochs; others stay as they are (all zero at first). Reply: CoefficientsSet."""

    epochs: tuple[EpochCoefficients, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest:
    """Asks to estimate the round that starts at ``step`` with ``seed``, on the state last set. Reply: Estimated.

    ``directions``: how many of each local step's D are measured, the first ones in whole blocks; rows of a dense core.
    """

    step: int
    seed: int
    directions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateRequest:
    """Asks for loss and accuracy on the evaluation data. Reply: Evaluated, after an Evaluating for each part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened:
    """Says what the session uses: device and dtype, rows of the training data (0: none), and the model's size.

    Attributes:
        dtype: one of PRECISIONS. is_widened: whether the worker widens it to fp32 for products.
    """

    device: str
    dtype: str
    is_widened: bool
    data_rows: int
    model_parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoefficientsSet:
    """Says that the coefficients are in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """Holds the scalars to sign, the mean loss of the perturbed rows, and the number of forward rows.

    ``scalars``: local step by local step, D each; zeros beyond the requested directions. Of a dense core: the number
    of its rows, then all numbers of the message.
    """

    scalars: tuple[int, ...]
    loss: float
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluating:
    """Says how many of the evaluation rows are done, or (0 of 0) that the worker lives; the reply is still to come."""

    done: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """Holds the quality of a model over all rows.

    Attributes:
        accuracy: share of rows whose likeliest label word is right (of completions a share of tokens, of rewards the
            share of answers with the whole reward), 0 ... 1.
        f1: mean over the labels, 0 ... 1; None of completions.
        loss: mean over the rows; of rewards, one minus the mean reward.
        predictions: likeliest label of each of the first rows; empty of completions.
        answers: to the first rows, in a run that learns from rewards; spread: of all answers there.
    """

    accuracy: float
    f1: float | None
    loss: float
    rows: int
    predictions: tuple[int, ...]
    answers: tuple[SampleAnswer, ...] = ()
    spread: AnswerSpread | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFailure:
    """Says that the request failed; the session stays usable unless it was OpenSession.

    ``error``: name of what the node raises, one of FAILURES. A WorkerError is a bug; the worker's stderr has more.
    """

    error: str
    message: str


Request = OpenSession | SetCoefficients | EstimateRequest | EvaluateRequest
Reply = SessionOpened | CoefficientsSet | Estimated | Evaluated | WorkerFailure
Message = Request | Reply | Evaluating

_KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in get_args(Message)}


def encode_frame(message: Message) -> bytes:
    """Return the frame of a message. WorkerError above FRAME_BYTES_MAX (split SetCoefficients by epoch)."""
    body: bytes = msgpack.packb([type(message).__name__, to_plain(message, as_rows=True)])
    if len(body) > FRAME_BYTES_MAX:
        raise WorkerError(f"a {type(message).__name__} of {len(body)} bytes exceeds {FRAME_BYTES_MAX}")
    return frame(body)


class MessageParser(FrameParser):
    """Cuts the bytes of one connection into messages."""

    def __init__(self) -> None:
        super().__init__(FRAME_BYTES_MAX)

    def next_message(self) -> Message | None:
        """Return the next complete message; None if more bytes are needed. WorkerError if the bytes are malformed."""
        try:
            body = self.next_payload()
        except Reject as error:
            raise WorkerError(f"worker {error.detail}: the connection is out of step") from None
        return None if body is None else decode_body(body)


def decode_body(body: bytes) -> Message:
    """Decode the message in a frame's body. WorkerError if it is none: the two sides are of different releases."""
    try:
        kind, row = msgpack.unpackb(body)
        return from_plain_untrusted(_KINDS[kind], row, kind)
    except (ValueError, TypeError, KeyError, Malformed, msgpack.exceptions.UnpackException) as error:
        raise WorkerError(f"a worker frame cannot be read ({error}): node and worker differ in release") from None
