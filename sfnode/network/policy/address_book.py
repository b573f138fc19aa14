"""Known peers: addresses, successes, failures, times of the next dial. Pure: no clock, no sockets, no files."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice

from protocol.wire import PeerId
from sfnode.network import bounds
from sfnode.network.policy.addresses import Address, parse_untrusted
from sfnode.network.policy.outbound_choice import dial_order
from sfnode.network.policy.resting_addresses import RestingAddresses


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    """The record of a known peer on disk."""

    peer: str
    addresses: tuple[str, ...]  # without the peer id, last good one first
    last_success_unix_ms: int  # 0: never reached
    failures: int  # since the last success
    is_bootstrap: bool


@dataclass(slots=True, kw_only=True)
class _Entry:
    # Without the peer id, last good one first; who named it, None if the operator did, or an earlier life knew it.
    addresses: dict[Address, PeerId | None] = field(default_factory=dict)
    given: frozenset[Address] = frozenset()  # those of them that the operator named
    last_success_unix_ms: int = 0
    failures: int = 0
    short_sessions: int = 0  # in a row
    due_s: float = 0.0  # not dialled before this time
    refused_until_s: float = 0.0  # nor before this one, after a refusal, whatever is heard of it
    is_bootstrap: bool = False
    source: PeerId | None = None  # the neighbour that named the peer; None once it was reached

    @property
    def sure(self) -> frozenset[Address]:
        """Return the addresses that the operator gave, and the last good one."""
        return self.given | frozenset([*self.addresses][: bool(self.last_success_unix_ms)])

    def remember(self, address: Address, source: PeerId | None, resting: RestingAddresses) -> None:
        """Append an address. For a new one, a peer that was never reached is due at once, unless it has refused.

        Of too many, drop one that failed, or else one of the many that one source has named; none that is `sure`.
        So false addresses neither drive out the right one nor keep it from being dialled.
        """
        bare = replace(address, peer=None)
        if bare in self.addresses:
            return
        if len(self.addresses) >= bounds.ADDRESSES_PER_PEER_MAX:
            named, others = Counter(self.addresses.values()), [each for each in self.addresses if each not in self.sure]
            if not others:
                return
            del self.addresses[max(others, key=lambda each: (resting.has_failed(each), named[self.addresses[each]]))]
        self.addresses[bare] = source
        if not (self.last_success_unix_ms or resting.has_failed(bare)):
            self.due_s = min(self.due_s, self.refused_until_s)

    def put_first(self, address: Address) -> None:
        """Record that the peer was reached at ``address``, whoever had named it."""
        others = {each: by for each, by in self.addresses.items() if each != address}
        self.addresses = dict([(address, None), *others.items()][: bounds.ADDRESSES_PER_PEER_MAX])


class AddressBook:
    """Remembers at most KNOWN_PEERS_MAX peers; it never forgets peers in use or named by the operator.

    ``now_s`` is the time of any monotonic clock. ``chance`` shuffles and jitters, so that nodes do not act in step; its
    decisions never reach bytes or state.
    """

    def __init__(self, *, own_peer: PeerId, bootstrap: tuple[Address, ...], chance: random.Random) -> None:
        self._own_peer = own_peer
        self._chance = chance
        # Peers that are dialled or connected; set by the dialler.
        self.in_use: Callable[[], frozenset[PeerId]] = frozenset
        self._entries: dict[PeerId, _Entry] = {}
        self._resting = RestingAddresses()
        for address in bootstrap:
            if address.peer is not None and address.peer != own_peer:
                entry = self._entries.setdefault(address.peer, _Entry(is_bootstrap=True))
                entry.remember(address, None, self._resting)
                entry.given = frozenset(entry.addresses)

    # --- persistence

    def restore(self, rows: tuple[PeerRow, ...]) -> None:
        """Take over the ``rows`` of an earlier address book; leave out rows beyond the bound.

        Bootstraps that were reached stay bootstraps, those met last: any of them leads out of an island.
        """
        bootstraps_left = bounds.BOOTSTRAPS_KEPT_MAX
        for row in sorted(rows, key=lambda row: -row.last_success_unix_ms)[: bounds.KNOWN_PEERS_MAX]:
            if row.peer == self._own_peer:
                continue
            entry = self._entries.setdefault(PeerId(row.peer), _Entry())
            if row.is_bootstrap and row.last_success_unix_ms and not entry.is_bootstrap and bootstraps_left:
                entry.is_bootstrap, bootstraps_left = True, bootstraps_left - 1
            entry.last_success_unix_ms = row.last_success_unix_ms
            addresses = parse_untrusted(row.addresses)
            for address in addresses:
                entry.remember(address, None, self._resting)
            if row.last_success_unix_ms and addresses:
                entry.put_first(addresses[0])

    def __len__(self) -> int:
        return len(self._entries)

    def rows(self) -> tuple[PeerRow, ...]:
        """Return the records of all peers, ordered by peer."""
        return tuple(
            PeerRow(
                peer=peer,
                addresses=tuple(map(str, entry.addresses)),
                last_success_unix_ms=entry.last_success_unix_ms,
                failures=entry.failures,
                is_bootstrap=entry.is_bootstrap,
            )
            for peer, entry in sorted(self._entries.items())
        )

    # --- learning

    def learn(self, peer: PeerId, addresses: tuple[Address, ...], *, source: PeerId) -> None:
        """Remember the addresses that ``source`` names for a peer. Displace no peer that was ever reached."""
        if not addresses or peer == self._own_peer:
            return
        if peer not in self._entries:
            named = [peer for peer, entry in self._entries.items() if entry.source == source]
            is_full = len(named) >= bounds.UNVERIFIED_PER_SOURCE_MAX
            if is_full and not self._forget_worst(named, bounds.FAILURES_TO_GIVE_WAY):
                return
            if len(self._entries) >= bounds.KNOWN_PEERS_MAX and not self._forget_worst(self._entries):
                return
            self._entries[peer] = _Entry(source=source)
        for address in addresses:
            self._entries[peer].remember(address, source, self._resting)

    def _forget_worst(self, among: Iterable[PeerId], failures_min: int = 0) -> bool:
        """Forget the unused, never reached peer with most failures; return False if none has ``failures_min``."""
        held, in_use = self._entries, self.in_use()
        unused = (peer for peer in among if not held[peer].is_bootstrap and peer not in in_use)
        never = [peer for peer in unused if not held[peer].last_success_unix_ms]
        worst = max(never, key=lambda peer: held[peer].failures, default=None)
        if worst is None or held[worst].failures < failures_min:
            return False
        del held[worst]
        return True

    def belongs_to_another(self, peer: PeerId, address: Address, now_s: float) -> None:
        """Forget an address at which another peer answered, for a peer that was never reached.

        So a false id for somebody's address costs one dial; 64 of them made the right one wait for hours.
        """
        entry = self._entries.get(peer)
        if entry is None or entry.is_bootstrap or entry.last_success_unix_ms:
            return
        bare = replace(address, peer=None)
        self._resting.rest_once(bare, now_s)
        entry.addresses.pop(bare, None)
        if not entry.addresses:
            del self._entries[peer]

    # --- dialling

    def is_bootstrap(self, peer: PeerId) -> bool:
        """Return whether the operator named the peer, now or before an earlier start."""
        return (entry := self._entries.get(peer)) is not None and entry.is_bootstrap

    def is_expected(self, peer: PeerId) -> bool:
        """Return whether the peer is a bootstrap or was reached before, so that a failed dial is news."""
        return (entry := self._entries.get(peer)) is not None and bool(entry.is_bootstrap or entry.last_success_unix_ms)

    def due(self, now_s: float, *, exclude: frozenset[PeerId], bootstrap_only: bool = False) -> tuple[PeerId, ...]:
        """Return the peers that may be dialled now, in the order of :func:`dial_order`, at random within each group."""
        ready = [
            peer
            for peer, entry in self._entries.items()
            if entry.due_s <= now_s and peer not in exclude and (entry.is_bootstrap or not bootstrap_only)
            if self.dialable(peer, now_s)
        ]
        self._chance.shuffle(ready)  # dial_order keeps this order within its groups
        bootstraps = frozenset(peer for peer in ready if self._entries[peer].is_bootstrap)
        reached = frozenset(peer for peer in ready if self._entries[peer].last_success_unix_ms)
        return dial_order(ready, anchors=self.anchors(), bootstraps=bootstraps, reached=reached)

    def anchors(self) -> frozenset[PeerId]:
        """Return the ANCHORS peers that were met last."""
        good = [peer for peer, entry in self._entries.items() if entry.last_success_unix_ms]
        good.sort(key=lambda peer: -self._entries[peer].last_success_unix_ms)
        return frozenset(good[: bounds.ANCHORS])

    def addresses(self, peer: PeerId) -> tuple[Address, ...]:
        """Return the addresses of a peer without the peer id, last good one first."""
        return tuple(entry.addresses) if (entry := self._entries.get(peer)) else ()

    def dialable(self, peer: PeerId, now_s: float) -> tuple[Address, ...]:
        """Return the addresses at which the peer may be dialled now, without the peer id.

        Those that the operator gave and the last good one are always among them. Of those that others have named there
        are two at most, and none that rests: an attacker who names a stranger's addresses, under any ids, could make
        this node dial the stranger without end.
        """
        entry = self._entries.get(peer, _Entry())
        sure = entry.sure
        others = (each for each in entry.addresses if each not in sure and self._resting.may_dial(each, now_s))
        return (*(each for each in entry.addresses if each in sure), *islice(others, bounds.UNVERIFIED_AT_ONCE_MAX))

    def tried_at(self, peer: PeerId, address: Address, now_s: float) -> None:
        """Let an address that somebody has named rest after the dial that starts now; ``answered`` ends the rest."""
        if address not in self._entries.get(peer, _Entry()).sure:
            self._resting.tried(address, now_s)

    def answered(self, address: Address) -> None:
        """Record that the peer that was dialled at this address is there."""
        self._resting.answered(address)

    def succeeded(self, peer: PeerId, address: Address, *, unix_ms: int) -> None:
        """Record a session with the peer at this address, which becomes its first address."""
        entry = self._entries.setdefault(peer, _Entry())
        entry.last_success_unix_ms, entry.failures, entry.source = unix_ms, 0, None
        entry.put_first(replace(address, peer=None))

    def still_good(self, peer: PeerId, *, unix_ms: int) -> None:
        """Record that a session with the peer has lasted until ``unix_ms``, so that it counts as met last."""
        if peer in self._entries:
            self._entries[peer].last_success_unix_ms = unix_ms

    def failed(self, peer: PeerId, now_s: float, *, at_least_s: float = 0.0) -> float:
        """Record a failed dial; return the seconds until the peer is due again (backoff with full jitter)."""
        if (entry := self._entries.get(peer)) is None:
            return 0.0
        longest_s = bounds.BACKOFF_BOOTSTRAP_MAX_S if entry.is_bootstrap else max(bounds.BACKOFF_MAX_S, at_least_s)
        backoff_s = min(longest_s, bounds.BACKOFF_START_S * 2.0 ** min(entry.failures, 20))
        entry.failures += 1
        wait_s = max(self._chance.uniform(0.0, backoff_s), min(at_least_s, longest_s))
        entry.due_s, entry.refused_until_s = now_s + wait_s, now_s + min(at_least_s, longest_s)
        return wait_s

    def pause(self, peer: PeerId, now_s: float, *, lasted_s: float) -> None:
        """Delay the next dial after a session, at random, as both ends may dial; longer after several short ones."""
        if (entry := self._entries.get(peer)) is not None:
            entry.short_sessions = entry.short_sessions + 1 if lasted_s < bounds.SHORT_SESSION_S else 0
            longest_s = bounds.BACKOFF_START_S * 2.0 ** min(max(0, entry.short_sessions - 1), 20)
            wait_s = self._chance.uniform(0.0, min(longest_s, bounds.BACKOFF_BOOTSTRAP_MAX_S))
            entry.due_s = max(entry.due_s, now_s + wait_s)

    # --- recommending peers

    def share(self, *, exclude: PeerId, connected: frozenset[PeerId]) -> tuple[PeerId, ...]:
        """Return peers to recommend: first connected ones, then those reached before, each in random order."""
        good = [
            peer
            for peer, entry in self._entries.items()
            if peer != exclude and (peer in connected or entry.last_success_unix_ms)
        ]
        self._chance.shuffle(good)
        good.sort(key=lambda peer: peer not in connected)
        return tuple(good[: bounds.PEERS_PER_ANSWER_MAX])
