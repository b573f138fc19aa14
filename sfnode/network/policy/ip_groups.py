"""Groups of IP addresses by network, and limits for each group. Pure: no clock, no sockets."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NewType

from protocol.errors import OperatorError
from sfnode.network import bounds

INBOUND_GROUP_PART = 4  # one network (/16, IPv6 /32) gets no more than this part of the inbound places

Group = NewType("Group", str)
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
_REMEMBERED = 4 * bounds.CONNECTIONS_MAX  # addresses in the cache: each newcomer is compared with all others


@lru_cache(maxsize=_REMEMBERED)
def ip_group_of(host: str) -> Group:
    """Return the network of an IP address: /16 or IPv6 /32 for public ones, /24 or IPv6 /64 for private ones.

    Home and cloud networks have the sizes of the latter. An IPv4 address written as IPv6 counts as IPv4. An unreadable
    address is a group of its own.
    """
    address = _address_of(host)
    if address is None:
        return Group(host)
    short, long = (16, 24) if address.version == 4 else (32, 64)
    return Group(str(ipaddress.ip_network((address, short if address.is_global else long), strict=False)))


@lru_cache(maxsize=_REMEMBERED)
def is_public(host: str) -> bool:
    """Return whether connections from this address can come across the internet."""
    address = _address_of(host)
    return address is not None and address.is_global


def public_group_of(host: str) -> Group | None:
    """Return the network of a public address; None for other addresses."""
    return ip_group_of(host) if is_public(host) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Decides which source addresses count together, with the operator's settings.

    Public addresses count by network. By default each private or loopback address counts alone: it cannot come across
    the internet, and behind a proxy or in a cloud's network all connections come from such addresses.

    Attributes:
        is_private_limited: count private and loopback addresses by network, too.
        proxies: networks of the operator's own proxies; their connections count only towards the total.
    """

    is_private_limited: bool = False
    proxies: tuple[IpNetwork, ...] = ()

    def is_limited(self, host: str) -> bool:
        """Return whether the limit per network applies to this address."""
        return not self._is_proxy(host) and (self.is_private_limited or is_public(host))

    def crowd_of(self, host: str) -> Group | None:
        """Return the group that this address counts with: its network, or the address alone; None for a proxy."""
        if self._is_proxy(host):
            return None
        return ip_group_of(host) if self.is_limited(host) else Group(str(_address_of(host) or host))

    def has_group_room(self, host: str, taken: Iterable[Group], places_max: int) -> bool:
        """Return whether the newcomer's network holds less than its part of all places."""
        if not self.is_limited(host):
            return True
        group = ip_group_of(host)
        return sum(other == group for other in taken) < max(1, places_max // INBOUND_GROUP_PART)

    def _is_proxy(self, host: str) -> bool:
        address = _address_of(host)
        return address is not None and any(address in network for network in self.proxies)


DEFAULT_ORIGINS = Origins()  # for operators without settings of their own


def parse_proxy(text: str) -> IpNetwork:
    """Parse the operator's proxy, an address or a network. Raises OperatorError."""
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
