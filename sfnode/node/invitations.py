"""Uses of invitations: the node claims its own, and signs for the claims of others where it has the owner's key.

A token that more authors have claimed than may use it admits nobody (SPEC 7.7). So a node claims no token that is used
up, and the owner's node admits by name the authors who claim one first: later claims then change nothing for them.
"""

from typing import Final

import trio

from protocol.crypto import Signer
from protocol.events import Event, StatementSubmitted
from protocol.ledger import Statement
from protocol.node import Node
from sfnode.reporter import Reporter

_LOOK_S: Final = 1.0


class Invitations:
    """Looks every second whether a statement about an invitation is due, and submits it to the node.

    Attributes:
        claim: the claim of this node's own invitation, published or not; None: it has no invitation.
        is_claiming: whether it is open yet if the claim will be published.
    """

    def __init__(
        self, node: Node, claim: Statement | None, owner: Signer | None, reporter: Reporter, *, expects_peers: bool
    ) -> None:
        self.claim = claim
        self.is_claiming = claim is not None
        self._node, self._owner, self._reporter = node, owner, reporter
        self._expects_peers = expects_peers
        self._seen: bytes | None = None  # the roster's digest at the last look

    async def run(self, inbox: trio.MemorySendChannel[Event]) -> None:
        while True:
            for statement in self.due():
                await inbox.send(StatementSubmitted(statement=statement))
            await trio.sleep(_LOOK_S)

    def due(self) -> list[bytes]:
        """Return the statements to submit now: this node's claim, and the owner's admissions."""
        return [*self._own_claim(), *self._admissions()]

    def _own_claim(self) -> list[bytes]:
        """Return this node's claim as soon as it knows that the token is not used up."""
        sync, roster, claim = self._node.sync, self._node.replica.ledger.roster, self.claim
        if claim is None or not self.is_claiming:
            return []
        if not (sync.has_statements if sync.peers else not self._expects_peers):
            return []
        self.is_claiming = not (roster.is_admitted(self._node.author) or roster.is_used_up(claim))
        return [claim.data] if self.is_claiming else []

    def _admissions(self) -> list[bytes]:
        roster = self._node.replica.ledger.roster
        if self._owner is None or roster.digest() == self._seen:
            return []
        self._seen = roster.digest()
        found = roster.to_admit()
        for author in found:
            text = f"admitted {author.hex()[:16]}, the first to use an invitation"
            self._reporter.event("invitation_used", text, author=author.hex())
        return [roster.codec.admit(self._owner, author) for author in found]
