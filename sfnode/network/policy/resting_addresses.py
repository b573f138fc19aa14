"""Addresses that are not dialled for a while, so that nobody can aim this node's dials at a third party. Pure."""

import ipaddress

from sfnode.network import bounds
from sfnode.network.policy.addresses import Address
from sfnode.network.policy.token_bucket import TokenBucket


class RestingAddresses:
    """Lets an address rest after each failed dial, and its host, which may be many nodes', after several.

    All dials together, those to ever new hosts included, have a rate. ``now_s`` is the time of a monotonic clock.
    """

    def __init__(self) -> None:
        # By address and by host, the oldest first: how often dials failed there in a row, and until when (s) it rests.
        self._rests: dict[str, tuple[int, float]] = {}
        self._bucket = TokenBucket(bounds.UNVERIFIED_DIALS_BURST, 0.0)

    def __len__(self) -> int:
        return len(self._rests)

    def may_dial(self, address: Address, now_s: float) -> bool:
        """Return whether neither the address nor its host rests, nor all of them."""
        if self._bucket.level(bounds.UNVERIFIED_DIALS_PER_S, now_s) < 1:
            return False
        return all(self._rests.get(key, (0, 0.0))[1] <= now_s for key in _keys(address))

    def has_failed(self, address: Address) -> bool:
        """Return whether dials have failed at the address since one was answered."""
        return _keys(address)[0] in self._rests

    def tried(self, address: Address, now_s: float) -> None:
        """Let an address rest after the dial that starts now, longer each time; ``answered`` ends the rest."""
        self._bucket.take(1, bounds.UNVERIFIED_DIALS_PER_S, now_s)
        for key, free in zip(_keys(address), (0, bounds.DIALS_PER_HOST_FREE), strict=True):
            failures, _ = self._rests.pop(key, (0, 0.0))
            rest_s = bounds.BACKOFF_START_S * 2.0 ** min(failures - free, 20) if failures >= free else 0.0
            self._rests[key] = failures + 1, now_s + min(bounds.BACKOFF_MAX_S, rest_s)
        while len(self._rests) > bounds.ADDRESSES_RESTING_MAX:
            del self._rests[next(iter(self._rests))]

    def answered(self, address: Address) -> None:
        """End the rests of an address and its host, because the peer that was dialled there has proved its id."""
        for key in _keys(address):
            self._rests.pop(key, None)

    def rest_once(self, address: Address, now_s: float) -> None:
        """Let an address rest for a moment, and its host not: another peer than the one that was dialled is there."""
        self.answered(address)
        self._rests[_keys(address)[0]] = 0, now_s + bounds.BACKOFF_START_S


def _keys(address: Address) -> tuple[str, str]:
    """Return the names of the address and of its host: an IPv4 address, or an IPv6 network as one machine may have."""
    host = address.host if address.kind != "ip6" else str(ipaddress.ip_network((address.host, 64), strict=False))
    return f"{address.host} {address.port}", host
