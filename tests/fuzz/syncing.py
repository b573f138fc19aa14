"""Targets ``answer`` and ``sync``: any request is answered within bounds; no lie breaks or blocks the asker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from protocol import limits
from protocol.crypto.hashing import Author
from protocol.errors import Ignore, Reject
from protocol.ledger.ledger import Ledger
from protocol.sync.anti_entropy import Claims, Request, SyncSession, answer
from protocol.wire import Message, PullDone, Records, decode_untrusted, encode
from tests.fuzz.catalogue import Target
from tests.fuzz.choices import Choices
from tests.fuzz.ledger_sets import MANIFEST as SMALL
from tests.fuzz.lies import any_request, lie
from tests.support.ledgers import add, compare, ledger_of, seal
from tests.support.manifests import small_manifest

AUTHORS, STEPS = 3, (0, 5, 39)
MANIFEST = small_manifest(authors_max=4)
assert SMALL.run_id != MANIFEST.run_id
VERSIONS = [seal(MANIFEST, author, step, v) for author in range(AUTHORS) for step in STEPS for v in (1, 2, 3)]
# A session asks once for the spans; a liar may name each of a few spans and in each the full table of authors, and
# let every author cost a page, the payload hashes and a pull.
REQUESTS_MAX = 1 + 5 * (1 + MANIFEST.authors_max * 3)


# --- answer


def check_answer(data: bytes) -> None:
    """One to a few frames that the asker can read, under the number asked for; the ledger stays as it is."""
    choices = Choices(data)
    ledger = _FULL
    root = ledger.root()
    while choices.is_left:
        request = any_request(choices)
        assert decode_untrusted(encode(request)) == request
        replies = answer(ledger, request)
        payloads = [encode(reply) for reply in replies]
        assert [decode_untrusted(payload) for payload in payloads] == replies
        assert sum(map(len, payloads)) <= limits.PULL_BYTES_MAX + limits.FRAME_BYTES_MAX
        assert all(reply.request == request.request for reply in replies)  # type: ignore[attr-defined]
        if isinstance(replies[-1], PullDone):
            records = b"".join(reply.data for reply in replies if isinstance(reply, Records))
            assert replies[-1].records == len(ledger.codec.split_untrusted(records))
    assert ledger.root() == root


_FULL = ledger_of(MANIFEST, [*VERSIONS[::3], VERSIONS[1], VERSIONS[4], *(seal(MANIFEST, 0, s) for s in range(40))])


def answer_seeds() -> Iterator[bytes]:
    """Each kind of request."""
    for number in range(30):
        yield bytes((number, number % 5, number % 6, number % 5, number % 7, number * 8 % 256) * 2)
    yield bytes((0, 0, 0, 4, 2, 0, 0, 0))


# --- sync


def check_sync(data: bytes) -> None:
    """A session with a peer that lies, stalls or sends other things ends; then an honest one makes the sets equal."""
    choices = Choices(data)
    asker, other = (ledger_of(MANIFEST, _some_records(choices)) for _ in range(2))
    claims = Claims()
    session = SyncSession(asker, claims, choices.pick((None, None, 5)))
    with suppress(Reject, StopIteration):
        _talk(asker, other, session, choices)
    session.close()
    assert not claims.taken, "a session that has ended still claims slots"
    union = {record for record in VERSIONS for ledger in (asker, other) if _holds(ledger, record)}
    for _ in range(2):
        compare(asker, other)
        compare(other, asker)
    assert asker.root() == other.root() == ledger_of(MANIFEST, sorted(union)).root()


def _some_records(choices: Choices) -> list[bytes]:
    wanted = choices.below(1 << 27)
    return [record for bit, record in enumerate(VERSIONS) if wanted >> bit & 1]


def _holds(ledger: Ledger, record: bytes) -> bool:
    span, step = 0, int.from_bytes(record[32:36], "big")
    return record in ledger.slots.records(span, _author(record), (1 << step).to_bytes(128, "little"))


def _author(record: bytes) -> Author:
    return Author(record[:32])


def _talk(asker: Ledger, other: Ledger, session: SyncSession, choices: Choices) -> None:
    """Requests and answers until the session ends by itself; StopIteration when the peer falls silent."""
    request = session.advance(None, 1)
    asked = 1
    while request is not None:
        *frames, reply = _replies(other, request, choices)
        for frame in frames:
            if isinstance(frame, Records):
                _take(asker, session, frame)
        asked += 1
        assert asked <= REQUESTS_MAX, "a liar keeps the session going"
        request = session.advance(reply, asked)  # type: ignore[arg-type]
        assert request is None or (session.is_answer(asked) and decode_untrusted(encode(request)) == request)
    assert session.is_complete and not session.is_answer(asked)


def _replies(other: Ledger, request: Request, choices: Choices) -> list[Message]:
    honest = answer(other, request)
    behaviour = choices.byte() % 8
    if behaviour == 7:
        raise StopIteration
    if behaviour == 6:
        return honest[-1:]
    if behaviour == 5:
        honest[-1] = answer(other, any_request(choices))[-1]
    elif behaviour in (3, 4):
        at = choices.below(len(honest))
        honest[at] = lie(honest[at], choices) or honest[at]
    elif behaviour == 2:
        add(other, choices.pick(VERSIONS))
    if not isinstance(honest[-1], Records):
        return honest
    raise StopIteration  # records where an answer was due: nothing ends the pull


def _take(asker: Ledger, session: SyncSession, frame: Records) -> None:
    """What the node core does with records."""
    records = asker.codec.split_untrusted(frame.data)
    session.count_records(records)
    for record in records:
        with suppress(Ignore):
            asker.add(record)


def sync_seeds() -> Iterator[bytes]:
    """Different sets with an honest peer; then with each kind of lie at each point of the dialogue."""
    sets = b"\x01\x23\x45\x67\x02\x46\x81\x35"
    yield sets
    yield bytes(4) + b"\x07\xff\xff\xff"
    for behaviour in (2, 3, 5, 6, 7):
        for turn in range(4):
            yield sets + b"\0" + bytes(turn) + bytes([behaviour]) + bytes((turn + 3 * i) % 256 for i in range(16))


TARGETS = {
    "answer": Target(check=check_answer, seeds=answer_seeds),
    "sync": Target(check=check_sync, seeds=sync_seeds),
}
