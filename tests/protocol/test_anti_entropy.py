"""Anti-entropy between two real ledgers, over the wire format: any difference is found and healed, cheaply."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from protocol import limits
from protocol.crypto.hashing import Author, seed_of
from protocol.errors import Reject, RejectReason
from protocol.ledger.digest_buckets import bitmap_of
from protocol.ledger.envelope import EnvelopeCodec
from protocol.ledger.ledger import Ledger
from protocol.run.manifest import Manifest
from protocol.sync.anti_entropy import Claims, Request, SyncSession, answer
from protocol.wire import (
    AuthorHoldings,
    Authors,
    AuthorsRequest,
    Message,
    Payloads,
    PayloadsRequest,
    PullDone,
    PullRequest,
    Records,
    ShardDigest,
    Shards,
    SpanDigest,
    Spans,
    SpansRequest,
    WantedSlots,
    encode,
)
from tests.support.ledgers import Cost, add, compare, digest_within, ledger_of, seal, signer
from tests.support.manifests import small_manifest

MANIFEST = small_manifest()
VERSIONS = {
    (author, step, version): seal(MANIFEST, author, step, 100 * version + step)
    for author in range(3)
    for step in (0, 5, 17)
    for version in range(3)
}


def heal(a: Ledger, b: Ledger) -> int:
    """Sessions both ways until the roots are equal; how many rounds that took."""
    for rounds in range(10):
        if a.root() == b.root():
            return rounds
        compare(a, b)
        compare(b, a)
    raise AssertionError("the ledgers never became equal")


def start(ledger: Ledger, claims: Claims | None = None) -> SyncSession:
    session = SyncSession(ledger, claims or Claims(), None)
    session.advance(None, 1)
    return session


# --- healing


@given(
    mine=st.lists(st.sampled_from(sorted(VERSIONS)), max_size=20),
    theirs=st.lists(st.sampled_from(sorted(VERSIONS)), max_size=20),
)
def test_sync__any_two_ledgers__are_equal_after_the_exchange(
    mine: list[tuple[int, int, int]], theirs: list[tuple[int, int, int]]
) -> None:
    """Missing records, different payloads in one slot, void against valid, void by other pairs."""
    a, b = (ledger_of(MANIFEST, [VERSIONS[key] for key in keys]) for keys in (mine, theirs))
    union = ledger_of(MANIFEST, [VERSIONS[key] for key in (*theirs, *mine)])
    assert heal(a, b) <= 2
    assert a.root() == b.root() == union.root()
    assert (a.updates, a.void_slots) == (b.updates, b.void_slots) == (union.updates, union.void_slots)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ([(0, 0, 0)], [(0, 0, 1)]),
        ([(0, 0, 0), (0, 0, 1)], [(0, 0, 0)]),
        ([(0, 0, 0), (0, 0, 1)], [(0, 0, 2)]),
        ([(0, 0, 0), (0, 0, 1)], [(0, 0, 1), (0, 0, 2)]),
        ([(0, 0, 0), (0, 5, 0)], [(0, 0, 1), (0, 17, 0)]),
    ],
    ids=["other-payload", "void-valid", "void-third", "other-pairs", "other-payload-and-missing"],
)
def test_sync__slots_that_differ_in_payload__are_healed(
    mine: list[tuple[int, int, int]], theirs: list[tuple[int, int, int]]
) -> None:
    a, b = (ledger_of(MANIFEST, [VERSIONS[key] for key in keys]) for keys in (mine, theirs))
    heal(a, b)
    assert a.void_slots == b.void_slots == 1


def test_sync__full_author_table__asks_for_no_new_author() -> None:
    """Two nodes with full tables of other authors would otherwise pull each other's ledger again for ever."""
    few = replace(MANIFEST, authors_max=2)
    a, b = (ledger_of(few, [seal(few, author, 3) for author in authors]) for authors in ((1, 2), (2, 3)))
    session, cost = compare(a, b)
    assert cost.round_trips == 3  # spans, shards, authors, and no pull
    assert session.is_complete and not session.is_cut and not session.skipped


def test_sync__equal_ledgers__one_round_trip() -> None:
    a, b = (ledger_of(MANIFEST, list(VERSIONS.values())) for _ in range(2))
    session, cost = compare(a, b)
    assert session.is_complete and not session.is_short and not session.skipped
    assert cost.round_trips == 1


