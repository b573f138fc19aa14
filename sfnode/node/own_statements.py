"""Statements that a node submits to itself: those in the folder of its commands, and those about invitations."""

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import trio

from protocol.crypto import Signer
from protocol.errors import OperatorError
from protocol.events import Event, StatementSubmitted
from protocol.ledger import Statement
from protocol.node import Node
from protocol.run import Manifest
from sfnode.reporter import Reporter, counted
from sfnode.storage import DataDirectory, read_statements_file

_LOOK_S = 1.0


async def submit_due(due: Callable[[], Iterable[bytes]], inbox: trio.MemorySendChannel[Event]) -> None:
    """Look every second which statements are due, and submit them, until cancelled."""
    while True:
        for statement in due():
            await inbox.send(StatementSubmitted(statement=statement))
        await trio.sleep(_LOOK_S)


class StatementFolder:
    """Finds the statements that commands have left for a running node, which checks each like any other statement."""

    def __init__(self, manifest: Manifest, data_dir: DataDirectory, node: Node, reporter: Reporter) -> None:
        self._manifest, self._files = manifest, data_dir.statements
        self._node, self._reporter = node, reporter

    def due(self) -> Iterator[bytes]:
        """Yield what the node does not hold yet; put a file away once all its statements are durable."""
        for path in self._files.waiting():
            yield from self._read(path)

    def _read(self, path: Path) -> list[bytes]:
        """Return the statements of a file that the node does not hold yet; put the file away if there are none."""
        try:
            found = read_statements_file(self._manifest, path)
        except OperatorError as error:
            if not isinstance(error.__context__, OSError):
                self._put_away(path, "statements_refused", str(error), is_refused=True)
            else:  # too many open files, perhaps: the next look tries again
                self._reporter.event_once(logging.WARNING, "statements_unread", str(error), file=str(path))
            return []
        roster = self._node.replica.ledger.roster
        fresh = [statement.data for statement in found if not roster.covers(statement)]
        if not fresh:
            vain = sum(all(held.data != each.data for held in roster.held(each.key)) for each in found)
            text = f"took in {counted(len(found), 'statement')} of {path.name}"
            if vain:  # a statement that says more came another way, perhaps from another machine of the owner
                text += f"; {vain} of them changed nothing, since others that the owner has signed say more"
            self._put_away(path, "statements_taken", text)
        return fresh

    def _put_away(self, path: Path, event: str, text: str, *, is_refused: bool = False) -> None:
        """Put a file away, and report the event; say once that it stays where its folder can only be read."""
        try:
            self._files.put_away(path, is_refused=is_refused)
        except OperatorError as error:
            self._reporter.event_once(logging.WARNING, "statements_left", f"{text}; {error}", file=str(path))
            return
        self._reporter.event(event, text, file=str(path))


class Invitations:
    """Uses invitations: claims this node's own, and signs for the claims of others where it has the owner's key.

    A token that more authors have claimed than may use it admits nobody (SPEC 7.7). So a node claims no token that is
    used up, and the owner's node admits by name the authors who claim one first: later claims then change nothing.

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

    def due(self) -> list[bytes]:
        """Return this node's claim and the owner's admissions, as far as they are due."""
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
