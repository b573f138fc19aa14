"""Names of the authors of a run, each shown with the one short form of its key."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.errors import OperatorError
from protocol.ledger import Roster
from sfnode.network import PeerState, policy, saved_peers
from sfnode.storage import DataDirectory, StoredRecords

KEY_DIGITS = 16  # of a key in short: too many to make another key with the same beginning
_PREFIX_DIGITS_MIN = 8  # that a person must type of a key


def short_key(author: str) -> str:
    """Return the one short form of a key, given in hex: its beginning."""
    return author[:KEY_DIGITS]


def label_of_peer(peer: PeerState) -> str:
    """Return name and short key of a neighbour."""
    return _labelled(peer.name, policy.author_of_peer(peer.peer).hex())


def _labelled(name: str, author: str) -> str:
    return f"{name} {short_key(author)}" if name else short_key(author)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Says how the authors of a run are called, by key in hex.

    Attributes:
        noted: by this owner, who gave each an invitation; they come first.
        said: by the nodes themselves.
    """

    noted: Mapping[str, str] = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)

    def of(self, author: str) -> str:
        """Return the name of an author; empty: none is known."""
        return self.noted.get(author) or self.said.get(author, "")

    def label(self, author: str) -> str:
        """Return name and short key of an author."""
        return _labelled(self.of(author), author)

    def find(self, text: str, authors: frozenset[str]) -> str:
        """Return the key of the one author who has this name, or whose key begins so. OperatorError: none, or several.

        ``authors``: all that are known, in hex. A noted name is preferred to one that a node gave itself.
        """
        known = sorted(authors | self.noted.keys() | self.said.keys())
        wanted = text.strip().casefold()
        ways = (
            [author for author in known if author.startswith(wanted) and len(wanted) >= _PREFIX_DIGITS_MIN],
            [author for author, name in sorted(self.noted.items()) if name.casefold() == wanted],
            [author for author, name in sorted(self.said.items()) if name.casefold() == wanted],
        )
        found = next((each for each in ways if each), [])
        if len(found) == 1:
            return found[0]
        if found:
            listed = ", ".join(map(self.label, found))
            raise OperatorError(f"{text[:40]!r} means several: {listed}. Give the key of the one you mean")
        raise OperatorError(
            f"AUTHOR {text[:80]!r}: this node knows no such author. Give a name or the beginning of a key as "
            "`sfnode run show` lists them, or the whole key as 64 lower-case hex digits (`sfnode id show`)"
        )


def names_known(data_dir: DataDirectory, roster: Roster, said: Mapping[str, str]) -> Names:
    """Return the names that this node knows; ``said``: those that nodes give themselves. OperatorError."""
    users = {roster.user_of(token): name for token, name in data_dir.invited.read().items()}
    return Names(noted={author.hex(): name for author, name in users.items() if author is not None}, said=said)


def stored_names(data_dir: DataDirectory, stored: StoredRecords, roster: Roster) -> Names:
    """Return the names that a node on this directory knows, or knew when it ran last. OperatorError."""
    manifest = data_dir.signed_manifest().manifest
    book = policy.NameBook(manifest.run_id)
    saved_peers.restore_names(book, stored.fact("names") or "{}")
    return names_known(data_dir, roster, book.names())
