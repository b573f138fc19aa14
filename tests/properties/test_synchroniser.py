"""The synchroniser with three neighbours that come, go, stall, lag and lie: one session each, rests, never stuck."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from protocol import timings
from protocol.errors import Reject
from protocol.events import SendMessage
from protocol.ledger.ledger import Ledger
from protocol.sync.anti_entropy import Request, SyncSession, answer
from protocol.sync.comparison_schedule import Synchroniser
from protocol.wire import Head, Message, PeerId, Records
from tests.fuzz.choices import Choices
from tests.fuzz.lies import lie
from tests.properties.plain_model import PlainModel
from tests.support.ledgers import add, seal
from tests.support.manifests import small_manifest

MANIFEST = small_manifest(authors_max=8)
POOL = [seal(MANIFEST, author, step, version) for author in range(3) for step in (0, 5, 39) for version in (1, 2, 3)]
PEERS = (PeerId("x"), PeerId("y"), PeerId("z"))
PEER = st.sampled_from(PEERS)
PAUSES_MS = st.sampled_from((0, 50, 1_000, 5_000, 9_999, 10_000, 60_000))


class SynchroniserMachine(RuleBasedStateMachine):
    """The node's side is real; a neighbour is its ledger and the requests that it has not answered yet."""

    def __init__(self) -> None:
        super().__init__()
        self.own = Ledger(MANIFEST)
        self.sync = Synchroniser(self.own)
        self.theirs = {peer: Ledger(MANIFEST) for peer in PEERS}
        self.unanswered: dict[PeerId, list[Request]] = {}
        self.rest_until_ms = dict.fromkeys(PEERS, 0)
        self.failures = dict.fromkeys(PEERS, 0)
        self.has_progressed: set[PeerId] = set()  # in the session that runs
        self.asked_again: list[tuple[PeerId, Request]] = []
        self.now_ms = 0

    @initialize(counts=st.tuples(*[st.integers(0, len(POOL))] * 3))
    def begin(self, counts: tuple[int, int, int]) -> None:
        for peer, count in zip(PEERS, counts, strict=True):
            for record in POOL[:count]:
                self._learn(self.theirs[peer], record)
            self.come(peer)

    # --- what happens

    @rule(peer=PEER)
    def come(self, peer: PeerId) -> None:
        self.sync.open(peer)
        self.unanswered[peer], self.rest_until_ms[peer], self.failures[peer] = [], 0, 0
        self.has_progressed.discard(peer)

    @rule(peer=PEER)
    def go(self, peer: PeerId) -> None:
        self.sync.close(peer)
        self.unanswered.pop(peer, None)

    @rule(peer=PEER, record=st.sampled_from(POOL))
    def neighbour_learns(self, peer: PeerId, record: bytes) -> None:
        self._learn(self.theirs[peer], record)

    @rule(record=st.sampled_from(POOL))
    def node_learns(self, record: bytes) -> None:
        self._learn(self.own, record)

    @rule(pause_ms=PAUSES_MS)
    def time_passes(self, pause_ms: int) -> None:
        self._while_sessions(self.now_ms + pause_ms)

    @rule(peer=PEER)
    def head(self, peer: PeerId) -> None:
        if not self.sync.is_open(peer):  # the node core drops it
            return
        ledger = self.theirs[peer]
        told = Head(root=ledger.root(), state_digest=bytes(32), updates=ledger.updates, step=0, work_distance=0)
        had_session = self._has_session(peer)
        sent = self.sync.receive_head(peer, told, self.now_ms, None)
        assert not sent or (not had_session and self.now_ms >= self.rest_until_ms[peer])
        assert not sent or ledger.root() != self.own.root()
        self._note(peer, sent)

    @rule(peer=PEER, rounds=st.integers(1, 6), ends=st.sampled_from(("", "", "gone", "silent")))
    def talk(self, peer: PeerId, rounds: int, ends: str) -> None:
        """A head, twice since a live node does nothing about one difference, and so many honest answers at once."""
        if not self.sync.is_open(peer):
            return
        self.head(peer)
        self.head(peer)
        for _ in range(rounds):
            if self.unanswered[peer]:
                self._answer(peer, self.unanswered[peer].pop())
        if ends == "gone":
            self.go(peer)
        elif ends == "silent":
            self._while_sessions(self.now_ms + timings.REQUEST_TIMEOUT_MS)

    @rule(peer=PEER)
    def lose_requests(self, peer: PeerId) -> None:
        """The neighbour is overloaded and never answers them."""
        self.unanswered.get(peer, []).clear()

    @rule(peer=PEER, how=st.none() | st.binary(max_size=6), is_cut=st.booleans(), late=st.booleans())
    def answer_one(self, peer: PeerId, how: bytes | None, is_cut: bool, late: bool) -> None:
        """The neighbour answers its latest or its oldest request, fully, cut short, or with a lie."""
        if self.unanswered.get(peer):
            request = self.unanswered[peer].pop(0 if late else -1)
            self._answer(peer, request, how=how, is_cut=is_cut)

    def _answer(self, peer: PeerId, request: Request, *, how: bytes | None = None, is_cut: bool = False) -> None:
        *frames, reply = answer(self.theirs[peer], request)
        for frame in frames[: 0 if is_cut else None]:
            assert isinstance(frame, Records)
            records = self.own.codec.split_untrusted(frame.data)
            session = self._session(peer)
            if session and session.is_answer(frame.request) and records:
                self.has_progressed.add(peer)
            self.sync.count_records(peer, frame.request, records, self.now_ms)
            for record in records:
                self._learn(self.own, record)
        changed = (None if how is None else lie(reply, Choices(how))) or reply
        if changed == reply:
            self._receive(peer, reply)
            return
        with suppress(Reject):
            self._receive(peer, changed)
            return
        self.go(peer)  # what the node core does with it

    def _receive(self, peer: PeerId, reply: Message) -> None:
        had_session, failed = self._has_session(peer), self.sync.sessions_failed
        self._note(peer, self.sync.receive(peer, reply, self.now_ms))
        if had_session and not self._has_session(peer):
            self._ended(peer, is_failed=self.sync.sessions_failed > failed)

    def _note(self, peer: PeerId, sent: list[SendMessage]) -> None:
        assert len(sent) <= 1 and all(effect.peer == peer for effect in sent)
        self.unanswered.setdefault(peer, []).extend(
            effect.message for effect in sent if isinstance(effect.message, Request)
        )

    def _while_sessions(self, now_ms: int) -> None:
        """Time goes on; sessions whose request is too old have failed."""
        had = [peer for peer in PEERS if self._has_session(peer)]
        self.now_ms = now_ms
        for effect in self.sync.tick(now_ms):
            assert isinstance(effect.message, Request)
            assert (effect.peer, effect.message) not in self.asked_again, "asked for a third time"
            self.asked_again.append((effect.peer, effect.message))
            self._note(effect.peer, [effect])
        for peer in had:
            if not self._has_session(peer):
                self._ended(peer, is_failed=True)

    def _ended(self, peer: PeerId, *, is_failed: bool) -> None:
        """SPEC 8.4.7: 1 s, doubled by each failure in a row that brought no record, at most 60 s."""
        self.failures[peer] = self.failures[peer] + 1 if is_failed and peer not in self.has_progressed else 0
        self.has_progressed.discard(peer)
        self.rest_until_ms[peer] = self.now_ms + min(1_000 * 2 ** self.failures[peer], 60_000)

    def _learn(self, ledger: Ledger, record: bytes) -> None:
        add(ledger, record)

    def _has_session(self, peer: PeerId) -> bool:
        neighbour = self.sync._neighbours.get(peer)
        return neighbour is not None and neighbour.session is not None

    # --- the promises

    @invariant()
    def peers_are_those_that_came(self) -> None:
        assert {peer for peer in PEERS if self.sync.is_open(peer)} == set(self.sync._neighbours)

    @invariant()
    def claims_belong_to_running_sessions(self) -> None:
        asked = [session._asked for peer in PEERS if (session := self._session(peer))]
        assert self.sync._claims.taken <= set().union(*asked)

    def _session(self, peer: PeerId) -> SyncSession | None:
        neighbour = self.sync._neighbours.get(peer)
        return neighbour.session if neighbour else None

    def teardown(self) -> None:
        """All answer honestly and at once: after the longest rest the node holds what any of them holds."""
        for peer in PEERS:
            if not self.sync.is_open(peer):
                self.come(peer)
        for _ in range(4):
            self._while_sessions(self.now_ms + timings.SYNC_REST_MS_MAX)
            for peer in PEERS:
                self.head(peer)
                while self.unanswered[peer]:
                    self._answer(peer, self.unanswered[peer].pop())
        union = PlainModel(MANIFEST)
        for ledger in (self.own, *self.theirs.values()):
            for author in ledger.authors():
                for record in ledger.slots.records(0, author, b"\xff" * 128):
                    union.add(record[:-64])
        assert self.own.root() == union.root()
        assert self.sync.is_live


def test_synchroniser__any_neighbours__one_session_each_and_never_stuck() -> None:
    run_state_machine_as_test(SynchroniserMachine, settings=settings(max_examples=60, stateful_step_count=30))
