"""Nodes whose author tables are full of different authors: they agree no further, and their run ends all the same."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.crypto.keys import Signer
from protocol.events import MessageArrived, PeerJoined, SendMessage, Ticked
from protocol.node.node import Node
from protocol.node.node_config import NodeConfig
from protocol.state.replica import Replica
from protocol.wire import PeerId, Records, SpansRequest
from tests.support.ledgers import add, seal
from tests.support.manifests import small_manifest

FEW = small_manifest(steps=1, authors_max=2)
TICK_MS = 50


class Relays:
    """Finished relays in virtual time, each a neighbour of all others. What one sends, the other has at once, or never.

    Attributes:
        sessions: how many began.
        is_losing: whether what is sent is lost.
    """

    def __init__(self, *held: Sequence[int]) -> None:
        """Each with an update of these authors."""
        self.nodes: dict[PeerId, Node] = {}
        self.sessions = 0
        self.is_losing = False
        self.now_ms = 0
        for number, authors in enumerate(held):
            replica = Replica(FEW)
            for author in authors:
                add(replica.ledger, seal(FEW, author, 0))
            signer = Signer(bytes([number]) * 32)
            self.nodes[PeerId(f"relay{number}")] = Node(FEW, signer, NodeConfig(is_training=False), replica)
        for peer, each in self.nodes.items():
            each.handle(Ticked(), 0)
            for other in self.nodes.keys() - {peer}:
                each.handle(PeerJoined(peer=other), 0)

    def run(self, duration_ms: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms + duration_ms
        while self.now_ms < end_ms:
            self.now_ms += TICK_MS
            for peer, each in self.nodes.items():
                self._carry(peer, [e for e in each.handle(Ticked(), self.now_ms) if isinstance(e, SendMessage)])

    def _carry(self, source: PeerId, sent: list[SendMessage]) -> None:
        waiting = [] if self.is_losing else [(source, each) for each in sent]
        while waiting:
            sender, each = waiting.pop(0)
            self.sessions += isinstance(each.message, SpansRequest)
            effects = self.nodes[each.peer].handle(MessageArrived(peer=sender, message=each.message), self.now_ms)
            waiting += [(each.peer, effect) for effect in effects if isinstance(effect, SendMessage)]

    def push(self, target: PeerId, record: bytes) -> None:
        """One neighbour of ``target`` floods a record."""
        source = next(peer for peer in self.nodes if peer != target)
        event = MessageArrived(peer=source, message=Records(request=0, data=record))
        effects = self.nodes[target].handle(event, self.now_ms)
        self._carry(target, [each for each in effects if isinstance(each, SendMessage)])


def test_end__two_tables_full_of_different_authors__are_apart_for_good_and_the_run_is_over() -> None:
    """They once compared again and again, each second or two, and left after 30 minutes as not settled."""
    relays = Relays((1, 2), (3, 4))
    relays.run(10_000)
    found = [each.end.ending for each in relays.nodes.values()]
    assert [(each.is_over, each.equal_peers, each.differing_peers, each.full_peers) for each in found] == [
        (True, 0, 0, 1)
    ] * 2
    assert relays.sessions == 2
    relays.run(60_000)
    assert relays.sessions == 2


def test_end__an_author_of_both_full_tables_goes_on__is_pulled_before_they_are_apart_again() -> None:
    relays = Relays((1, 2), (1, 3), (2, 3))
    relays.run(10_000)
    assert all(each.end.ending.is_over for each in relays.nodes.values())
    first, second, third = relays.nodes.values()
    relays.is_losing = True  # what the first one floods
    relays.push(PeerId("relay0"), seal(FEW, 1, 0, 77))  # voids its slot
    relays.is_losing = False
    assert [each.replica.ledger.void_slots for each in (first, second, third)] == [1, 0, 0]
    relays.run(200)
    assert not first.end.ending.is_over
    relays.run(15_000)
    assert [each.replica.ledger.void_slots for each in (first, second, third)] == [1, 1, 0]
    assert all(each.end.ending.is_over for each in relays.nodes.values())


def test_end__only_one_table_is_full__the_other_one_takes_what_it_has_room_for_before_it_ends() -> None:
    relays = Relays((1, 2), (3,))
    relays.run(10_000)
    one, other = (each.replica.ledger for each in relays.nodes.values())
    assert (one.updates, other.updates) == (2, 2) and one.root() != other.root()
    assert all(each.end.ending.is_over for each in relays.nodes.values())
