"""Anti-entropy: find any difference between two ledgers in a few small round trips, pull what is missing (SPEC 8.4).

Both ledgers are summarised by the same tree of digests, so equal digests end the comparison of a branch. The cost grows
with the difference and not with the ledger. The asking side goes down, from what differs to what is missing:

    spans       a digest of each 1,024 steps, and one of all statements
    shards      a digest of each of 256 groups of authors, in a span that differs
    authors     of the shards that differ, page by page: a digest, a bitmap of the slots that count, one of void slots
    payloads    where the bitmaps show nothing missing and the digests still differ: 8 bytes of each payload's hash
    pull        the records of the missing slots

Only the asking side learns; the other one starts a session of its own. A peer may lie in any answer. So each answer is
checked against the request, lists ascend and are bounded, and a peer that sends less than it promised ends the session.
The asking side is a generator that yields requests and receives the answers, so that the whole dialogue reads from top
to bottom. The answering side keeps no state.
"""

from collections import Counter
from collections.abc import Generator, Iterator, Sequence, Set
from dataclasses import replace
from itertools import groupby, islice, pairwise
from operator import itemgetter
from typing import TypeVar

from protocol import limits, wire
from protocol.crypto import KEY_BYTES, Author
from protocol.errors import Reject, RejectReason
from protocol.ledger import NO_STATEMENTS, Ledger, StatementKind, digest_buckets, step_of

Request = (
    wire.SpansRequest
    | wire.ShardsRequest
    | wire.AuthorsRequest
    | wire.PayloadsRequest
    | wire.PullRequest
    | wire.StatementsRequest
)
Reply = wire.Spans | wire.Shards | wire.Authors | wire.Payloads | wire.PullDone | wire.Statements
Dialogue = Generator[Request, Reply, None]
SlotKey = tuple[Author, int]  # with the step
K = TypeVar("K", int, bytes)
T = TypeVar("T", wire.Spans, wire.Shards, wire.Authors, wire.Payloads, wire.PullDone, wire.Statements)

_GROUPS_CUT_MAX = 256  # read back and hashed anew for a page of authors: up to 4,096 records, some 60 ms
_FIRST = bytes(32)  # no valid author key is all zeros: "from the start"
_FIRST_STATEMENT = bytes(33)
_STATEMENT_KEYS_PER_PAGE = limits.STATEMENTS_PER_MESSAGE_MAX // 2  # a token has several statements


class Claims:
    """Records what the pulls in flight ask for, so that sessions with several peers share the work."""

    def __init__(self) -> None:
        self.taken: set[SlotKey] = set()
        self.compared: set[int] = set()  # spans of which some session has received all that its peer holds


