"""Networks of IP addresses, and how many of one network there may be. Pure: no clock, no sockets."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NewType

from protocol.errors import OperatorError
from sfnode.network import bounds

INBOUND_GROUP_PART: Final = 4  # one network (/16, IPv6 /32) gets no more than this part of the inbound places

Group = NewType("Group", str)
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
_REMEMBERED: Final = 4 * bounds.CONNECTIONS_MAX  # addresses: each newcomer is compared with all others, in no time


@lru_cache(maxsize=_REMEMBERED)
def ip_group_of(host: str) -> Group:
    """The network of an IP address: /16, of IPv6 /32; of a private address /24 and /64, as networks at home and in a
    cloud are cut. IPv4 written as IPv6 is IPv4. An unreadable address is its own."""
    address = _address_of(host)
    if address is None:
        return Group(host)
    short, long = (16, 24) if address.version == 4 else (32, 64)
    return Group(str(ipaddress.ip_network((address, short if address.is_global else long), strict=False)))


@lru_cache(maxsize=_REMEMBERED)
def is_public(host: str) -> bool:
    """Whether one can come from this address across the internet."""
    address = _address_of(host)
    return address is not None and address.is_global


def public_group_of(host: str) -> Group | None:
    """The network of a public address."""
    return ip_group_of(host) if is_public(host) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Who counts together, by the addresses that connections come from, and what the operator says about these.

    A network counts as one. Private addresses and loopback count each alone, unless the operator says otherwise:
    nobody can come from there across the internet, and behind a proxy or in a cloud's network everybody does.

    Attributes:
        is_private_limited: private addresses and loopback count by network, too.
        proxies: networks of the operator's own proxies. What comes from there counts in all only.
    """

    is_private_limited: bool = False
    proxies: tuple[IpNetwork, ...] = ()

    def is_limited(self, host: str) -> bool:
        """Whether the network of this address is counted against it."""
        return not self._is_proxy(host) and (self.is_private_limited or is_public(host))

    def crowd_of(self, host: str) -> Group | None:
        """Those with whom this address counts together: its network, or itself alone; None: with nobody."""
        if self._is_proxy(host):
            return None
        return ip_group_of(host) if self.is_limited(host) else Group(str(_address_of(host) or host))

    def has_group_room(self, host: str, taken: Iterable[Group], places_max: int) -> bool:
        """Whether the newcomer's network has fewer than its part of all the places."""
        if not self.is_limited(host):
            return True
        group = ip_group_of(host)
        return sum(other == group for other in taken) < max(1, places_max // INBOUND_GROUP_PART)

    def has_stranger_room(self, host: str, strangers: Iterable[str]) -> bool:
        """Whether one more connection from this address may shake hands: ``strangers`` have not said who they are."""
        crowd = self.crowd_of(host)
        if crowd is None:
            return True
        most = bounds.STRANGERS_PER_GROUP_MAX if self.is_limited(host) else bounds.STRANGERS_PER_ADDRESS_MAX
        return sum(self.crowd_of(other) == crowd for other in strangers) < most

    def _is_proxy(self, host: str) -> bool:
        address = _address_of(host)
        return address is not None and any(address in network for network in self.proxies)


DEFAULT_ORIGINS: Final = Origins()  # of an operator who says nothing


def parse_origins(*, is_private_limited: bool, proxies: Iterable[str]) -> Origins:
    """From what the operator typed; OperatorError for a proxy that is no address or network."""
    return Origins(is_private_limited=is_private_limited, proxies=tuple(_parse_network(text) for text in proxies))


def _parse_network(text: str) -> IpNetwork:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        advice = "give an IP address such as 10.0.0.7, or a network such as 10.0.0.0/24"
        raise OperatorError(f"--trusted-proxy {text!r} is not one: {error}; {advice}") from None


@lru_cache(maxsize=_REMEMBERED)
def _address_of(host: str) -> IpAddress | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
