"""Networks of IP addresses, and how many of one network there may be. Pure: no clock, no sockets."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import NewType

from sfnode.network import bounds

Group = NewType("Group", str)


def group_of(host: str) -> Group:
    """The network of an IP address: /16, of IPv6 /32; IPv4 written as IPv6 is IPv4. An unreadable one is its own."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return Group(host)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    prefix = 16 if address.version == 4 else 32
    return Group(str(ipaddress.ip_network((address, prefix), strict=False)))


def is_limited(host: str) -> bool:
    """Whether the network of this address may be counted against it.

    Not of loopback and private ones: nobody can come from there across the internet, and behind a proxy everybody does.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_global


def limited_group_of(host: str) -> Group | None:
    """The network of this address; None where it may not be counted."""
    return group_of(host) if is_limited(host) else None


def has_group_room(host: str, taken: Iterable[Group], places_max: int) -> bool:
    """Whether the newcomer's network has fewer than its part of all the places."""
    if not is_limited(host):
        return True
    group = group_of(host)
    return sum(other == group for other in taken) < max(1, places_max // bounds.INBOUND_GROUP_PART)


def has_stranger_room(host: str, strangers: Iterable[str]) -> bool:
    """Whether one more connection from this address may shake hands: ``strangers`` are those without a session."""
    if not is_limited(host):
        return True
    group = group_of(host)
    return sum(group_of(other) == group for other in strangers) < bounds.STRANGERS_PER_GROUP_MAX
