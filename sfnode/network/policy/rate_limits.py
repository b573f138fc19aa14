"""Limits on answers to each neighbour: a token bucket per peer, in microseconds of computing. Pure: no clock.

Answers cost a hundred times more than questions, so received bytes do not measure them. A peer over its limit waits
alone: its reader pauses, and no other peer is delayed. An estimate is booked before a question is answered. Any excess
is booked afterwards; until then no other question of the peer is read.
"""

from collections.abc import Iterator
from typing import TypeGuard

from protocol import wire
from protocol.limits import PULL_BYTES_MAX
from sfnode.network import bounds
from sfnode.network.policy.token_bucket import TokenBucket

# Microseconds to make and write the most expensive answer of each kind, rounded up. Measured on a slow core with
# 131,072 records in one span, all in memory. Answers that are read from the disk take longer.
_COST_US: dict[type[wire.Message], int] = {
    wire.SpansRequest: 300,
    wire.ShardsRequest: 1_200,
    wire.AuthorsRequest: 4_500,
    wire.PayloadsRequest: 500,
    wire.PullRequest: 2_500,
    wire.ManifestRequest: 500,
    wire.PeersRequest: 500,
    wire.StatementsRequest: 1_000,
    wire.AttestationsRequest: 1_500,
}
_AUTHORS_BASE_US = 500  # of an AuthorsRequest without shards; the rest of its cost grows with their number
_SHARDS = 256
PUSHED = 0  # SPEC 8.1: the request number of records that answer no request


def cost_us(message: wire.Message) -> int:
    """Return the estimated cost of answering, in microseconds; 0 for a message that is not a request."""
    if isinstance(message, wire.AuthorsRequest):
        share = (_COST_US[wire.AuthorsRequest] - _AUTHORS_BASE_US) * len(message.shards) // _SHARDS
        return _AUTHORS_BASE_US + min(share, _COST_US[wire.AuthorsRequest])
    return _COST_US.get(type(message), 0)


class Asked:
    """Counts the bytes of records that one peer owes us. Records beyond them count as pushed."""

    def __init__(self) -> None:
        self._owed_bytes = 0

    def sent(self, message: wire.Message) -> None:
        """Count the records that a message to the peer asks for."""
        if isinstance(message, wire.PullRequest):
            self._owed_bytes = min(self._owed_bytes + PULL_BYTES_MAX, bounds.OWED_BYTES_MAX)

    def take(self, message: wire.Message) -> bool:
        """Return whether a received message answers a request of ours; if so, reduce the owed bytes."""
        if not isinstance(message, wire.Records) or message.request == PUSHED or len(message.data) > self._owed_bytes:
            return False
        self._owed_bytes -= len(message.data)
        return True


def is_pushed(message: wire.Message) -> TypeGuard[wire.Records]:
    """Return whether a message carries records that answer no request."""
    return isinstance(message, wire.Records) and message.request == PUSHED


def pushed_cost_bytes(message: wire.Message, record_bytes: int, *, is_asked_for: bool = False) -> int:
    """Return the cost of a message beyond its own bytes, in bytes.

    Each attestation and each unrequested record costs a signature check. ``record_bytes``: size of one record of the
    run; 0 while it is unknown.
    """
    if isinstance(message, wire.Attestations):
        return len(message.attestations) * bounds.PUSHED_RECORD_COST_BYTES
    if not record_bytes or not isinstance(message, wire.Records) or is_asked_for:
        return 0
    records = len(message.data) // record_bytes  # the bytes themselves are charged when they arrive
    return max(0, records * bounds.PUSHED_RECORD_COST_BYTES - len(message.data))


def handling_cost_bytes(message: wire.Message, record_bytes: int, seconds: float) -> float:
    """Return the extra cost, in bytes, of a message without new records whose handling took ``seconds``.

    Copies of records on the disk take several times as long as a signature check, and an answer to our own question
    can name what must be read back to be compared. The excess time counts as further records at the usual cost, so that
    a neighbour that brings nothing new takes no larger part of the core. Questions have a budget of their own.
    """
    if not record_bytes or cost_us(message):
        return 0.0
    records = len(message.data) // record_bytes if isinstance(message, wire.Records) else 0
    usual_s = records * bounds.PUSHED_RECORD_S
    excess_s = max(0.0, min(seconds, bounds.ANSWER_US_MAX / 1e6) - usual_s)
    return time_cost_bytes(excess_s)


def time_cost_bytes(seconds: float) -> float:
    """Return the cost, in bytes, of ``seconds`` of computing: as many unrequested records take as long."""
    return seconds / bounds.PUSHED_RECORD_S * bounds.PUSHED_RECORD_COST_BYTES


def in_turns(message: wire.Message, record_bytes: int) -> Iterator[wire.Message]:
    """Cut pushed records into messages of one turn each, so that other neighbours get turns in between."""
    turn_bytes = bounds.PUSHED_TOGETHER * record_bytes
    if not record_bytes or not is_pushed(message) or len(message.data) <= turn_bytes:
        yield message
        return
    for start in range(0, len(message.data), turn_bytes):
        yield wire.Records(request=PUSHED, data=message.data[start : start + turn_bytes])


class RateLimits:
    """Limits the answers to all peers that ask. ``now_s`` is the time of a monotonic clock.

    Each peer earns ANSWERS_US_PER_S, or an equal share of ANSWERS_ALL_US_PER_S if that is less.
    """

    def __init__(self) -> None:
        self._buckets: dict[wire.PeerId, TokenBucket] = {}  # in microseconds, of all that have asked
        self._here: set[wire.PeerId] = set()  # of these, the peers whose sessions are running

    def wait_s(self, peer: wire.PeerId, cost: int, now_s: float) -> float:
        """Book ``cost`` microseconds; return the seconds that the peer's request must wait, 0 within its limit."""
        # Forget the peers that have asked nothing for ANSWERS_IDLE_S and owe nothing.
        rate, last_s = self._rate_us_per_s(), now_s - bounds.ANSWERS_IDLE_S
        idle = [p for p, each in self._buckets.items() if each.updated_s < last_s and each.is_full(rate, now_s)]
        for other in idle:
            del self._buckets[other]
            self._here.discard(other)
        bucket = self._buckets.setdefault(peer, TokenBucket(bounds.ANSWERS_BURST_US, now_s))
        self._here.add(peer)
        return bucket.take(cost, self._rate_us_per_s(), now_s)

    def charge(self, peer: wire.PeerId, message: wire.Message, seconds: float, now_s: float) -> None:
        """Book the time of an answer beyond its estimate; the peer's next request waits for it."""
        booked = cost_us(message)
        if booked and peer in self._buckets:
            taken = min(seconds * 1e6, bounds.ANSWER_US_MAX)
            self._buckets[peer].take(max(0.0, taken - booked), self._rate_us_per_s(), now_s)

    def _rate_us_per_s(self) -> float:
        return min(bounds.ANSWERS_US_PER_S, bounds.ANSWERS_ALL_US_PER_S / max(1, len(self._here)))

    def ended(self, peer: wire.PeerId) -> None:
        """Stop counting a peer whose session has ended; keep its bucket in case it returns soon."""
        self._here.discard(peer)
