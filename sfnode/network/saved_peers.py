"""Peers that a node saves for its next start, as text: addresses, discouraged peers, names."""

import json
from collections.abc import Iterable, Mapping
from typing import TypeVar

from protocol.schema import Malformed, from_plain_untrusted, to_plain
from protocol.wire import PeerId
from sfnode.network.policy import DiscouragedRow, NameBook, PeerRow

Row = TypeVar("Row", PeerRow, DiscouragedRow)


def encode_rows(rows: Iterable[PeerRow | DiscouragedRow]) -> str:
    """Encode the address book, or the discouraged peers, as JSON."""
    return json.dumps([to_plain(row, as_rows=False) for row in rows])


def decode_rows(declared: type[Row], text: str) -> tuple[Row, ...]:
    """Decode rows that were saved; return none if they are unreadable.

    Named bootstraps bring the known peers back, and a bad peer will misbehave again.
    """
    try:
        return tuple(from_plain_untrusted(declared, row, declared.__name__) for row in json.loads(text))
    except (ValueError, TypeError, RecursionError, Malformed):
        return ()


def encode_names(texts: Mapping[PeerId, str]) -> str:
    return json.dumps(texts)


def restore_names(book: NameBook, text: str) -> None:
    """Put saved names into ``book``, which checks each again; leave out all if they are unreadable."""
    try:
        found = dict(json.loads(text)).items()
    except (ValueError, TypeError, RecursionError):
        return
    for peer, said in found:
        if isinstance(said, str):
            book.hear(peer, (said,))