def test_sync__two_hundred_authors__come_in_pages() -> None:
    a, b = Ledger(MANIFEST), ledger_of(MANIFEST, [seal(MANIFEST, author, 3) for author in range(200)])
    _, cost = compare(a, b)
    assert a.root() == b.root()
    assert cost.round_trips == 2 + 2 + 2  # spans, shards, two pages with one pull each


def test_sync__horizon__leaves_later_slots_for_later() -> None:
    a, b = Ledger(MANIFEST), ledger_of(MANIFEST, [seal(MANIFEST, 0, step) for step in range(40)])
    session, _ = compare(a, b, horizon_step=12)
    assert session.is_complete and not session.is_short
    assert a.updates == 13
    compare(a, b, horizon_step=39)
    assert a.root() == b.root()


# --- cost


def unsigned_record(manifest: Manifest, number: int) -> bytes:
    """Record ``number`` of 20 authors in turn, without a signature."""
    author, step = Author(bytes([number % 20] * 32)), number // 20
    return author + step.to_bytes(4, "big") + seed_of(manifest.run_id, author, step).to_bytes(8, "big") + bytes(66)


def test_sync__one_of_twenty_thousand_missing__four_round_trips_and_about_a_kilobyte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manifest = small_manifest(epoch_steps=1_024, steps=1_024)
    monkeypatch.setattr(EnvelopeCodec, "check_signed", lambda self, envelope: None)
    records = [unsigned_record(manifest, number) for number in range(20_000)]
    full, lacking = ledger_of(manifest, records), ledger_of(manifest, records[:19_777] + records[19_778:])
    assert (full.updates, lacking.updates) == (20_000, 19_999)
    _, ahead = compare(full, lacking)  # the side with more learns it in three round trips, without payload hashes
    assert ahead == Cost(round_trips=3, bytes_asked=59, bytes_answered=769)
    _, behind = compare(lacking, full)
    assert behind == Cost(round_trips=4, bytes_asked=233, bytes_answered=896)
    assert full.root() == lacking.root()


def test_messages__largest_of_each_answer__fit_into_a_frame() -> None:
    holdings = AuthorHoldings(author=bytes(32), digest=bytes(16), valid=bytes(128), void=bytes(128))
    slots = WantedSlots(span=1_023, author=bytes(32), steps=bytes(128))
    largest: list[Message] = [
        Authors(request=2**32 - 1, span=1_023, authors=(holdings,) * limits.AUTHORS_PER_PAGE_MAX, is_last=False),
        PullRequest(request=2**32 - 1, wanted=(slots,) * limits.PULL_AUTHORS_MAX),
        Spans(request=2**32 - 1, statements=bytes(16), spans=(SpanDigest(span=1_023, digest=bytes(16)),) * 1_024),
        Payloads(request=2**32 - 1, span=1_023, author=bytes(32), hashes=bytes(8_192)),
        Records(request=2**32 - 1, data=bytes(limits.FRAME_BYTES_MAX - 64)),
    ]
    assert max(len(encode(message)) for message in largest) <= limits.FRAME_BYTES_MAX


def test_answer__pull_of_everything_many_times_over__is_bounded() -> None:
    ledger = ledger_of(MANIFEST, [seal(MANIFEST, 0, step) for step in range(40)])
    slots = WantedSlots(span=0, author=signer(0).author, steps=b"\xff" * 128)
    *frames, done = answer(ledger, PullRequest(request=9, wanted=(slots,) * 256))
    assert isinstance(done, PullDone) and done.records == limits.PULL_BYTES_MAX // 110
    sizes = [len(frame.data) for frame in frames if isinstance(frame, Records)]
    assert sum(sizes) <= limits.PULL_BYTES_MAX and max(sizes) <= 512 * 110


def test_sync__all_slots_void__both_records_of_each_fit_into_the_answers() -> None:
    manifest = small_manifest(epoch_steps=1_024, clip=100, steps=1_024)
    both = [seal(manifest, 0, step, version) for step in range(800) for version in (1, 2)]
    a, b = Ledger(manifest), ledger_of(manifest, both)
    session, _ = compare(a, b)
    assert not session.is_short
    assert (a.void_slots, a.root()) == (800, b.root())


# --- liars


