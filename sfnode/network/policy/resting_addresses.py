"""Addresses that are not dialled for a while, so that nobody can aim this node's dials at a third party. Pure."""

import ipaddress
from functools import lru_cache

from sfnode.network import bounds
from sfnode.network.policy.addresses import Address
from sfnode.network.policy.token_bucket import TokenBucket


class RestingAddresses:
    """Lets an address rest after each failed dial, longer each time.

    The dials to one public host, which may be many nodes', have a rate while none is answered, and so have all dials
    together. ``now_s`` is the time of a monotonic clock.
    """

    def __init__(self) -> None:
        # By address, the oldest first: how often dials failed there in a row, and until when (s) it rests.
        self._rests: dict[Address, tuple[int, float]] = {}
        self._hosts: dict[str, float] = {}  # when the next dial is due there, had all come evenly
        self._bucket = TokenBucket(bounds.UNVERIFIED_DIALS_BURST, 0.0)

    def __len__(self) -> int:
        return len(self._rests)

    def may_dial(self, address: Address, now_s: float) -> bool:
        """Return whether the address does not rest, and the rates allow a dial."""
        if self._bucket.level(bounds.UNVERIFIED_DIALS_PER_S, now_s) < 1:
            return False
        ahead_s = bounds.HOST_DIALS_BURST * bounds.HOST_DIAL_S
        return self._rests.get(address, (0, 0.0))[1] <= now_s and self._hosts.get(_host(address), 0.0) < now_s + ahead_s

    def has_failed(self, address: Address) -> bool:
        """Return whether dials have failed at the address since one was answered."""
        return self._rests.get(address, (0, 0.0))[0] > 0

    def tried(self, address: Address, now_s: float) -> None:
        """Let an address rest after the dial that starts now, longer each time; ``answered`` ends the rest."""
        self._bucket.take(1, bounds.UNVERIFIED_DIALS_PER_S, now_s)
        failures, _ = self._rests.pop(address, (0, 0.0))
        rest_s = min(bounds.BACKOFF_MAX_S, bounds.BACKOFF_START_S * 2.0 ** min(failures, 20))
        self._rests[address] = failures + 1, now_s + rest_s
        if host := _host(address):
            self._hosts[host] = max(now_s, self._hosts.pop(host, now_s)) + bounds.HOST_DIAL_S
        if len(self._rests) > bounds.ADDRESSES_RESTING_MAX:
            del self._rests[next(iter(self._rests))]
        if len(self._hosts) > bounds.ADDRESSES_RESTING_MAX:
            del self._hosts[next(iter(self._hosts))]

    def answered(self, address: Address) -> None:
        """End the rest of an address, and forget dials to its host: the peer that was dialled has proved its id."""
        self._rests.pop(address, None)
        self._hosts.pop(_host(address), None)

    def rest_once(self, address: Address, now_s: float) -> None:
        """Let an address rest for a moment, and not count its last dial: another peer than the dialled one is there."""
        self._rests[address] = 0, now_s + bounds.BACKOFF_START_S
        if (host := _host(address)) in self._hosts:
            self._hosts[host] -= bounds.HOST_DIAL_S


@lru_cache(maxsize=8 * bounds.KNOWN_PEERS_MAX)
def _host(address: Address) -> str:
    """Return a public IPv4 address, or an IPv6 network as one machine may have; empty where dials need no rate.

    Only peers on the same network can name private addresses, and only this machine's own loopback ones.
    """
    if address.is_inside or address.is_loopback:
        return ""
    return str(ipaddress.ip_network((address.host, 64), strict=False)) if address.kind == "ip6" else address.host
