"""Shared by the page's and the metrics' servers: checks of the Host header, and places for unknown connections.

A stranger is a connection that has not sent a valid request yet. It holds a place for a few seconds. When places run
out, an older stranger is closed: a browser sends its request at once, so an idle connection makes room.
"""

import ipaddress
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

STRANGERS_MAX = 16
STRANGERS_PER_ORIGIN_MAX = 8  # a browser opens up to six connections
PATIENCE_S = 5.0  # for a whole request, from the beginning of the connection
_IPV6_NETWORK = 64  # one machine may use any number of addresses in a /64


def is_name_of_ours(host: str, *names: str) -> bool:
    """Return whether a Host header means this machine: ``names``, localhost, or any IP address; any port is good.

    An attacker's name may resolve to this machine (DNS rebinding). An IP address cannot be rebound. The port is
    ignored, because a tunnel may use another one at its far end.
    """
    name = (host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host).lower()  # names have no case
    is_known = name in ("localhost", *map(str.lower, names))
    return is_known or _address(name.removeprefix("[").removesuffix("]")) is not None


def url_to_open(host: str, port: int | str, path: str = "") -> str:
    """Return the URL for a browser on this machine: 0.0.0.0 and ::, which mean all of its addresses, open nowhere."""
    address = _address(host)
    if address is not None and address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/{path}"


@dataclass(eq=False)
class Stranger:
    """One connection that may not have sent a valid request yet."""

    origin: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    is_known: bool = False


class Strangers:
    """Limits the strangers of one server, in total and per origin."""

    def __init__(self) -> None:
        self._waiting: list[Stranger] = []  # the oldest first

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def place(self, host: str) -> Iterator[Stranger]:
        """Give a connection from ``host`` a place while the context lasts.

        The body is cancelled after `PATIENCE_S`, or when a newer connection needs the place; no exception leaves the
        context then. After `recognise` the body is not cancelled any more.
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
        """Free the place of a connection that has sent a valid request, and lift its deadline."""
        stranger.is_known = True
        stranger.scope.deadline = float("inf")
        self._forget(stranger)

    def _make_room(self, origin: str) -> None:
        """Cancel the oldest stranger of a full origin, or of the largest origin if all places are taken."""
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
    """Return the key under which connections are counted: an IPv4 address, or the network of an IPv6 address."""
    address = _address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
        return str(ipaddress.ip_network((address, _IPV6_NETWORK), strict=False))
    return host


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
