"""The newest attestation of each author, and whether enough authors agree on a snapshot (SPEC 9.5)."""

from bisect import bisect_left
from collections import Counter

from protocol import limits
from protocol.crypto import Author
from protocol.errors import Ignore, IgnoreReason
from protocol.ledger import Ledger
from protocol.run import Manifest
from protocol.state import snapshot
from protocol.wire import PeerId


class AttestationTable:
    """Holds attestations in bounded tables. Neighbours receive them, but nodes need not agree on them.

    A joiner cannot yet distinguish authors from made-up keys. Until it can, it keeps attestations by the neighbour that
    sent them. Each neighbour has its own room, so that one with many keys crowds no other out.
    """

    def __init__(self, manifest: Manifest, ledger: Ledger) -> None:
        self.codec = snapshot.AttestationCodec(manifest)
        self._ledger = ledger
        self._newest: dict[Author, snapshot.Attestation] = {}  # of authors of whom an update counted
        self._told: dict[PeerId, dict[Author, snapshot.Attestation]] = {}  # of authors not known yet, by sender

    def add(self, data: bytes, *, teller: PeerId | None = None) -> snapshot.Attestation:
        """Add one attestation, with the cheapest checks first.

        ``teller``: the neighbour that sent it, while this node does not know yet who contributes; else None.
        Reject: its author cannot have made it. Ignore: it cannot be used now.
        """
        attestation = self.codec.decode_untrusted(data)
        author = attestation.author
        # [IGNORE] SPEC 9.5.6: nothing of this author counts.
        if teller is None and not self._is_contributing(author):
            raise Ignore(IgnoreReason.NOT_ADMITTED, f"no update of {author.hex()[:16]} counts")
        table = self._newest if teller is None else self._told.setdefault(teller, {})
        known = self._of(author, self._tables())
        # Ignore what other neighbours sent: that is dropped when they leave.
        held = self._of(author, [self._newest, table]) if teller else known
        # [IGNORE] SPEC 9.5.7: the author has attested that step, or a later one.
        if any(each.step >= attestation.step for each in held):
            raise Ignore(IgnoreReason.ALREADY_HELD, f"{author.hex()[:16]} has attested step {attestation.step}")
        # [IGNORE] SPEC 9.5.8: the table is full.
        if author not in table and not self._has_room(teller):
            raise Ignore(IgnoreReason.ATTESTATIONS_FULL, "as many authors as are kept attest already")
        if attestation not in known:
            self.codec.check_signed(attestation)
        table[author] = attestation
        return attestation

    def forget(self, teller: PeerId) -> None:
        """Forget a neighbour that left; keep only its attestations of authors who are known to contribute by now."""
        for author, attestation in self._told.pop(teller, {}).items():
            is_news = all(each.step < attestation.step for each in self._of(author, self._tables()))
            if is_news and self._is_contributing(author) and (author in self._newest or self._has_room(None)):
                self._newest[author] = attestation

    def page(self) -> tuple[bytes, ...]:
        """Return the attestations for a neighbour that asks: the newest, as many as fit into a message."""
        newest = sorted(self._trusted(), key=lambda each: (-each.step, each.author))
        return tuple(each.data for each in newest[: limits.ATTESTATIONS_PER_MESSAGE_MAX])

    def agreed(self, authors_min: int) -> list[snapshot.Attestation]:
        """Return the attestations of the newest snapshot on which enough authors agree; empty without such a snapshot.

        Enough means at least ``authors_min``, and more than half of all authors that attest its step or a later one.
        """
        trusted = self._trusted()
        steps, agreeing = sorted(each.step for each in trusted), Counter(each.claim for each in trusted)
        for claim in sorted(agreeing, reverse=True):
            asked = len(steps) - bisect_left(steps, claim[0])
            if agreeing[claim] >= authors_min and 2 * agreeing[claim] > asked:
                return sorted((each for each in trusted if each.claim == claim), key=lambda each: each.author)
        return []

    @staticmethod
    def _of(author: Author, tables: list[dict[Author, snapshot.Attestation]]) -> list[snapshot.Attestation]:
        return [table[author] for table in tables if author in table]

    def _tables(self) -> list[dict[Author, snapshot.Attestation]]:
        return [self._newest, *self._told.values()]

    def _has_room(self, teller: PeerId | None) -> bool:
        if teller is not None:
            return len(self._told[teller]) < limits.ATTESTATIONS_PER_TELLER_MAX
        if len(self._newest) >= limits.ATTESTATIONS_MAX:
            for author in [author for author in self._newest if not self._is_trusted(author)]:
                del self._newest[author]
        return len(self._newest) < limits.ATTESTATIONS_MAX

    def _trusted(self) -> list[snapshot.Attestation]:
        """Return the newest attestation of each trusted author, from any sender."""
        newest: dict[Author, snapshot.Attestation] = {}
        for author, each in (item for table in self._tables() for item in table.items()):
            if author not in newest or newest[author].step < each.step:
                newest[author] = each
        return [each for author, each in newest.items() if self._is_trusted(author)]

    def _is_contributing(self, author: Author) -> bool:
        return self._is_trusted(author) and self._ledger.highest_step(author) >= 0

    def _is_trusted(self, author: Author) -> bool:
        """Return whether the author is admitted and not excluded from any step on."""
        roster = self._ledger.roster
        return roster.is_admitted(author) and roster.excluded_from(author) is None