def test_session__peer_promises_and_sends_nothing__is_short_and_asks_no_more() -> None:
    session = start(ledger_of(MANIFEST, []))
    full = ledger_of(MANIFEST, [seal(MANIFEST, author, 3) for author in range(200)])
    asked = 0
    request: Request | None = session.advance(
        Spans(request=1, statements=bytes(16), spans=(SpanDigest(span=0, digest=bytes(16)),)), 2
    )
    while request is not None:
        asked += 1
        if isinstance(request, PullRequest):
            request = session.advance(PullDone(request=request.request, records=100), request.request + 1)
        else:
            request = session.advance(answer(full, request)[0], request.request + 1)  # type: ignore[arg-type]
    assert session.is_short and session.is_complete
    assert asked == 3  # shards, first page, first pull


def test_session__asks_for_its_own_key_and_is_cut_short__asks_no_more() -> None:
    """A bug once: a joiner with a snapshot went on through 1,023 spans of a peer that promised and sent nothing."""
    manifest, own = small_manifest(steps=8_192, epoch_steps=8_192), signer(0).author
    session = SyncSession(Ledger(manifest), Claims(), None, own)
    spans = tuple(SpanDigest(span=span, digest=bytes([1 + span]) * 16) for span in range(4))
    assert session.advance(None, 1) == SpansRequest(request=1)
    asked = session.advance(Spans(request=1, statements=bytes(16), spans=spans), 2)
    assert isinstance(asked, AuthorsRequest)
    listed = AuthorHoldings(author=own, digest=b"x" * 16, valid=b"\xff" * 128, void=bytes(128))
    asked = session.advance(Authors(request=2, span=asked.span, authors=(listed,), is_last=True), 3)
    assert isinstance(asked, PullRequest)
    assert session.advance(PullDone(request=3, records=0), 4) is None and session.is_short


def test_session__payload_hashes_do_not_fit_the_bitmap__is_short() -> None:
    a, b = ledger_of(MANIFEST, [seal(MANIFEST, 0, 0)]), ledger_of(MANIFEST, [seal(MANIFEST, 0, 0, 99)])
    session = SyncSession(a, Claims(), None)
    request = session.advance(None, 1)
    while request is not None and not isinstance(request, PayloadsRequest):
        request = session.advance(answer(b, request)[0], request.request + 1)  # type: ignore[arg-type]
    assert isinstance(request, PayloadsRequest)
    assert session.advance(Payloads(request=1, span=0, author=request.author, hashes=b""), 9) is None
    assert session.is_short


HOLDINGS = AuthorHoldings(author=b"\5" * 32, digest=b"\1" * 16, valid=bitmap_of([0]), void=bytes(128))
SPANS = Spans(request=1, statements=bytes(16), spans=(SpanDigest(span=0, digest=bytes(16)),))
SHARDS = Shards(request=2, span=0, shards=(ShardDigest(shard=7, digest=bytes(16)),))
PAGE = Authors(request=3, span=0, authors=(HOLDINGS,), is_last=True)
LIES: dict[str, list[Spans | Shards | Authors | Payloads | PullDone]] = {
    "other-kind": [PullDone(request=1, records=0)],
    "other-kind-later": [SPANS, SPANS],
    "spans-descend": [replace(SPANS, spans=(SpanDigest(span=1, digest=bytes(16)), *SPANS.spans))],
    "span-twice": [replace(SPANS, spans=SPANS.spans * 2)],
    "shards-of-another-span": [SPANS, replace(SHARDS, span=1)],
    "shard-twice": [SPANS, replace(SHARDS, shards=SHARDS.shards * 2)],
    "authors-of-another-span": [SPANS, SHARDS, replace(PAGE, span=1)],
    "author-twice": [SPANS, SHARDS, replace(PAGE, authors=(HOLDINGS, HOLDINGS))],
    "author-before-the-cursor": [SPANS, SHARDS, replace(PAGE, authors=(replace(HOLDINGS, author=bytes(32)),))],
    "empty-page-not-last": [SPANS, SHARDS, replace(PAGE, authors=(), is_last=False)],
    "author-without-slots": [SPANS, SHARDS, replace(PAGE, authors=(replace(HOLDINGS, valid=bytes(128)),))],
    "slot-valid-and-void": [SPANS, SHARDS, replace(PAGE, authors=(replace(HOLDINGS, void=bitmap_of([0])),))],
    "page-where-pull-was-due": [SPANS, SHARDS, PAGE, PAGE],
}