class _Missing:
    """The slots of one page that its session has still to ask for."""

    def __init__(self, ledger: Ledger, span: int) -> None:
        self._ledger, self._span = ledger, span
        self._left: dict[Author, int] = {}
        self._pairs: dict[Author, int] = {}  # slots that may lack their second record, so one that comes is not enough

    def add(self, theirs: wire.AuthorHoldings, slots: int) -> None:
        """Add ``slots`` of an author of the page."""
        author = Author(theirs.author)
        self._left[author] = slots
        self._pairs[author] = _as_int(theirs.void) | self._ledger.slots.bucket(self._span, author).valid

    def slots(self) -> Iterator[SlotKey]:
        """Yield those that have not come since, from anybody."""
        for author, slots in self._left.items():
            bucket = self._ledger.slots.bucket(self._span, author)
            came = bucket.void | (bucket.valid & ~self._pairs[author])
            for step in digest_buckets.bits_of(slots & ~came):
                yield author, self._span * limits.SPAN_STEPS + step

    def take(self, taken: Set[SlotKey]) -> list[SlotKey]:
        """Remove and return as many as one pull may ask for, but none that is ``taken``."""
        # As many slots as fit into an answer when all of them are void, with two records each.
        slots_max = max(1, limits.PULL_BYTES_MAX // (2 * self._ledger.codec.record_bytes))
        found = list(islice((slot for slot in self.slots() if slot not in taken), slots_max))
        for author, step in found:
            self._left[author] &= ~(1 << step % limits.SPAN_STEPS)
        return found


class SyncSession:
    """Compares this ledger once with one peer's and pulls what is missing, with at most one request in flight."""

    def __init__(self, ledger: Ledger, claims: Claims, horizon_step: int | None, own: Author | None = None) -> None:
        """Prepare a session that takes records up to ``horizon_step`` (None: all).

        ``own``: ask for this author's records first, then for spans from the newest on: with a snapshot, these suffice.
        """
        self._ledger, self._claims = ledger, claims
        self._own, self.horizon_step = own, horizon_step
        self.is_thorough = False  # leaves nothing to sessions with other peers; set before the start
        self._asked: set[SlotKey] = set()  # by the pull in flight, as long as no record of them has come
        self.in_flight: Request | None = None
        self._dialogue = self._compare()
        self.has_progressed = False  # the peer sent at least one requested record
        self.is_complete = self.is_cut = False  # cut: the peer holds something beyond the horizon
        self.is_full = False  # the peer holds authors for whom the author table here has no place
        self.is_short = False  # the peer sent less than it promised, or lists more than fit: nothing more is asked
        self.has_own = False  # all that the peer holds of ``own`` is here
        self.has_statements = False  # all statements that the peer holds are here
        self.spans: tuple[int, ...] = ()  # the spans that the peer holds
        self._groups_left = 0  # that may still be read back for the present page; below 0: no more
        self.skipped = 0  # pages of which something was left to a session with another peer, which may yet fail

    def advance(self, reply: Reply | None, request: int) -> Request | None:
        """Process the answer to the request in flight; return the next one, numbered ``request``, or None at the end.

        ``reply`` is None at the start. Raises Reject when it is of the wrong kind or contradicts itself.
        """
        try:
            following = next(self._dialogue) if reply is None else self._dialogue.send(reply)
        except StopIteration:
            self.is_complete, self.in_flight = True, None
            return None
        self.in_flight = replace(following, request=request)
        return self.in_flight

    def is_answer(self, request: int) -> bool:
        """Return whether ``request`` is the number of the request in flight; late answers carry an older number."""
        return self.in_flight is not None and self.in_flight.request == request

    def count_records(self, records: Sequence[bytes]) -> None:
        """Note which slots of the pull in flight these records answer."""
        came = self._asked & {(Author(record[:KEY_BYTES]), step_of(record)) for record in records}
        self._release(came)
        self.has_progressed = self.has_progressed or bool(came)

    def close(self) -> None:
        """Give up the session, so that others are asked for what its pull asked for."""
        self._dialogue.close()
        self._release(self._asked)
        self.in_flight = None

    def _release(self, slots: set[SlotKey]) -> None:
        self._claims.taken -= slots
        self._asked = self._asked - slots

    # --- the dialogue, top to bottom -----------------------------------------------------------------------

    def _compare(self) -> Dialogue:
        theirs = _expect(wire.Spans, (yield wire.SpansRequest(request=0)))
        _check_ascending([entry.span for entry in theirs.spans])
        # Statements first: they decide which records are usable, and excluded ones are not requested.
        if theirs.statements not in (NO_STATEMENTS, self._ledger.roster.digest()):
            yield from self._fetch_statements()
        self.has_statements = True
        self.spans = tuple(entry.span for entry in theirs.spans)
        if self._own is not None:
            yield from self._ask_for(self._own)
        own = dict(self._ledger.slots.span_digests())
        for entry in theirs.spans if self._own is None else reversed(theirs.spans):
            if own.get(entry.span) == entry.digest:
                self._claims.compared.add(entry.span)
            elif self.horizon_step is not None and entry.span * limits.SPAN_STEPS > self.horizon_step:
                self.is_cut = True
            elif not self.is_short:
                yield from self._compare_span(entry.span)

    def _ask_for(self, author: Author) -> Dialogue:
        """Pull all that the peer holds of one author, span by span."""
        # A page starts after a key, so ask from the key just below the author's.
        before = (int.from_bytes(author, "big") - 1).to_bytes(len(author), "big")
        for span in reversed(self.spans):
            if self.is_short:
                break
            request = wire.AuthorsRequest(request=0, span=span, shards=(digest_buckets.shard_of(author),), after=before)
            page = _expect(wire.Authors, (yield request))
            _check_page(request, page)
            listed = tuple(entry for entry in page.authors if entry.author == author)
            yield from self._pull_page(span, replace(page, authors=listed))
        self.has_own = not (self.is_short or self.skipped)

    def _fetch_statements(self) -> Dialogue:
        """Request all statements of the peer. The caller adds each page to the ledger before it passes it on here."""
        after, is_last, listed = _FIRST_STATEMENT, False, 0
        while not is_last:
            page = _expect(wire.Statements, (yield wire.StatementsRequest(request=0, after=after)))
            keys = [self._ledger.roster.codec.decode_untrusted(data).key for data in page.statements]
            # [REJECT] SPEC 8.4.3: a page of statements makes progress; those of one token stand side by side.
            if not keys and not page.is_last:
                raise Reject(RejectReason.UNREQUESTED, "a page of statements that makes no progress")
            if (keys and keys[0] <= after) or any(first > second for first, second in pairwise(keys)):
                raise Reject(RejectReason.UNREQUESTED, "statements that are not in ascending order")
            listed += _counted(keys)
            # [REJECT] SPEC 8.4.3: no node holds more statements than may be held.
            if listed > 2 * limits.STATEMENTS_MAX:
                raise Reject(RejectReason.UNREQUESTED, "more statements than any node holds")
            after, is_last = keys[-1] if keys else after, page.is_last

    def _compare_span(self, span: int) -> Dialogue:
        theirs = _expect(wire.Shards, (yield wire.ShardsRequest(request=0, span=span)))
        _check_echo(span, theirs.span)
        _check_ascending([entry.shard for entry in theirs.shards])
        own = dict(self._ledger.slots.shard_digests(span))
        differing = tuple(entry.shard for entry in theirs.shards if own.get(entry.shard) != entry.digest)
        after, is_last, listed, skipped = _FIRST, not differing, 0, self.skipped
        while not is_last and not self.is_short:
            request = wire.AuthorsRequest(request=0, span=span, shards=differing, after=after)
            page = _expect(wire.Authors, (yield request))
            _check_page(request, page)
            listed += len(page.authors)
            # No ledger holds more authors at a time, but an owner may have excluded some between two pages.
            if listed > self._ledger.authors_max:
                self.is_short = True
                return
            yield from self._pull_page(span, page)
            after, is_last = page.authors[-1].author if page.authors else after, page.is_last
        if not self.is_short and self.skipped == skipped:
            self._claims.compared.add(span)

    def _pull_page(self, span: int, page: wire.Authors) -> Dialogue:
        missing = _Missing(self._ledger, span)
        self._groups_left = _GROUPS_CUT_MAX
        for holdings in page.authors:
            missing.add(holdings, (yield from self._missing(span, holdings)))
        yield from self._pull(missing, self._claims.taken)
        # Other peers may be slow, or lie. So what the last session left to them is not left to them again.
        if self.is_thorough and not self.is_short:
            yield from self._pull(missing, frozenset())
        self.skipped += not self.is_short and any(missing.slots())

    def _pull(self, missing: _Missing, taken: Set[SlotKey]) -> Dialogue:
        while slots := missing.take(taken):
            self._asked = set(slots)
            self._claims.taken |= self._asked
            _expect(wire.PullDone, (yield wire.PullRequest(request=0, wanted=tuple(_wanted(slots)))))
            if self._asked:
                self.is_short = True
                self._release(self._asked)
                break

    def _missing(self, span: int, theirs: wire.AuthorHoldings) -> Generator[Request, Reply, int]:
        """Return a bitmap of an author's slots to ask for, up to the horizon, if the author counts and has room here.

        here       valid there                     void there
        nothing    asked for                       asked for
        valid      asked for if payloads differ    asked for
        void       -                               -
        """
        author = Author(theirs.author)
        own = self._ledger.slots.bucket(span, author)
        their_valid, their_void = _as_int(theirs.valid), _as_int(theirs.void)
        counted = _before(self._ledger.roster.counts_until(author), span)
        has_room = self._ledger.has_room_for(author)  # SPEC 7.3.4: without, it would be ignored
        self.is_full |= not has_room and (their_valid | their_void) & counted > 0
        if own.digest() == theirs.digest or not has_room:
            return 0
        missing = (their_valid & ~own.held) | (their_void & ~own.void)
        if not missing and their_valid & own.valid:
            missing = yield from self._differing(span, theirs)
        missing &= counted
        near = missing if self.horizon_step is None else missing & _before(self.horizon_step + 1, span)
        self.is_cut |= near != missing
        return near

    def _differing(self, span: int, theirs: wire.AuthorHoldings) -> Generator[Request, Reply, int]:
        """Return a bitmap of the peer's valid slots that may hold another payload here, which bitmaps do not show.

        Digests say whether there are any, hashes of payloads which; if no hash does, it may be any (SPEC 8.4.4).
        """
        author, their_valid = Author(theirs.author), _as_int(theirs.valid)
        bucket, slots = self._ledger.slots.bucket(span, author), their_valid | _as_int(theirs.void)
        self._groups_left -= bucket.groups_cut(slots)
        is_compared = self._groups_left >= 0  # else reading back would cost too much
        if is_compared and bucket.digest_within(slots) == theirs.digest:
            return 0  # what both hold is equal: this ledger only holds more
        answer = _expect(wire.Payloads, (yield wire.PayloadsRequest(request=0, span=span, author=author)))
        _check_echo((span, author), (answer.span, answer.author))
        steps, size = digest_buckets.bits_of(their_valid), digest_buckets.PAYLOAD_HASH_BYTES
        if len(answer.hashes) != size * len(steps):
            self.is_short = True  # the peer's ledger has changed since its bitmap, or it lies: try again later
            return 0
        own, first = self._ledger.slots.payload_hashes(span, author), span * limits.SPAN_STEPS
        hashes = (answer.hashes[start : start + size] for start in range(0, len(answer.hashes), size))
        pairs = zip(steps, hashes, strict=True)
        differing = sum(1 << step for step, their_hash in pairs if own.get(first + step, their_hash) != their_hash)
        # An author can find two payloads with one hash (2^32 tries): then the digests differ, and no hash.
        is_void_here = bool(their_valid & self._ledger.slots.bucket(span, author).void)  # by now
        is_collision = not differing and is_compared and not (self.is_short or is_void_here)
        return their_valid if is_collision else differing


def _before(step: int, span: int) -> int:
    """Return the bitmap of the slots of a span before ``step``."""
    return (1 << max(0, min(step - span * limits.SPAN_STEPS, limits.SPAN_STEPS))) - 1


def _wanted(slots: list[SlotKey]) -> Iterator[wire.WantedSlots]:
    """Yield the parts of a pull, one for each author."""
    for author, found in groupby(slots, key=itemgetter(0)):
        steps = [step for _, step in found]
        piece = digest_buckets.bitmap_of([step % limits.SPAN_STEPS for step in steps])
        yield wire.WantedSlots(span=steps[0] // limits.SPAN_STEPS, author=author, steps=piece)


def _counted(keys: Sequence[bytes]) -> int:
    """Return how many statements of a page count for the bound: two of one key at most. Raises Reject."""
    counts = Counter(keys)
    # [REJECT] SPEC 8.4.3: a node holds one claim more of a token than it has uses, and one statement of another key.
    if any(count > max(2, key[0] - StatementKind.CLAIM + 2) for key, count in counts.items()):
        raise Reject(RejectReason.UNREQUESTED, "more statements about the same thing than any node holds")
    return sum(min(count, 2) for count in counts.values())


def answer(ledger: Ledger, request: Request) -> list[wire.Message]:
    """Return the messages that answer one request from this ledger (SPEC 8.4)."""
    match request:
        case wire.SpansRequest():
            spans = tuple(wire.SpanDigest(span=span, digest=digest) for span, digest in ledger.slots.span_digests())
            return [wire.Spans(request=request.request, statements=ledger.roster.digest(), spans=spans)]
        case wire.ShardsRequest():
            shards = tuple(
                wire.ShardDigest(shard=s, digest=digest) for s, digest in ledger.slots.shard_digests(request.span)
            )
            return [wire.Shards(request=request.request, span=request.span, shards=shards)]
        case wire.AuthorsRequest():
            return [_answer_authors(ledger, request)]
        case wire.PayloadsRequest():
            hashes = b"".join(ledger.slots.payload_hashes(request.span, Author(request.author)).values())
            return [wire.Payloads(request=request.request, span=request.span, author=request.author, hashes=hashes)]
        case wire.PullRequest():
            return _answer_pull(ledger, request)
        case wire.StatementsRequest():
            found, is_last = ledger.roster.page(request.after, _STATEMENT_KEYS_PER_PAGE)
            return [wire.Statements(request=request.request, statements=tuple(found), is_last=is_last)]


def _answer_authors(ledger: Ledger, request: wire.AuthorsRequest) -> wire.Authors:
    page_authors = limits.AUTHORS_PER_PAGE_MAX
    held = ledger.slots.holdings(request.span, frozenset(request.shards), request.after, page_authors + 1)
    page = tuple(held[:page_authors])
    return wire.Authors(request=request.request, span=request.span, authors=page, is_last=len(held) <= page_authors)


def _answer_pull(ledger: Ledger, request: wire.PullRequest) -> list[wire.Message]:
    """Return frames of records, at most PULL_BYTES_MAX in all, then their count."""
    record_bytes = ledger.codec.record_bytes
    allowed = max(2, limits.PULL_BYTES_MAX // record_bytes)  # 2: a void slot's pair must fit into one answer
    wanted = (
        record
        for slots in request.wanted
        for record in ledger.slots.records(slots.span, Author(slots.author), slots.steps)
    )
    found = list(islice(wanted, allowed))
    frames = [wire.Records(request=request.request, data=data) for data in record_frames(found, record_bytes)]
    return [*frames, wire.PullDone(request=request.request, records=len(found))]


def record_frames(records: list[bytes], record_bytes: int) -> Iterator[bytes]:
    """Join records into the payloads of as few ``Records`` messages as the bounds allow."""
    per_frame = min(limits.RECORDS_PER_FRAME_MAX, (limits.FRAME_BYTES_MAX - 64) // record_bytes)
    for start in range(0, len(records), per_frame):
        yield b"".join(records[start : start + per_frame])


def _check_page(request: wire.AuthorsRequest, page: wire.Authors) -> None:
    """Check a page of authors. Without these rules a lying peer could keep the session going for ever."""
    _check_echo(request.span, page.span)
    _check_ascending([request.after, *(entry.author for entry in page.authors)])
    # [REJECT] SPEC 8.4.3: a page that is not the last one makes progress; listed authors hold something, no slot twice.
    if not page.authors and not page.is_last:
        raise Reject(RejectReason.UNREQUESTED, "a page of authors that makes no progress")
    for entry in page.authors:
        valid, void = _as_int(entry.valid), _as_int(entry.void)
        if not valid | void or valid & void:
            raise Reject(RejectReason.UNREQUESTED, "an author with no slots, or with one both valid and void")


def _check_ascending(keys: Sequence[K]) -> None:
    # [REJECT] SPEC 8.4.3: the parts of an answer ascend, none twice.
    if any(first >= second for first, second in pairwise(keys)):
        raise Reject(RejectReason.UNREQUESTED, "the parts of an answer are not in ascending order")


def _check_echo(asked: object, answered: object) -> None:
    # [REJECT] SPEC 8.4.2: the answer repeats what was asked about.
    if asked != answered:
        raise Reject(RejectReason.UNREQUESTED, "an answer about another span or author than was asked for")


def _expect(declared: type[T], reply: Reply) -> T:
    # [REJECT] SPEC 8.4.1: the answer is of the kind that was asked for.
    if not isinstance(reply, declared):
        raise Reject(RejectReason.UNREQUESTED, f"{type(reply).__name__} where {declared.__name__} was asked for")
    return reply


def _as_int(bitmap: bytes) -> int:
    return int.from_bytes(bitmap, "little")
