"""Which authors attest which snapshot: the newest attestation of each, and whether enough of them agree (SPEC 9.5)."""

from __future__ import annotations

from protocol import limits
from protocol.crypto import Author
from protocol.errors import Ignore, IgnoreReason
from protocol.ledger import Ledger
from protocol.run import Manifest
from protocol.state import Attestation, AttestationCodec


class AttestationTable:
    """A bounded table. Neighbours are told of it, but nodes need not agree on it."""

    def __init__(self, manifest: Manifest, ledger: Ledger) -> None:
        self.codec = AttestationCodec(manifest)
        self._ledger = ledger
        self._newest: dict[Author, Attestation] = {}

    def add(self, data: bytes, *, is_live: bool) -> Attestation:
        """Take one in, checks cheapest first. ``is_live`` False: it is not known yet who may contribute.

        Raises:
            Reject: its author cannot have made it.
            Ignore: it cannot be used now.
        """
        attestation = self.codec.decode_untrusted(data)
        author = attestation.author
        held = self._newest.get(author)
        # [IGNORE] SPEC 9.5.7: the author has attested that step, or a later one.
        if held and held.step >= attestation.step:
            raise Ignore(IgnoreReason.ALREADY_HELD, f"{author.hex()[:16]} has attested step {held.step}")
        # [IGNORE] SPEC 9.5.8: nothing of this author counts.
        if is_live and not (self._is_trusted(author) and self._ledger.highest_step(author) >= 0):
            raise Ignore(IgnoreReason.NOT_ADMITTED, f"no update of {author.hex()[:16]} counts")
        # [IGNORE] SPEC 9.5.9: the table is full.
        if held is None and len(self._newest) >= limits.ATTESTATIONS_MAX:
            self._newest = {each: found for each, found in self._newest.items() if self._is_trusted(each)}
            if len(self._newest) >= limits.ATTESTATIONS_MAX:
                raise Ignore(IgnoreReason.ATTESTATIONS_FULL, f"{limits.ATTESTATIONS_MAX} authors attest already")
        self.codec.check_signed(attestation)
        self._newest[author] = attestation
        return attestation

    def page(self) -> tuple[bytes, ...]:
        """What a neighbour that asks is told: the newest, as many as fit into a message."""
        newest = sorted(self._trusted(), key=lambda each: (-each.step, each.author))
        return tuple(each.data for each in newest[: limits.ATTESTATIONS_PER_MESSAGE_MAX])

    def agreed(self, authors_min: int) -> list[Attestation]:
        """Attestations of the newest snapshot on which enough authors agree; empty when there is no such snapshot.

        Enough: at least ``authors_min``, and more than half of all that attest its step or a later one.
        """
        trusted = self._trusted()
        for claim in sorted({each.claim for each in trusted}, reverse=True):
            agreeing = [each for each in trusted if each.claim == claim]
            asked = sum(each.step >= claim[0] for each in trusted)
            if len(agreeing) >= authors_min and 2 * len(agreeing) > asked:
                return sorted(agreeing, key=lambda each: each.author)
        return []

    def _trusted(self) -> list[Attestation]:
        return [each for author, each in self._newest.items() if self._is_trusted(author)]

    def _is_trusted(self, author: Author) -> bool:
        """Whether the author is admitted, and not excluded from any step on."""
        roster = self._ledger.roster
        return roster.is_admitted(author) and roster.excluded_from(author) is None