@pytest.mark.parametrize("lies", LIES.values(), ids=LIES.keys())
def test_session__answer_no_honest_node_gives__is_rejected(
    lies: list[Spans | Shards | Authors | Payloads | PullDone],
) -> None:
    session = start(Ledger(MANIFEST))
    for number, truth in enumerate(lies[:-1]):
        assert session.advance(truth, number + 2) is not None
    with pytest.raises(Reject) as caught:
        session.advance(lies[-1], 99)
    assert caught.value.reason is RejectReason.UNREQUESTED


def test_session__endless_pages_of_authors__is_short_at_authors_max_and_blames_nobody() -> None:
    """Slots beyond the horizon are not pulled, so nothing else would ever end this session.

    An honest neighbour was banned for a day: of its full table the owner had excluded some between two pages.
    """
    session = SyncSession(Ledger(MANIFEST), Claims(), 5)
    session.advance(None, 1)
    session.advance(SPANS, 2)
    session.advance(SHARDS, 3)
    late = replace(HOLDINGS, valid=bitmap_of([30]))

    def page(number: int) -> Authors:
        keys = range(128 * number + 1, 128 * number + 129)
        authors = tuple(replace(late, author=key.to_bytes(32, "big")) for key in keys)
        return replace(PAGE, authors=authors, is_last=False)

    pages = MANIFEST.authors_max // 128
    for number in range(pages):
        assert isinstance(session.advance(page(number), number + 4), AuthorsRequest)
    assert session.advance(page(pages), pages + 4) is None
    assert session.is_short and session.is_complete


def test_session__page_of_subsets_of_what_is_held__is_read_back_within_bounds() -> None:
    """One page of 128 authors, a slot missing in each group, with the right digests, cost a core of 1.7 s in a turn."""
    run, few = small_manifest(steps=limits.SPAN_STEPS), range(5)
    firsts = range(0, limits.SPAN_STEPS, limits.GROUP_STEPS)  # two slots of each group are held, and one is named
    held = ledger_of(run, [seal(run, author, step) for author in few for each in firsts for step in (each, each + 1)])
    bits, authors = bitmap_of([*firsts]), sorted(signer(number).author for number in few)
    lies = tuple(
        AuthorHoldings(author=author, digest=digest_within(held, 0, author, bits), valid=bits, void=bytes(128))
        for author in authors
    )
    session = SyncSession(held, Claims(), None)
    session.advance(None, 1)
    session.advance(SPANS, 2)
    session.advance(replace(SHARDS, shards=tuple(ShardDigest(shard=each, digest=bytes(16)) for each in range(256))), 3)
    asked, read = session.advance(replace(PAGE, authors=lies), 4), []
    while isinstance(asked, PayloadsRequest):
        read.append(asked.author)
        asked = session.advance(Payloads(request=4, span=0, author=asked.author, hashes=b""), 4)
    assert read == authors[4:], "four times 64 groups were read back"


# --- several sessions


def test_claims__bucket_being_pulled__is_skipped_by_the_other_session_and_free_after() -> None:
    ledger, full = Ledger(MANIFEST), ledger_of(MANIFEST, [seal(MANIFEST, 0, 3)])
    claims = Claims()
    first = SyncSession(ledger, claims, None)
    request = first.advance(None, 1)
    while not isinstance(request, PullRequest):
        assert request is not None
        request = first.advance(answer(full, request)[0], request.request + 1)  # type: ignore[arg-type]
    second = SyncSession(ledger, claims, None)
    request = second.advance(None, 1)
    while request is not None:
        assert not isinstance(request, PullRequest)
        request = second.advance(answer(full, request)[0], request.request + 1)  # type: ignore[arg-type]
    assert second.is_complete and second.skipped and not second.is_short
    first.close()
    third = SyncSession(ledger, claims, None)
    request = third.advance(None, 1)
    while request is not None and not isinstance(request, PullRequest):
        request = third.advance(answer(full, request)[0], request.request + 1)  # type: ignore[arg-type]
    assert isinstance(request, PullRequest)


def test_pulled_record__already_there_by_flood__still_counts_as_sent() -> None:
    ledger, record = Ledger(MANIFEST), seal(MANIFEST, 0, 3)
    full = ledger_of(MANIFEST, [record])
    session = SyncSession(ledger, Claims(), None)
    request = session.advance(None, 1)
    while request is not None:
        messages = answer(full, request)
        if isinstance(request, PullRequest):
            add(ledger, record)
            session.count_records([record])
        request = session.advance(messages[-1], request.request + 1)  # type: ignore[arg-type]
    assert not session.is_short
