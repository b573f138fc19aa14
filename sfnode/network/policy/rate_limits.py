"""How much answering each neighbour may have: a token bucket per peer, in microseconds of computing. Pure: no clock.

Answers cost a hundred times more than questions, so bytes received do not measure them. A peer over its limit
waits, alone: its reader pauses, and nobody else is held up. An estimate is booked before a question is answered; what
the answer really took beyond it is booked afterwards, and until then no other question of the peer is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeGuard

from protocol.limits import PULL_BYTES_MAX
from protocol.wire import (
    Attestations,
    AttestationsRequest,
    AuthorsRequest,
    ManifestRequest,
    Message,
    PayloadsRequest,
    PeerId,
    PeersRequest,
    PullRequest,
    Records,
    ShardsRequest,
    SpansRequest,
    StatementsRequest,
)
from sfnode.network import bounds
from sfnode.network.policy.token_bucket import TokenBucket

# Microseconds for the answer and for writing it, measured on a slow core with 131,072 records in one span, all of them
# in memory: the most expensive answer of each kind, rounded up. What must be read from the disk takes longer.
_COST_US: Final[dict[type[Message], int]] = {
    SpansRequest: 300,
    ShardsRequest: 1_200,
    AuthorsRequest: 4_500,
    PayloadsRequest: 500,
    PullRequest: 2_500,
    ManifestRequest: 500,
    PeersRequest: 500,
    StatementsRequest: 1_000,
    AttestationsRequest: 1_500,
}
_AUTHORS_BASE_US: Final = 500  # of an AuthorsRequest for few shards: it is answered in proportion to them
_SHARDS: Final = 256
PUSHED: Final = 0  # SPEC 8.1: the request number of records that answer no request


def cost_us(message: Message) -> int:
    """What answering costs at least to book; 0 for a message that is not a request."""
    if isinstance(message, AuthorsRequest):
        share = (_COST_US[AuthorsRequest] - _AUTHORS_BASE_US) * len(message.shards) // _SHARDS
        return _AUTHORS_BASE_US + min(share, _COST_US[AuthorsRequest])
    return _COST_US.get(type(message), 0)


class Asked:
    """How many bytes of records one peer still owes us. What it sends beyond them was pushed, whatever it calls it."""

    def __init__(self) -> None:
        self._owed_bytes = 0

    def sent(self, message: Message) -> None:
        """A message went to the peer."""
        if isinstance(message, PullRequest):
            self._owed_bytes = min(self._owed_bytes + PULL_BYTES_MAX, bounds.OWED_BYTES_MAX)

    def take(self, message: Message) -> bool:
        """Whether a message that came brings no more than is owed; then it is owed no longer."""
        if not isinstance(message, Records) or message.request == PUSHED or len(message.data) > self._owed_bytes:
            return False
        self._owed_bytes -= len(message.data)
        return True


def is_pushed(message: Message) -> TypeGuard[Records]:
    """Whether these are records that answer no request."""
    return isinstance(message, Records) and message.request == PUSHED


def pushed_cost_bytes(message: Message, record_bytes: int, *, is_asked_for: bool = False) -> int:
    """What a message counts beyond its own bytes: attestations, and records that nobody asked for, cost a
    signature check each.

    ``record_bytes``: of one record of the run; 0 while that is not known.
    """
    if isinstance(message, Attestations):
        return len(message.attestations) * bounds.PUSHED_RECORD_COST_BYTES
    if not record_bytes or not isinstance(message, Records) or is_asked_for:
        return 0
    records = len(message.data) // record_bytes
    return max(0, records * bounds.PUSHED_RECORD_COST_BYTES - len(message.data))


def copies_cost_bytes(message: Message, record_bytes: int, seconds: float) -> float:
    """What records that brought no news count beyond what they were booked for, when handling them took ``seconds``.

    Copies of what lies on the disk take several times as long as a signature check. The time counts as further
    records at the usual cost, so that a neighbour that sends nothing but copies takes no larger part of the core.
    """
    if not record_bytes or not isinstance(message, Records):
        return 0.0
    usual_s = len(message.data) // record_bytes * bounds.PUSHED_RECORD_S
    excess_s = max(0.0, min(seconds, bounds.ANSWER_US_MAX / 1e6) - usual_s)
    return excess_s / bounds.PUSHED_RECORD_S * bounds.PUSHED_RECORD_COST_BYTES


def in_turns(message: Message, record_bytes: int) -> Iterator[Message]:
    """Cut pushed records into messages that the node handles in a turn each, so that others get theirs in between."""
    turn_bytes = bounds.PUSHED_TOGETHER * record_bytes
    if not record_bytes or not is_pushed(message) or len(message.data) <= turn_bytes:
        yield message
        return
    for start in range(0, len(message.data), turn_bytes):
        yield Records(request=PUSHED, data=message.data[start : start + turn_bytes])


@dataclass(slots=True)
class _Asking:
    bucket: TokenBucket  # in microseconds
    is_here: bool = True  # its session runs


class RateLimits:
    """Buckets of all peers that asked for something. Times ``now_s`` are of a clock that only goes forward.

    A peer earns ANSWERS_US_PER_S, and less when so many ask at once that all together would get more than
    ANSWERS_ALL_US_PER_S: then each gets the same.
    """

    def __init__(self) -> None:
        self._asking: dict[PeerId, _Asking] = {}

    def __len__(self) -> int:
        return len(self._asking)

    def wait_s(self, peer: PeerId, cost: int, now_s: float) -> float:
        """Book ``cost`` microseconds; returns for how long the peer's request has to wait, 0 within its limit."""
        self._forget_idle(now_s)
        asking = self._asking.setdefault(peer, _Asking(TokenBucket(bounds.ANSWERS_BURST_US, now_s)))
        asking.is_here = True
        return self._book(asking, cost, now_s)

    def charge(self, peer: PeerId, message: Message, seconds: float, now_s: float) -> None:
        """A message of the peer was handled. What an answer took beyond its estimate is owed by the next request."""
        booked = cost_us(message)
        if booked and peer in self._asking:
            taken = min(seconds * 1e6, bounds.ANSWER_US_MAX)
            self._book(self._asking[peer], max(0.0, taken - booked), now_s)

    def _book(self, asking: _Asking, cost: float, now_s: float) -> float:
        return asking.bucket.take(cost, self._rate_us_per_s(), now_s)

    def _rate_us_per_s(self) -> float:
        here = sum(other.is_here for other in self._asking.values())
        return min(bounds.ANSWERS_US_PER_S, bounds.ANSWERS_ALL_US_PER_S / max(1, here))

    def ended(self, peer: PeerId) -> None:
        """The peer's session ended: it takes no share, but finds its bucket as it left it when it comes back soon."""
        if peer in self._asking:
            self._asking[peer].is_here = False

    def _forget_idle(self, now_s: float) -> None:
        """Drop the peers that have asked nothing for a while, and owe nothing."""
        rate = self._rate_us_per_s()
        last_s = now_s - bounds.ANSWERS_IDLE_S
        asking = self._asking.items()
        idle = [p for p, each in asking if each.bucket.updated_s < last_s and each.bucket.is_full(rate, now_s)]
        for peer in idle:
            del self._asking[peer]
