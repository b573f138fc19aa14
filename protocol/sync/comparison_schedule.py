"""Decides which neighbour to compare ledgers with, and when: sessions, rests, time limits (SPEC 8.4)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median_low

from protocol import limits, timings, wire
from protocol.crypto import Author, Digest
from protocol.errors import Reject, RejectReason
from protocol.events import SendMessage
from protocol.ledger import Ledger
from protocol.sync.anti_entropy import Claims, Reply, Request, SyncSession, answer

_MISMATCHES_BEFORE_SYNC = 2  # a live ledger is always some records behind: only a lasting difference is worth a session
_LEFT_MAX = 64  # remembered neighbours that left with the present root: one is enough to end a run


@dataclass(slots=True)
class _Neighbour:
    session: SyncSession | None = None
    asked_ms: int = 0  # when the request in flight was sent
    heard_ms: int = 0  # when it was sent, or when the last part of its answer came
    is_asked_again: bool = False
    rest_until_ms: int = 0
    head_sent_ms: int | None = None
    head: wire.Head | None = None
    mismatches: int = 0
    failures: int = 0  # sessions in a row that brought nothing
    has_skipped: bool = False  # the last session left something to others
    roots: tuple[bytes, bytes] | None = None  # here and there, when the last session began
    is_full: bool = False  # it ended well, and all that it left is of authors who have no place here
    cut_at: int | None = None  # the horizon at which the last session ended, although the neighbour holds more

    def is_apart(self, root: Digest) -> bool:
        """Return whether all that it holds beyond the ledger with ``root`` is of authors who have no place there."""
        return self.is_full and self.head is not None and self.roots == (root, self.head.root)

    def agrees(self, root: Digest) -> bool:
        """Return whether no session can bring more: the roots are equal, or apart for good."""
        return (self.head is not None and self.head.root == root) or self.is_apart(root)


class Synchroniser:
    """Runs at most one session per neighbour, several neighbours in parallel, and answers theirs.

    Apart from `open`, `close` and `is_open`, its methods take a peer that is open.
    """

    def __init__(self, ledger: Ledger, first_request: int = 0) -> None:
        """Number requests after ``first_request``, which differs in each life of a node so that no old answer fits."""
        self.has_own = False  # some session got all that its peer holds of the author requested first
        self._ledger = ledger
        self._claims = Claims()
        self._neighbours: dict[wire.PeerId, _Neighbour] = {}
        self._last_request = first_request
        self._left: dict[wire.PeerId, _Neighbour] = {}  # that agreed when they left
        self.met_ms: int | None = None  # when the first neighbour came
        self.is_live = False
        self.has_statements = False  # all that some neighbour held are here
        self.answered_ms = -1  # when the last part of an answer to a request came
        self.sessions_completed = 0
        self.sessions_failed = 0

    @property
    def peers(self) -> int:
        return len(self._neighbours)

    @property
    def target_updates(self) -> int:
        """Return the largest number of updates in a neighbour's head, the goal of catching up; 0 without any head."""
        return max((head.updates for head in self.heads.values()), default=0)

    @property
    def heads(self) -> dict[wire.PeerId, wire.Head]:
        """Return the neighbours' last heads."""
        return {peer: entry.head for peer, entry in self._neighbours.items() if entry.head}

    @property
    def head_step(self) -> int:
        """Return the lower median of the frontiers in the neighbours' heads, -1 without any head."""
        return median_low([head.step for head in self.heads.values()] or [-1])

    @property
    def nearest_work(self) -> int | None:
        """Return the least work distance in the neighbours' heads, None without any head."""
        return min((head.work_distance for head in self.heads.values()), default=None)

    def agreement(self) -> tuple[int, int, int]:
        """Return how many neighbours have this ledger's root, how many are apart from it for good (SPEC 8.4.8), and how
        many have another root, or have sent no head yet. The first two include those that left so.
        """
        root = self._ledger.root()
        met = [each for each in (self._left | self._neighbours).values() if each.agrees(root)]
        apart = sum(each.is_apart(root) for each in met)
        return len(met) - apart, apart, sum(not each.agrees(root) for each in self._neighbours.values())

    def has_compared_from(self, step: int) -> bool:
        """Return whether all spans of some neighbour from ``step`` (a multiple of SPAN_STEPS) on are compared."""
        sessions = [entry.session for entry in self._neighbours.values() if entry.session]
        wanted = [{span for span in session.spans if span * limits.SPAN_STEPS >= step} for session in sessions]
        return any(spans and spans <= self._claims.compared for spans in wanted)

    def is_open(self, peer: wire.PeerId) -> bool:
        return peer in self._neighbours

    def open_peers(self) -> list[wire.PeerId]:
        return list(self._neighbours)

    def open(self, peer: wire.PeerId, now_ms: int = 0) -> None:
        """Add a neighbour, which may come again before the end of its old session is reported."""
        self.close(peer)
        self._neighbours[peer] = _Neighbour()
        self.met_ms = now_ms if self.met_ms is None else self.met_ms

    def close(self, peer: wire.PeerId) -> None:
        """Remove a neighbour that left, so that what its session pulls can be requested from others."""
        neighbour = self._neighbours.pop(peer, None)
        if neighbour and neighbour.session:
            neighbour.session.close()
        root = self._ledger.root()
        if neighbour and neighbour.agrees(root):
            left = [*self._left.items(), (peer, neighbour)]
            self._left = {peer: each for peer, each in left[-_LEFT_MAX:] if each.agrees(root)}

    def peers_due_for_head(self, now_ms: int) -> list[wire.PeerId]:
        """Return the neighbours to which no head was sent for HEAD_INTERVAL_MS."""
        due_ms, neighbours = now_ms - timings.HEAD_INTERVAL_MS, self._neighbours.items()
        return [peer for peer, each in neighbours if each.head_sent_ms is None or each.head_sent_ms <= due_ms]

    def head_sent(self, peer: wire.PeerId, now_ms: int) -> None:
        self._neighbours[peer].head_sent_ms = now_ms

    def receive_head(
        self, peer: wire.PeerId, head: wire.Head, now_ms: int, horizon_step: int | None, first: Author | None = None
    ) -> list[SendMessage]:
        """Compare roots and start a session when the ledgers have differed for long enough.

        ``horizon_step``: the last step to request; ``first``: an author whose records the session requests first.
        """
        neighbour = self._neighbours[peer]
        neighbour.head = head
        root = self._ledger.root()
        if neighbour.agrees(root):
            neighbour.mismatches = 0
            self.is_live = self.has_statements = True
            return []
        neighbour.mismatches += 1
        is_lasting = neighbour.mismatches >= _MISMATCHES_BEFORE_SYNC or not self.is_live
        if neighbour.session or now_ms < neighbour.rest_until_ms or not is_lasting:
            return []
        neighbour.session = SyncSession(self._ledger, self._claims, horizon_step, first)
        neighbour.session.is_thorough = neighbour.has_skipped
        neighbour.roots, neighbour.is_full = (root, head.root), False
        return self._send(peer, neighbour, neighbour.session.advance(None, self._next_request()), now_ms)

    def receive(self, peer: wire.PeerId, message: wire.Message, now_ms: int) -> list[SendMessage]:
        """Answer a request, or continue the session that an answer belongs to. Raises Reject for other messages."""
        if isinstance(message, Request):
            return [SendMessage(peer=peer, message=part) for part in answer(self._ledger, message)]
        if not isinstance(message, Reply):
            raise Reject(RejectReason.UNREQUESTED, f"{type(message).__name__} is not for the node core")
        neighbour = self._neighbours[peer]
        session = neighbour.session
        if session is None or not session.is_answer(message.request):
            return []  # late answer to a request that was given up: nobody's fault
        self.answered_ms = now_ms
        request = session.advance(message, self._next_request())
        self.has_own = self.has_own or session.has_own
        self.has_statements = self.has_statements or session.has_statements
        return self._send(peer, neighbour, request, now_ms)

    def cut_short(self, has_moved: Callable[[wire.Head, int], bool]) -> list[tuple[wire.PeerId, wire.Head]]:
        """Return the last heads of those whose last session ended at a horizon that ``has_moved``: each begins one."""
        found: list[tuple[wire.PeerId, wire.Head]] = []
        for peer, each in self._neighbours.items():
            step, each.cut_at = each.cut_at, None
            if step is not None and each.head and has_moved(each.head, step):
                each.mismatches, each.rest_until_ms = _MISMATCHES_BEFORE_SYNC, 0
                found.append((peer, each.head))
        return found

    def count_records(self, peer: wire.PeerId, request: int, records: Sequence[bytes], now_ms: int) -> None:
        """Count records from ``peer`` towards its session if they answer the session's pull."""
        neighbour = self._neighbours[peer]
        if neighbour.session and neighbour.session.is_answer(request):
            neighbour.session.count_records(records)
            neighbour.heard_ms = self.answered_ms = now_ms

    def horizon_of(self, peer: wire.PeerId, request: int, otherwise: int | None) -> int | None:
        """Return the last step acceptable from ``peer``: its session's if records answer it, else ``otherwise``."""
        session = self._neighbours[peer].session
        return session.horizon_step if session and session.is_answer(request) else otherwise

    def tick(self, now_ms: int) -> list[SendMessage]:
        """Repeat requests without answer once, and give up sessions whose peer does not answer (SPEC 8.4.7)."""
        again: list[SendMessage] = []
        for peer, neighbour in self._neighbours.items():
            if neighbour.session is None or neighbour.session.in_flight is None:
                continue
            silent_ms = now_ms - neighbour.heard_ms
            if silent_ms >= timings.REQUEST_TIMEOUT_MS or now_ms - neighbour.asked_ms >= timings.ANSWER_MS_MAX:
                self._end(neighbour, now_ms, is_failed=True)
            elif silent_ms >= timings.REQUEST_TIMEOUT_MS // 2 and not neighbour.is_asked_again:
                neighbour.is_asked_again = True
                again.append(SendMessage(peer=peer, message=neighbour.session.in_flight))
        return again

    def _send(
        self, peer: wire.PeerId, neighbour: _Neighbour, request: Request | None, now_ms: int
    ) -> list[SendMessage]:
        if request is None:
            assert neighbour.session is not None
            self._end(neighbour, now_ms, is_failed=neighbour.session.is_short)
            return []
        neighbour.asked_ms = neighbour.heard_ms = now_ms
        neighbour.is_asked_again = False
        return [SendMessage(peer=peer, message=request)]

    def _end(self, neighbour: _Neighbour, now_ms: int, *, is_failed: bool) -> None:
        session = neighbour.session
        assert session is not None
        session.close()
        neighbour.session, neighbour.mismatches = None, 0
        neighbour.has_skipped = session.skipped > 0
        neighbour.is_full = session.is_full and not (is_failed or session.skipped or session.is_cut)
        neighbour.cut_at = session.horizon_step if session.is_cut and not is_failed else None
        # A lossy link breaks most long sessions, but each brings some records. That is no reason to rest longer.
        neighbour.failures = neighbour.failures + 1 if is_failed and not session.has_progressed else 0
        rest_ms = timings.SYNC_REST_MS << min(neighbour.failures, 16)
        neighbour.rest_until_ms = now_ms + min(rest_ms, timings.SYNC_REST_MS_MAX)
        self.sessions_failed += is_failed
        self.sessions_completed += not is_failed
        # Live: one neighbour's whole ledger was compared, and no part of it was left to a session with another.
        self.is_live = self.is_live or (not is_failed and not session.skipped)

    def _next_request(self) -> int:
        self._last_request = self._last_request % 0xFFFFFFFF + 1
        return self._last_request
