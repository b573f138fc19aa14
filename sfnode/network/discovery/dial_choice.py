"""Choice of the peers to dial now, and of sessions that end to make room: the state for `policy.outbound_choice`."""

import random
from collections.abc import Iterator

import trio

from protocol.wire import PeerId
from sfnode.network import bounds
from sfnode.network.discovery.peer_exchange import PeerExchange
from sfnode.network.policy import Group, ip_groups, outbound_choice


class DialChoice:
    """Chooses whom to dial, so that enough outbound neighbours lie in several networks and a bootstrap is among them.

    Attributes:
        dialling: the peers that are being dialled, with the network of the address that is tried first.
        recommended: the peers that a full bootstrap has named.
        next_bootstrap_check_s: when a bootstrap is dialled although there are neighbours enough.
    """

    def __init__(self, exchange: PeerExchange) -> None:
        self._config, self._book, self._sessions = exchange.config, exchange.book, exchange.open_sessions
        self._chance = random.Random()
        self.dialling: dict[PeerId, Group | None] = {}
        self.recommended: frozenset[PeerId] = frozenset()
        self.next_bootstrap_check_s = 0.0
        self._book.in_use = lambda: self._sessions.served() | frozenset(self.dialling)

    def begin(self, peer: PeerId) -> None:
        """Note that a peer is being dialled from now on."""
        addresses = self._book.dialable(peer, trio.current_time())
        self.dialling[peer] = ip_groups.public_group_of(addresses[0].host) if addresses else None

    def choose(self) -> tuple[PeerId, ...]:
        now_s = trio.current_time()
        exclude = self._sessions.served() | self._sessions.discouraged() | frozenset(self.dialling)
        free = bounds.DIALS_AT_ONCE_MAX - len(self.dialling)
        if self._config.neighbours_fixed:
            return self._book.due(now_s, exclude=exclude, bootstrap_only=True)[: max(0, free)]
        ours = self._sessions.count(is_outbound=True) + len(self.dialling)
        wanted = min(free, self._config.outbound_target - ours)
        if wanted > 0:
            # Too few outbound sessions: dial the missing ones, spread over networks.
            return outbound_choice.spread(self._candidates(now_s, exclude), self._taken(), wanted)
        # Enough: one extra dial at most, to a bootstrap or else to a less crowded network.
        dialled = self._dialled()
        leaving = outbound_choice.choose_to_leave(dialled) if len(dialled) > self._config.outbound_target else None
        session = self._sessions.get(leaving) if leaving is not None else None
        if session is not None:
            session.say_bye("making room for another network")
        checked = self._to_check(now_s, exclude) if free > 0 else ()
        if free <= 0 or checked:
            return checked
        taken = self._taken()
        found = (
            outbound_choice.elsewhere(self._candidates(now_s, exclude), taken)
            if outbound_choice.is_crowded(taken)
            else None
        )
        return (found,) if found is not None and len(taken) < self._config.outbound_max else ()

    def _candidates(self, now_s: float, exclude: frozenset[PeerId]) -> Iterator[tuple[PeerId, Group | None]]:
        """Yield the peers that may be dialled now, each with the network of the address that is tried first."""
        for peer in self._book.due(now_s, exclude=exclude):
            yield peer, ip_groups.public_group_of(self._book.dialable(peer, now_s)[0].host)

    def _dialled(self) -> tuple[outbound_choice.Dialled, ...]:
        """Return the outbound sessions that are not ending, the oldest first."""
        sessions = [each for each in self._sessions.all() if each.is_outbound and not each.is_ending]
        sessions.sort(key=lambda session: session.started_s)
        return tuple(
            outbound_choice.Dialled(
                peer=session.peer,
                group=ip_groups.public_group_of(session.channel.link.remote_host),
                started_s=session.started_s,
                is_kept=place < bounds.ANCHORS or self._book.is_bootstrap(session.peer),
            )
            for place, session in enumerate(sessions)
        )

    def _taken(self) -> list[Group | None]:
        """Return the networks of the outbound neighbours and of the peers that are being dialled."""
        return [each.group for each in self._dialled()] + [group for _, group in sorted(self.dialling.items())]

    def _to_check(self, now_s: float, exclude: frozenset[PeerId]) -> tuple[PeerId, ...]:
        """Return a bootstrap to dial if the interval is over: only bootstraps connect the halves of a split network.

        A full bootstrap recommends neighbours of its own; one of them serves the same purpose.
        """
        found = tuple(peer for peer in self._book.due(now_s, exclude=exclude) if peer in self.recommended)[:1]
        self.recommended = frozenset()
        if not found and now_s >= self.next_bootstrap_check_s:
            self.next_bootstrap_check_s = now_s + bounds.BOOTSTRAP_CHECK_S * self._chance.uniform(0.5, 1.5)
            found = self._book.due(now_s, exclude=exclude, bootstrap_only=True)[:1]
        return found if found and self._has_room_to_check() else ()

    def _has_room_to_check(self) -> bool:
        """Return whether one more session is allowed; if all are taken, end the youngest that is not to a bootstrap."""
        dialled = [session for session in self._sessions.all() if session.is_outbound]
        if len(dialled) + len(self.dialling) < self._config.outbound_max:
            return True
        dialled.sort(key=lambda session: session.started_s)
        others = [each for each in dialled[bounds.ANCHORS :] if not self._book.is_bootstrap(each.peer)]
        if others:
            others[-1].say_bye("making room for a bootstrap")
        return bool(others)
