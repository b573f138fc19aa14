"""What the page's and the metrics' servers do alike before they know who asks: names, and places for strangers.

A stranger is a connection on which nothing has come yet that will be answered. It holds a place for a few seconds, and
the newest comes first: a browser sends its request at once, and one that says half a request and waits makes room.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

STRANGERS_MAX: Final = 16
STRANGERS_PER_ORIGIN_MAX: Final = 8  # a browser opens up to six connections
PATIENCE_S: Final = 5.0  # for a whole request, from the beginning of the connection
_IPV6_NETWORK: Final = 64  # one machine has as many addresses as it likes below it


def is_name_of_ours(host: str, *names: str) -> bool:
    """Return whether a Host header means this machine: ``names``, localhost, or any IP address; any port is good.

    A name of somebody else's may lead here, too (DNS rebinding); an IP address cannot be rebound. A tunnel may have
    another port at its other end.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name in ("localhost", *names) or _address(name.removeprefix("[").removesuffix("]")) is not None


@dataclass(eq=False)
class Stranger:
    """One connection that has not shown yet that it will be answered."""

    origin: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_known: bool = False


class Strangers:
    """The places of one server for strangers."""

    def __init__(self) -> None:
        self._waiting: list[Stranger] = []  # the oldest first

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def place(self, host: str) -> Iterator[Stranger]:
        """Give a connection from ``host`` a place while the context lasts.

        The context is cancelled, and left in peace, after `PATIENCE_S` or where a newer connection needs the place.
        After `recognise` neither happens.
        """
        stranger = Stranger(_origin(host))
        self._make_room(stranger.origin)
        self._waiting.append(stranger)
        stranger.scope.deadline = trio.current_time() + PATIENCE_S
        try:
            with stranger.scope:
                yield stranger
        finally:
            self._forget(stranger)

    def recognise(self, stranger: Stranger) -> None:
        """Take note that a request came that is answered: the connection is no stranger's any more."""
        stranger.is_known = True
        stranger.scope.deadline = float("inf")
        self._forget(stranger)

    def _make_room(self, origin: str) -> None:
        """End the oldest of this origin if it has its part, or of the one that has the most if all places are taken."""
        origins = Counter(each.origin for each in self._waiting)
        if origins[origin] < STRANGERS_PER_ORIGIN_MAX:
            if len(self._waiting) < STRANGERS_MAX:
                return
            origin = origins.most_common(1)[0][0]
        oldest = next(each for each in self._waiting if each.origin == origin)
        oldest.scope.cancel()
        self._forget(oldest)

    def _forget(self, stranger: Stranger) -> None:
        if stranger in self._waiting:
            self._waiting.remove(stranger)


def _origin(host: str) -> str:
    """Who counts together: an IPv4 address, or the network of an IPv6 address."""
    address = _address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, _IPV6_NETWORK), strict=False))
    return host


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
