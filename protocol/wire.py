"""Messages between neighbours and their bytes (SPEC 8): msgpack of [kind, field, ...], canonical and bounded.

A message is its dataclass; the field order is the wire order. ``decode_untrusted`` raises Reject and nothing else.
"""

from dataclasses import dataclass
from typing import Annotated, NewType

import msgpack

from protocol import limits
from protocol.errors import Reject, RejectReason
from protocol.schema import U32, U64, Bound, Bytes32, Malformed, from_plain_untrusted, to_plain

VERSION = 2
PeerId = NewType("PeerId", str)  # base58 text of the libp2p peer id

Text = Annotated[str, Bound(0, limits.TEXT_LENGTH_MAX)]
Address = Annotated[str, Bound(1, limits.ADDRESS_LENGTH_MAX)]
Addresses = Annotated[tuple[Address, ...], Bound(0, limits.ADDRESSES_PER_PEER_MAX)]
Span = Annotated[int, Bound(0, limits.STEPS_MAX // limits.SPAN_STEPS - 1)]
Shard = Annotated[int, Bound(0, 255)]
WorkDistance = Annotated[int, Bound(0, limits.WORK_DISTANCE_MAX)]
Digest16 = Annotated[bytes, Bound(16, 16)]
Bitmap = Annotated[bytes, Bound(limits.SPAN_STEPS // 8, limits.SPAN_STEPS // 8)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Base of everything that one neighbour sends to another; :class:`Kind` lists all messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello(Message):
    """First message in both directions. An observer wants only the manifest and files and sends a run id of zeros."""

    version: U32
    run_id: Bytes32
    agent: Text
    listen: Addresses
    head_step: U32


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(Message):
    """Asks for a Pong with the same nonce, to see that the other side is alive."""

    nonce: U64


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong(Message):
    """Answers a Ping."""

    nonce: U64


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersRequest(Message):
    """Asks for known peers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerAddress:
    """One known peer."""

    peer: Annotated[str, Bound(1, 128)]
    addresses: Addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers(Message):
    """Answers a PeersRequest."""

    peers: Annotated[tuple[PeerAddress, ...], Bound(0, limits.PEERS_PER_MESSAGE_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRequest(Message):
    """Asks for the signed manifest from byte ``offset`` on."""

    offset: U32


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPart(Message):
    """A part of the signed manifest; ``total`` is the manifest's whole length in bytes."""

    total: U32
    offset: U32
    data: Annotated[bytes, Bound(0, limits.PART_BYTES_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bye(Message):
    """Last message: the sender closes the session, for ``reason``."""

    reason: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Records(Message):
    """Carries envelopes end to end: pushed by the flood when ``request`` is 0, else part of that pull's answer."""

    request: U32
    data: Annotated[bytes, Bound(0, limits.FRAME_BYTES_MAX - 64)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head(Message):
    """Summarises the sender's ledger; equal roots mean equal sets and must come with equal state digests.

    ``work_distance``: sessions from the sender to the nearest node that has work left (SPEC 9.6).
    """

    root: Bytes32
    state_digest: Bytes32
    updates: U64
    step: U32
    work_distance: WorkDistance


@dataclass(frozen=True, slots=True, kw_only=True)
class SpansRequest(Message):
    """Asks for the digests of all spans that hold anything."""

    request: U32


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanDigest:
    """Digest of one span of SPAN_STEPS steps."""

    span: Span
    digest: Digest16


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans(Message):
    """Answers a SpansRequest: spans ascending, and the digest of the statements held (zeros when there are none)."""

    request: U32
    statements: Digest16
    spans: Annotated[tuple[SpanDigest, ...], Bound(0, limits.STEPS_MAX // limits.SPAN_STEPS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardsRequest(Message):
    """Asks for the digests of one span's shards (authors by the first byte of their hash)."""

    request: U32
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardDigest:
    """Digest of one shard of a span."""

    shard: Shard
    digest: Digest16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards(Message):
    """Answers a ShardsRequest, shards ascending."""

    request: U32
    span: Span
    shards: Annotated[tuple[ShardDigest, ...], Bound(0, 256)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorsRequest(Message):
    """Asks what the named shards of a span hold of the authors after ``after`` (32 zero bytes: from the start)."""

    request: U32
    span: Span
    shards: Annotated[tuple[Shard, ...], Bound(1, 256)]
    after: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorHoldings:
    """What is held of one author in a span: bit ``step % SPAN_STEPS``, lowest bit of byte 0 first."""

    author: Bytes32
    digest: Digest16
    valid: Bitmap
    void: Bitmap


@dataclass(frozen=True, slots=True, kw_only=True)
class Authors(Message):
    """Answers an AuthorsRequest, ascending by author; ``is_last`` is false when a further page follows."""

    request: U32
    span: Span
    authors: Annotated[tuple[AuthorHoldings, ...], Bound(0, limits.AUTHORS_PER_PAGE_MAX)]
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadsRequest(Message):
    """Asks for the payload hashes of one author in one span, because equal bitmaps can hide different payloads."""

    request: U32
    span: Span
    author: Bytes32


@dataclass(frozen=True, slots=True, kw_only=True)
class Payloads(Message):
    """Answers a PayloadsRequest: 8 bytes of the payload hash of each valid slot, in step order, end to end."""

    request: U32
    span: Span
    author: Bytes32
    hashes: Annotated[bytes, Bound(0, 8 * limits.SPAN_STEPS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSlots:
    """Slots of one author in one span that the sender wants."""

    span: Span
    author: Bytes32
    steps: Bitmap


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest(Message):
    """Asks for the records of slots (both records of a void one)."""

    request: U32
    wanted: Annotated[tuple[WantedSlots, ...], Bound(1, limits.PULL_AUTHORS_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PullDone(Message):
    """Ends the answer to a PullRequest; ``records`` is the number of records sent."""

    request: U32
    records: U32


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRequest(Message):
    """Asks for a file by its SHA-256 (basis, snapshot or model piece) from byte ``offset`` on; not within a session."""

    sha256: Bytes32
    offset: U32


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart(Message):
    """A part of a requested file; ``total`` is the file's whole length in bytes."""

    total: U32
    offset: U32
    data: Annotated[bytes, Bound(0, limits.PART_BYTES_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementsRequest(Message):
    """Asks for the statements of keys after ``after`` (33 zero bytes: from the start)."""

    request: U32
    after: Annotated[bytes, Bound(33, 33)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements(Message):
    """Carries statements, ascending by key: pushed by the flood when ``request`` is 0, else an answer."""

    request: U32
    statements: Annotated[
        tuple[Annotated[bytes, Bound(1, limits.STATEMENT_BYTES_MAX)], ...], Bound(0, limits.STATEMENTS_PER_MESSAGE_MAX)
    ]
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestationsRequest(Message):
    """Asks which snapshots authors attest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestations(Message):
    """Carries the attestations that the sender has, newest first, or new ones."""

    attestations: Annotated[
        tuple[Annotated[bytes, Bound(limits.ATTESTATION_BYTES, limits.ATTESTATION_BYTES)], ...],
        Bound(0, limits.ATTESTATIONS_PER_MESSAGE_MAX),
    ]


# Every message, by its wire number: its place here, which never changes (SPEC 8.1).
CLASSES: tuple[type[Message], ...] = (
    Hello, Ping, Pong, PeersRequest, Peers, ManifestRequest, ManifestPart, Bye, Records, Head,  # 0 to 9
    SpansRequest, Spans, ShardsRequest, Shards, AuthorsRequest, Authors, PayloadsRequest, Payloads,  # 10 to 17
    PullRequest, PullDone, FileRequest, FilePart, StatementsRequest, Statements, AttestationsRequest,  # 18 to 24
    Attestations,  # 25
)  # fmt: skip
_NUMBER_OF_CLASS = {declared: number for number, declared in enumerate(CLASSES)}


def encode(message: Message) -> bytes:
    """Return the message's canonical bytes: msgpack [kind, field, ...] with the shortest form of every value."""
    row = [_NUMBER_OF_CLASS[type(message)], *to_plain(message, as_rows=True)]
    packed: bytes = msgpack.packb(row, use_bin_type=True)
    return packed


def decode_untrusted(payload: bytes) -> Message:
    """Return the message that ``payload`` encodes. Raises Reject, and nothing else, for any other bytes."""
    # [REJECT] SPEC 8.2: one msgpack array, a known kind, every field of its type and within its bound, canonical.
    row = _unpack_untrusted(payload)
    if type(row) is not list or not row or type(row[0]) is not int:
        raise Reject(RejectReason.FRAME, "not a list that starts with a message kind")
    if not 0 <= row[0] < len(CLASSES):
        raise Reject(RejectReason.MESSAGE_KIND, f"unknown message kind {row[0]}")
    declared = CLASSES[row[0]]
    try:
        message = from_plain_untrusted(declared, row[1:], declared.__name__)
    except Malformed as error:
        raise Reject(RejectReason.MESSAGE_FIELD, str(error)) from None
    if encode(message) != payload:
        raise Reject(RejectReason.MESSAGE_NOT_CANONICAL, f"{declared.__name__}: not the canonical encoding")
    return message


def _unpack_untrusted(payload: bytes) -> object:
    if len(payload) > limits.FRAME_BYTES_MAX:
        raise Reject(RejectReason.SIZE, f"frame of {len(payload)} bytes, at most {limits.FRAME_BYTES_MAX}")
    try:
        return msgpack.unpackb(
            payload,
            raw=False,
            strict_map_key=True,
            max_map_len=0,
            max_ext_len=0,
            max_array_len=limits.STEPS_MAX // limits.SPAN_STEPS,
        )
    except Exception as error:  # msgpack documents no closed list: ValueError, its subclasses, RecursionError, ...
        raise Reject(RejectReason.FRAME, f"not msgpack: {type(error).__name__}") from None
