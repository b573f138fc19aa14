"""What a node keeps of its peers from one life to the next, as text: addresses, bootstraps, those not wanted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from protocol.errors import OperatorError
from protocol.schema import Malformed, from_plain_untrusted, to_plain
from sfnode.network.bounds import BOOTSTRAPS_KEPT_MAX
from sfnode.network.network_config import NetworkConfig
from sfnode.network.policy import DiscouragedRow, PeerRow, parse_bootstrap


def encode_peers(rows: Iterable[PeerRow]) -> str:
    """The address book as it is saved."""
    return _encode_rows(rows)


def decode_peers(text: str) -> tuple[PeerRow, ...]:
    """The saved address book; an unreadable one is worth no stop: bootstraps bring the peers back."""
    try:
        return tuple(from_plain_untrusted(PeerRow, row, "known_peers") for row in json.loads(text))
    except (ValueError, TypeError, RecursionError, Malformed):
        return ()


def encode_bootstraps(addresses: Iterable[str]) -> str:
    """The bootstraps that were reached, as they are saved."""
    return json.dumps(list(addresses))


def with_bootstraps(config: NetworkConfig, text: str) -> NetworkConfig:
    """``config`` with the bootstraps saved as ``text`` besides its own: an island is left through any of them."""
    if config.neighbours_fixed:
        return config
    named = {parse_bootstrap(address).peer for address in config.bootstrap}
    try:
        saved = [parse_bootstrap(entry) for entry in json.loads(text)]
    except (ValueError, TypeError, AttributeError, RecursionError, OperatorError):
        return config
    earlier = [str(address) for address in saved if address.peer not in named]
    return replace(config, bootstrap=(*config.bootstrap, *earlier[:BOOTSTRAPS_KEPT_MAX]))


def encode_discouraged(rows: Iterable[DiscouragedRow]) -> str:
    """The peers that are not wanted, as they are saved."""
    return _encode_rows(rows)


def decode_discouraged(text: str) -> tuple[DiscouragedRow, ...]:
    """The saved peers that are not wanted; unreadable ones are worth no stop: whoever misbehaves will do so again."""
    try:
        return tuple(from_plain_untrusted(DiscouragedRow, row, "discouraged") for row in json.loads(text))
    except (ValueError, TypeError, RecursionError, Malformed):
        return ()


def _encode_rows(rows: Iterable[PeerRow | DiscouragedRow]) -> str:
    return json.dumps([to_plain(row, as_rows=False) for row in rows])
