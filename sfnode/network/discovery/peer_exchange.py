"""Exchange of peer addresses between neighbours, and checks of what they claim."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import trio

from protocol.limits import ADDRESSES_PER_PEER_MAX, FRAME_BYTES_MAX, PEERS_PER_MESSAGE_MAX
from protocol.wire import PeerAddress, PeerId, Peers, PeersRequest, encode
from sfnode.network import bounds, policy
from sfnode.network.network_config import NetworkConfig
from sfnode.network.sessions import OpenSessions, Session

NEARBY = PeerId("local network")  # the source of all addresses found by mDNS, in place of a neighbour's id


class PeerExchange:
    """Asks neighbours for peers and answers them. With ``neighbours_fixed`` it neither asks nor names any peer.

    Attributes:
        changed: set when sessions or known peers have changed; the dialler, which waits for it, puts a new one here.
    """

    def __init__(
        self, *, config: NetworkConfig, names: policy.NameBook, book: policy.AddressBook, open_sessions: OpenSessions
    ) -> None:
        self.config = config
        self._names = names
        self.book = book
        self.open_sessions = open_sessions
        self.changed = trio.Event()
        own = [each for each in (*config.listen, *config.announce) if each.port]  # those with a fixed port
        self._own = frozenset(replace(address, peer=None) for address in own)
        self._ask_next: dict[PeerId, tuple[float, float]] = {}  # time of the next question (s), pause after it (s)
        self._answered_s: dict[PeerId, float] = {}
        # Answers that a neighbour may owe us: after a freeze it answers several questions at once.
        self._awaited: Counter[PeerId] = Counter()

    def know_own(self, address: policy.Address) -> None:
        """Remember one of this node's own addresses, so that nobody can make it dial itself."""
        self._own |= {replace(address, peer=None)}

    def session_opened(self, session: Session) -> None:
        """Remember the listening addresses that the neighbour of a new session names."""
        self._names.hear(session.peer, session.hello.listen)
        said = PeerAddress(peer=session.peer, addresses=session.hello.listen)
        self.learn((said,), source=session.peer, observed_host=session.channel.link.remote_host)
        self.changed.set()

    def ended(self, session: Session) -> None:
        """Forget a neighbour whose session has ended, and let it rest before it is dialled again."""
        now_s = trio.current_time()
        for held in (self._ask_next, self._answered_s, self._awaited):
            held.pop(session.peer, None)
        self.book.pause(session.peer, now_s, lasted_s=now_s - session.started_s)
        self.changed.set()

    def ask(self) -> None:
        """Ask the neighbours whose turn it is: new ones at once, then after 1, 2, 4 ... 300 s."""
        if self.config.neighbours_fixed:
            return
        now_s = trio.current_time()
        for session in self.open_sessions.all():
            next_s, interval_s = self._ask_next.get(session.peer, (now_s, bounds.EXCHANGE_START_S))
            if next_s <= now_s and session.send(PeersRequest()):
                longer_s = min(2 * interval_s, bounds.EXCHANGE_INTERVAL_S)
                self._ask_next[session.peer] = (now_s + interval_s, longer_s)
                self._awaited[session.peer] += 1

    def answer(self, session: Session) -> None:
        """Send a neighbour a list of peers, unless it asks too often."""
        now_s = trio.current_time()
        answered_s = self._answered_s.get(session.peer)
        if answered_s is None or now_s - answered_s >= bounds.PEERS_ANSWER_INTERVAL_S:
            self._answered_s[session.peer] = now_s
            peers = self.recommend(session.peer, session.channel.link.remote_host, bytes_max=FRAME_BYTES_MAX)
            session.send(Peers(peers=self._with_names(peers, exclude=session.peer)))

    def recommend(self, peer: PeerId, observed_host: str, *, bytes_max: int) -> tuple[PeerAddress, ...]:
        """Return peers to recommend to ``peer``, as many as fit into ``bytes_max``.

        ``observed_host``: the IP address at which we see the peer; it decides which addresses are useful there.
        """
        if self.config.neighbours_fixed:
            return ()
        found: list[PeerAddress] = []
        for known in self.book.share(exclude=peer, connected=self.open_sessions.peers()):
            reachable = policy.reachable_addresses(self.book.addresses(known), observed_host=observed_host)
            if reachable:
                found.append(PeerAddress(peer=known, addresses=tuple(map(str, reachable))))
        return _fitting(found, bytes_max)

    def _with_names(self, peers: tuple[PeerAddress, ...], *, exclude: PeerId) -> tuple[PeerAddress, ...]:
        """Return the peers with their names, and after them others of which it gives only the name."""
        if self.config.neighbours_fixed:
            return peers
        texts = {peer: text for peer, text in [*self._names.texts().items()][::-1] if peer != exclude}
        named = [
            replace(each, addresses=(texts.pop(PeerId(each.peer)), *each.addresses)[:ADDRESSES_PER_PEER_MAX])
            if each.peer in texts
            else each
            for each in peers
        ]
        named += [PeerAddress(peer=peer, addresses=(text,)) for peer, text in texts.items()]
        return _fitting(named[:PEERS_PER_MESSAGE_MAX], FRAME_BYTES_MAX)

    def receive_untrusted(self, session: Session, message: Peers) -> bool:
        """Learn the peers that a neighbour names; return False if it was not asked."""
        if not self._awaited[session.peer]:
            return False
        self._awaited[session.peer] -= 1
        for named in message.peers:
            self._names.hear(named.peer, named.addresses)
        self.learn(message.peers, source=session.peer, observed_host=session.channel.link.remote_host)
        self.changed.set()
        return True

    def found_nearby(self, address: policy.Address) -> bool:
        """Remember a peer found on the local network; return whether it is new.

        All such peers together have one neighbour's share of the address book.
        """
        assert address.peer is not None
        heard = replace(address, peer=None)
        if heard in self._own or heard in self.book.addresses(address.peer):
            return False
        self.book.learn(address.peer, (heard,), source=NEARBY)
        self.changed.set()
        return True

    def learn(self, peers: tuple[PeerAddress, ...], *, source: PeerId, observed_host: str) -> None:
        """Remember the believable addresses that ``source`` names. ``observed_host``: its IP address, as we see it."""
        if self.config.neighbours_fixed:
            return
        for named in peers:
            try:
                policy.author_of_peer(named.peer)
            except ValueError:
                continue
            known = self.book.addresses(PeerId(named.peer))  # perhaps from the operator: keep those host names
            new = tuple(
                each for each in policy.parse_untrusted(named.addresses) if replace(each, peer=None) not in known
            )
            is_of_itself = named.peer == source
            believed = policy.believable_addresses(new, observed_host=observed_host, is_of_itself=is_of_itself)
            others = tuple(address for address in believed if address not in self._own)
            self.book.learn(PeerId(named.peer), others, source=source)


def _fitting(peers: Sequence[PeerAddress], bytes_max: int) -> tuple[PeerAddress, ...]:
    """Return the first of ``peers``, as many as fit: a liar may have sent us long names."""
    found = list(peers)
    while found and len(encode(Peers(peers=tuple(found)))) > bytes_max:
        found.pop()
    return tuple(found)
