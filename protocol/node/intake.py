"""What comes into a node's two sets: records and statements pass the door, then the disk, then the flood (SPEC 8.3)."""

from collections import Counter
from collections.abc import Sequence
from functools import cache

from protocol import limits
from protocol.errors import Ignore, IgnoreReason
from protocol.events import SendMessage, StoreRecords, StoreStatements
from protocol.ledger import Statement
from protocol.node.state_mismatch import Mismatch
from protocol.node.turn import Turn
from protocol.sync import Flood
from protocol.wire import PeerId, Records, Statements


class Intake:
    """Adds records and statements to the replica, stores the new ones and relays them to the neighbours.

    Attributes:
        ignored: how many were of no use when they came, by the name of the reason.
    """

    def __init__(self, turn: Turn, flood: Flood, mismatch: Mismatch) -> None:
        self.ignored: Counter[str] = Counter()
        self._turn = turn
        self._flood = flood
        self._mismatch = mismatch
        self._replica, self._clock, self._sync = turn.replica, turn.clock, turn.sync

    # --- records ------------------------------------------------------------------------------------------

    def take_records(self, peer: PeerId, message: Records) -> None:
        """Take in what a neighbour pushed, or answered to a request. Raises Reject."""
        records = self._replica.ledger.codec.split_untrusted(message.data)
        self._sync.count_records(peer, message.request, records, self._turn.now_ms)
        # Both look at all authors, and most messages bring copies: neither is computed unless it is needed.
        frontier = 0 if self._sync.is_live else self._turn.frontier()
        horizon = cache(lambda: self._sync.horizon_of(peer, message.request, otherwise=self._turn.horizon()))
        # The other neighbours already have what a node requests while it catches up, so do not push it (SPEC 8.3).
        is_news = self._sync.is_live or message.request == 0
        fresh: list[bytes] = []
        try:
            for record in records:
                if self._replica.ledger.holds(record):  # most copies end here
                    self.ignored[IgnoreReason.ALREADY_HELD.name] += 1
                    self._flood.mark_known(peer, record)
                    continue
                fresh.extend(self._admit(record, peer, frontier, horizon()))
        finally:
            self.keep(fresh, source=peer, is_news=is_news)

    def _admit(self, record: bytes, peer: PeerId, frontier: int, horizon_step: int | None) -> list[bytes]:
        """Add a record to the replica and return the records to store and relay. Raises Reject."""
        try:
            envelope, voided = self._replica.add(record, horizon_step=horizon_step)
        except Ignore as ignore:
            self.ignored[ignore.reason.name] += 1
            self._flood.mark_known(peer, record)
            return []
        author, step = envelope.author, envelope.step
        is_furthest = step == self._replica.ledger.standing_authors().get(author)
        if voided is not None:
            # Both records together prove the equivocation. The peer that sent the second may lack the first.
            self._flood.push(voided.record, source=None)
        elif is_furthest and (self._sync.is_live or step >= frontier):
            self._clock.hear(author, envelope.scalars, self._turn.now_ms)
        return [record]

    def keep(self, fresh: Sequence[bytes], *, source: PeerId | None, is_news: bool = True) -> None:
        """Store new records, then relay them: they must be durable before any neighbour sees them.

        ``source``: the neighbour that sent them; None: this node signed them.
        """
        if not fresh:
            return
        self._turn.do([StoreRecords(records=tuple(fresh), is_own=source is None)])
        if source is not None:
            self._mismatch.brought_news(source)
        for record in fresh if is_news else ():
            self._flood.push(record, source=source)

    # --- statements ---------------------------------------------------------------------------------------

    def take_statements(self, statements: Sequence[bytes], *, source: PeerId | None, is_news: bool) -> None:
        """Add statements to the roster, store the new ones and relay them. Raises Reject.

        ``source``: the neighbour that sent them; None: they were submitted on this machine.
        """
        fresh: list[Statement] = []
        try:
            for data in statements:
                try:
                    fresh.append(self._replica.add_statement(data))
                except Ignore as ignore:
                    self.ignored[ignore.reason.name] += 1
        finally:
            self._keep_statements(fresh, source=source, is_news=is_news)

    def _keep_statements(self, fresh: Sequence[Statement], *, source: PeerId | None, is_news: bool) -> None:
        if not fresh:
            return
        ledger = self._replica.ledger
        self._turn.do([StoreStatements(statements=tuple(statement.data for statement in fresh))])
        self._clock.forget_others(ledger.standing_authors())
        self._flood.keep(ledger.counts)
        if not is_news:
            return
        # Of a void token, send all claims: together they are the proof, and a neighbour may lack any of them.
        sent = [each.data for statement in fresh for each in ledger.roster.news_with(statement)]
        for start in range(0, len(sent), limits.STATEMENTS_PER_MESSAGE_MAX):
            part = tuple(sent[start : start + limits.STATEMENTS_PER_MESSAGE_MAX])
            message = Statements(request=0, statements=part, is_last=True)
            others = [peer for peer in self._sync.open_peers() if peer != source]
            self._turn.do(SendMessage(peer=peer, message=message) for peer in others)
