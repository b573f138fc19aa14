"""Peers that a node saves for its next start, as text: addresses, bootstraps, discouraged peers, names."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from protocol.errors import OperatorError
from protocol.schema import Malformed, from_plain_untrusted, to_plain
from protocol.wire import PeerId
from sfnode.network.bounds import BOOTSTRAPS_KEPT_MAX
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy import Address, DiscouragedRow, NameBook, PeerRow, parse_bootstrap

Row = TypeVar("Row", PeerRow, DiscouragedRow)


def encode_rows(rows: Iterable[PeerRow | DiscouragedRow]) -> str:
    """Encode the address book, or the discouraged peers, as JSON."""
    return json.dumps([to_plain(row, as_rows=False) for row in rows])


def decode_rows(declared: type[Row], text: str) -> tuple[Row, ...]:
    """Decode rows that were saved; return none if they are unreadable.

    Bootstraps bring the known peers back, and a bad peer will misbehave again.
    """
    try:
        return tuple(from_plain_untrusted(declared, row, declared.__name__) for row in json.loads(text))
    except (ValueError, TypeError, RecursionError, Malformed):
        return ()


def encode_bootstraps(addresses: Iterable[Address]) -> str:
    return json.dumps([str(address) for address in addresses])


def with_bootstraps(config: NetworkConfig, text: str) -> NetworkConfig:
    """Return ``config`` with the bootstraps saved as ``text`` added: any of them leads out of an island."""
    if config.neighbours_fixed:
        return config
    named = {address.peer for address in config.bootstrap}
    try:
        saved = [parse_bootstrap(entry) for entry in json.loads(text)]
    except (ValueError, TypeError, AttributeError, RecursionError, OperatorError):
        return config
    earlier = [address for address in saved if address.peer not in named]
    return replace(config, bootstrap=(*config.bootstrap, *earlier[:BOOTSTRAPS_KEPT_MAX]))


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
